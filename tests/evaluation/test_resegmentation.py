"""Cuts of a text against an exhaustive search and by hand, and omitted and added text."""

from __future__ import annotations

import itertools
import random

import pytest

from scaleformer.evaluation.resegmentation import ACROSS, ALIKE, GAP, OTHER, Difference, difference, resegment
from scaleformer.evaluation.scores import corpus_bleu


@pytest.mark.parametrize(
    ("text", "reference", "expected"),
    [
        ("a b c d", ["a b", "c d"], ["a b", "c d"]),
        ("a b x c d", ["a b", "q", "c d"], ["a b", "x", "c d"]),
        ("c d", ["a b e", "c d", "e f g"], ["", "c d", ""]),
        ("One. Two, three. Four!", ["One.", "Two, three.", "Four!"], ["One.", "Two, three.", "Four!"]),
        ("", ["a", "b"], ["", ""]),
        ("  a  b ", ["a b"], ["a  b"]),
        ("今天天气很好。他没有来。", ["今天天气好。", "他没来。"], ["今天天气很好。", "他没有来。"]),
        ("walks home . Sleep now", ["walking home.", "Sleeps now."], ["walks home .", "Sleep now"]),
        ("a b", ["", "a b", ""], ["", "a b", ""]),
        ("... a", ["b", "... a"], ["", "... a"]),
    ],
    ids=[
        *("equal", "another word", "rest missing", "marks", "nothing", "spaces", "characters", "forms", "blank"),
        "marks that begin",
    ],
)
def test_by_hand(text, reference, expected):
    assert resegment(text, reference) == expected


def edit(first: list[str], second: list[str]) -> int:
    """The cost of replacing one by the other, from the equation."""
    if not first or not second:
        return GAP * (len(first) + len(second))
    a, b = first[0], second[0]
    kind = 0 if a == b else ALIKE if a.lower()[:4] == b.lower()[:4] else OTHER if a.isalnum() == b.isalnum() else ACROSS
    return min(kind + edit(first[1:], second[1:]), GAP + edit(first[1:], second), GAP + edit(first, second[1:]))


@pytest.mark.parametrize("seed", range(8))
def test_the_cheapest_of_all_cuts(seed):
    generator = random.Random(seed)
    words = ["a", "b", "c", ".", "walks", "Walking"]
    reference = [generator.choices(words, k=generator.randint(1, 2)) for _ in range(4)]
    text = generator.choices(words, k=6)
    found = resegment(" ".join(text), [" ".join(segment) for segment in reference])
    assert " ".join(" ".join(found).split()) == " ".join(text)
    best = min(
        sum(edit(text[i:j], r) for i, j, r in zip((0, *cuts), (*cuts, len(text)), reference, strict=True))
        for cuts in itertools.combinations_with_replacement(range(len(text) + 1), 3)
    )
    assert sum(edit(own.split(), r) for own, r in zip(found, reference, strict=True)) == best


def test_a_tenth_of_the_words_changed():
    """Nearly all cuts are recovered, and the score is that of the original segments."""
    generator = random.Random(3)
    vocabulary = [f"word{n}" for n in range(300)]
    reference = [" ".join(generator.choices(vocabulary, k=generator.randint(3, 20))) + "." for _ in range(200)]
    changed = [
        " ".join(generator.choice(vocabulary) if generator.random() < 0.1 else word for word in segment.split())
        for segment in reference
    ]
    found = resegment(" ".join(changed), reference)
    assert sum(own == as_it_was for own, as_it_was in zip(found, changed, strict=True)) > 190
    assert corpus_bleu(found, reference) == pytest.approx(corpus_bleu(changed, reference), abs=0.2)


def test_omitted_and_added_text():
    reference = ["one two three four five six.", "seven eight.", "nine ten."]
    same = difference(reference, reference)
    assert same == Difference(reference_tokens=13, hypothesis_tokens=13)
    # the whole second segment, though it is short; a single token of the third does not count as omitted
    left_out = difference([reference[0], "", "nine."], reference)
    assert (left_out.omitted_tokens, left_out.added_tokens, left_out.omitted_segments) == (3, 0, 1)
    assert left_out.to_dict()["omitted"] == pytest.approx(3 / 13)
    # five words more in the first segment, four in the last
    more = difference([f"a b c d e {reference[0]}", reference[1], f"f g h i {reference[2]}"], reference)
    assert (more.omitted_tokens, more.added_tokens, more.hypothesis_tokens) == (0, 5, 22)
    assert more.to_dict()["added"] == pytest.approx(5 / 22)
    tail = difference(["one"], [reference[0]])
    assert (tail.omitted_tokens, tail.omitted_segments) == (6, 0)
    assert (same + left_out).reference_tokens == 26
    assert Difference().to_dict()["omitted"] == 0


def test_a_reference_without_segments_is_refused():
    with pytest.raises(ValueError, match="the reference has no segments"):
        resegment("a", [])
