"""Near duplicates: what counts as one by hand, and that MinHash finds those with a fifth of the words changed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from scaleformer.data.quality.near import NearTexts, digests, near_documents, same_words, tokens

WORDS = [f"word{n}" for n in range(2000)]


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ("a b c d e", "A b, c x e.", True),  # four of five
        ("a b c d e", "a b c x y", False),
        ("a b c d", "a b c d e", True),
        ("a a a a b", "a b c d e", False),  # how often a word stands counts
        ("a b c d e f g h i", "i h g f e d c b a", True),  # the order does not
    ],
)
def test_four_fifths_of_the_words(one: str, other: str, wanted: bool) -> None:
    assert same_words(tokens(one), tokens(other)) is wanted
    assert same_words(tokens(other), tokens(one)) is wanted


def edited(text: list[str], rng: random.Random) -> str:
    changed = list(text)
    for place in rng.sample(range(len(text)), len(text) // 5):
        changed[place] = rng.choice(WORDS)
    return " ".join(changed)


def test_segments_with_a_fifth_of_their_words_changed_are_found() -> None:
    rng = random.Random(1)
    known = [[rng.choice(WORDS) for _ in range(rng.randint(5, 40))] for _ in range(400)]
    others = [" ".join(rng.choice(WORDS) for _ in range(20)) for _ in range(400)]
    near = NearTexts(map(" ".join, known))
    found = set(near.find([*(edited(text, rng) for text in known), *others]))
    right = {(n, n) for n in range(400)}
    assert len(found & right) >= 0.98 * len(right)
    assert found <= right


def test_texts_of_few_words_have_no_near_ones() -> None:
    assert not list(NearTexts(["a b c d"]).find(["a b c d"]))
    assert list(NearTexts(["a b c d e"]).find(["a b c d e"])) == [(0, 0)]


def test_documents_are_compared_with_earlier_ones() -> None:
    rng = random.Random(2)
    texts = [[rng.choice(WORDS) for _ in range(300)] for _ in range(20)]
    documents = [" ".join(text) for text in texts] + [edited(text, rng) for text in texts[:5]]
    pairs = near_documents(digests([tokens(text) for text in documents])).tolist()
    found = [[one, other] for one, other in pairs if same_words(tokens(documents[one]), tokens(documents[other]))]
    assert found == [[n, 20 + n] for n in range(5)]
    assert not len(near_documents(np.zeros((0, 63), dtype=np.uint32)))
