"""Alignment of segments against a search over all monotone alignments."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from scaleformer.evaluation.alignment import align_segments, by_bead
from scaleformer.text.documents import Document


def test_equal_counts_stay_unchanged():
    assert align_segments(["x", ""], ["a", "x"]) == ["x", ""]


@pytest.mark.parametrize(
    ("hypothesis", "reference", "expected"),
    [
        (["a b c", "d e"], ["a b", "c", "d e"], ["a b c", "", "d e"]),
        (["a", "b", "c d"], ["a b", "c d"], ["a b", "c d"]),
        (["c d"], ["a b", "c d", "e"], ["", "c d", ""]),
        ([], ["a", "b"], ["", ""]),
        (["a", "b"], ["a b c"], ["a b"]),
        (
            ["今天天气很好。他没有来。", "请打开设置。"],
            ["今天天气好。", "他没来。", "请打开设置。"],
            ["今天天气很好。他没有来。", "", "请打开设置。"],
        ),
        (["请打开路由器。"], ["今天天气好。", "请打开路由。", "他没来。"], ["", "请打开路由器。", ""]),
    ],
    ids=["two as one", "one as two", "rest missing", "nothing", "all to one", "characters", "one of characters"],
)
def test_by_hand(hypothesis, reference, expected):
    assert align_segments(hypothesis, reference) == expected


def dice(first: str, second: str) -> float:
    shared = Counter(first.split()) & Counter(second.split())
    return 2 * shared.total() / (len(first.split()) + len(second.split()))


@pytest.mark.parametrize("seed", range(10))
def test_the_best_of_all_monotone_alignments(seed):
    generator = random.Random(seed)

    def text(segments: int) -> list[str]:
        return [" ".join(generator.choices("abcdefg", k=generator.randint(1, 4))) for _ in range(segments)]

    hypothesis, reference = text(generator.choice([3, 4, 6])), text(5)
    # distinct words tell which hypothesis segment went where
    aligned = align_segments([f"{i}: {s}" for i, s in enumerate(hypothesis)], reference)
    assert [w for s in aligned for w in s.split() if w.endswith(":")] == [f"{i}:" for i in range(len(hypothesis))]
    place = [next(p for p, s in enumerate(aligned) if f"{i}:" in s.split()) for i in range(len(hypothesis))]

    def total(places) -> float:
        return sum(dice(f"{i}: {hypothesis[i]}", reference[p]) for i, p in enumerate(places))

    best = max(total(p) for p in itertools.combinations_with_replacement(range(5), len(hypothesis)))
    assert total(place) == pytest.approx(best)


def test_an_empty_reference_is_refused():
    with pytest.raises(ValueError, match="no segments"):
        align_segments(["a"], [])


def test_hypotheses_follow_the_beads_of_their_reference() -> None:
    document = Document(
        "d", ("a", "b", "c", "d"), ("V", "W", "X", "Y", "Z"), beads=((0, 1), (2, 1), (1, 2), (1, 0), (0, 1))
    )  # fmt: skip
    matched, hypothesis = by_bead(document, ["1", "2", "3", "4"])
    assert matched.source == ("a b", "c", "d")
    assert matched.target == ("V W", "X Y", "Z")
    assert hypothesis == ["1 2", "3", "4"]
    assert by_bead(document, ["1", "2"])[1] == ["1", "2"]
    alone = Document("d", (), ("X", "Y"), beads=((0, 1), (0, 1)))
    matched, hypothesis = by_bead(alone, [])
    assert (matched.source, matched.target, hypothesis) == (("",), ("X Y",), [""])
    plain = Document("d", ("a", "b"), ("X", "Y"))
    assert by_bead(plain, ["1", "2"]) == (plain, ["1", "2"])
