"""The part of a corpus that a tokenizer is trained on."""

from __future__ import annotations

import math

import pytest

from scaleformer.data.tokenizer_text import TokenizerText
from scaleformer.text.documents import Document


def lines(documents: int, segments: int) -> list[Document]:
    """Documents whose segments are numbered through."""
    numbers = [range(d * segments, (d + 1) * segments) for d in range(documents)]
    return [Document(str(n[0]), tuple(f"s{i}" for i in n), tuple(f"t{i}" for i in n)) for n in numbers]


@pytest.mark.parametrize(("documents", "segments"), [(250, 1), (400, 2), (80, 5), (1, 333)])
@pytest.mark.parametrize("limit", [100, 57, 2])
def test_a_part_has_both_sides_of_segments_from_everywhere(documents: int, segments: int, limit: int) -> None:
    texts = list(TokenizerText(lines(documents, segments), ("source", "target"), limit))
    assert limit / 4 < len(texts) <= limit
    stride = math.ceil(documents * segments / (limit // 2))
    sources, targets = ([int(text[1:]) for text in texts if text[0] == side] for side in "st")
    assert sources == targets
    assert [number // stride for number in sources] == list(range(len(sources)))


def test_a_part_has_not_only_first_segments() -> None:
    """Documents of ten segments, one in ten: all places in a document are there."""
    texts = list(TokenizerText(lines(1000, 10), ("source",), 1000))
    assert len(texts) == 1000
    places = [int(text[1:]) % 10 for text in texts]
    assert all(60 < places.count(place) < 140 for place in range(10))


def test_one_side_keeps_the_limit() -> None:
    texts = list(TokenizerText(lines(50, 2), ("target",), 30))
    assert [int(text[1:]) // 4 for text in texts] == list(range(25))
    assert {text[0] for text in texts} == {"t"}


def test_every_reading_is_the_same() -> None:
    text = TokenizerText(lines(50, 2), ("source", "target"), 30)
    assert list(text) == list(text)


def test_a_small_text_is_taken_whole_and_in_order() -> None:
    documents = lines(5, 2)
    whole = [text for d in documents for text in (*d.source, *d.target)]
    for limit in (20, 21, 0):
        assert list(TokenizerText(documents, ("source", "target"), limit)) == whole


def test_no_text() -> None:
    assert list(TokenizerText([], ("source",), 10)) == []
    assert list(TokenizerText([Document("empty", (), ())], ("source",), 10)) == []
