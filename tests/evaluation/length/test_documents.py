"""The same text at different lengths: every segment once, never too long, named after its origin."""

from __future__ import annotations

import random

import pytest

from scaleformer.evaluation.length.documents import (
    LengthSpec,
    TestText,
    TooLong,
    choose_lengths,
    default_lengths,
    make_length,
    parse_lengths,
    trained_length,
)
from scaleformer.text.documents import Document


class Words:
    """One token per word."""

    def encode_batch(self, texts):
        return [[0] * len(text.split()) for text in texts]


def make_text(seed: int, documents: int = 6) -> TestText:
    generator = random.Random(seed)

    def side(count: int) -> tuple[str, ...]:
        return tuple(" ".join(["w"] * generator.randint(0, 9)) for _ in range(count))

    made = []
    for number in range(documents):
        count = generator.randint(1, 7)
        made.append(Document(f"d{number}", side(count), side(count)))
    return TestText.of(made, Words(), Words())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "spec",
    [LengthSpec("tokens", 12), LengthSpec("tokens", 40), LengthSpec("segments", 3), LengthSpec("document", None)],
    ids=lambda spec: spec.label,
)
def test_every_segment_once_and_as_many_as_fit(spec, seed):
    text = make_text(seed)
    made = make_length(text, spec)
    assert sum((d.source for d in made.documents), ()) == text.source
    assert sum((d.target for d in made.documents), ()) == text.target
    for d, following in zip(made.documents, [*made.documents[1:], None], strict=True):
        words = [sum(len(s.split()) + 1 for s in side) + 1 for side in (d.source, d.target)]
        assert [d.source_tokens, d.target_tokens] == words
        if spec.unit == "tokens":
            assert max(words) <= spec.size or len(d.source) == 1
            if following is not None:  # one more segment would not have fitted
                more = [
                    w + len(s[0].split()) + 1 for w, s in zip(words, (following.source, following.target), strict=True)
                ]
                assert max(more) > spec.size
        elif spec.unit == "segments":
            assert len(d.source) == spec.size or following is None


def test_names_and_counts_by_hand():
    documents = [Document("a", ("w", "w w", "w"), ("w", "w", "w")), Document("b", ("w", "w"), ("w w w w w w w", "w"))]
    text = TestText.of(documents, Words(), Words())
    assert [d.id for d in make_length(text, LengthSpec("segments", 2)).documents] == ["a[0:2]", "a[2]..b[0]", "b[1:2]"]
    assert [d.id for d in make_length(text, LengthSpec("segments", 3)).documents] == ["a", "b"]
    made = make_length(text, LengthSpec("tokens", 7))
    assert [d.id for d in made.documents] == ["a[0:2]", "a[2:3]", "b[0:1]", "b[1:2]"]
    assert made.overlong == 1
    told = made.to_dict()
    assert (told["documents"], told["segments"], told["label"]) == (4, 5, "7-tokens")
    assert told["source_tokens"] == {"mean": (6 + 3 + 3 + 3) / 4, "max": 6}


def test_a_sample_is_seeded_in_order_and_without_the_rest():
    text = make_text(0, documents=12)
    spec = LengthSpec("segments", 4)
    every = make_length(text, spec).documents
    drawn = make_length(text, spec, documents=3, seed=5)
    assert drawn == make_length(text, spec, documents=3, seed=5)
    assert drawn.available == len(every)
    places = [every.index(d) for d in drawn.documents]
    assert places == sorted(places)
    assert len(places) == 3
    assert all(len(make_length(text, spec, 3, seed).documents[-1].source) == 4 for seed in range(20))
    assert make_length(text, spec, documents=100).documents == every


def test_lengths_beyond_the_text_are_refused_or_left_out():
    text = make_text(1)
    specs = [LengthSpec("segments", len(text) + 1), LengthSpec("tokens", 10_000), LengthSpec("segments", 1)]
    with pytest.raises(TooLong, match=f"{len(text) + 1} segments: longer than all test documents together"):
        choose_lengths(text, specs, strict=True)
    sets, left_out = choose_lengths(text, [*specs, LengthSpec("segments", len(text))], strict=False)
    assert [s.spec.label for s in sets] == ["segment", f"{len(text)}-segments"]
    assert [entry["label"] for entry in left_out] == [f"{len(text) + 1}-segments", "10000-tokens"]


def test_equal_sets_are_merged():
    text = TestText.of([Document(f"d{i}", ("w",), ("w",)) for i in range(4)], Words(), Words())
    specs = [LengthSpec("segments", 1), LengthSpec("document", None), LengthSpec("segments", 2)]
    for documents in (None, 1):
        sets, left_out = choose_lengths(text, specs, strict=True, documents=documents)
        assert [s.spec.label for s in sets] == ["segment", "2-segments"]
        assert left_out == [{"label": "whole", "reason": "the same documents as segment"}]


def test_lengths_of_a_run():
    assert trained_length({"data": {"max_tokens": 512}}) == ("tokens", 512)
    assert trained_length({"data": {"max_tokens": 512, "join_segments": [1, 8]}}) == ("segments", 8)
    assert trained_length({}) is None
    labels = [spec.label for spec in default_lengths(("tokens", 512))]
    assert labels == ["segment", *(f"{n}-tokens" for n in (128, 256, 512, 1024, 2048, 4096, 8192)), "whole"]
    assert [spec.times for spec in default_lengths(("tokens", 512))[1:4]] == [0.25, 0.5, 1]
    assert [spec.label for spec in default_lengths(("segments", 2))][:3] == ["segment", "2-segments", "4-segments"]


def test_parsing_lengths():
    specs = parse_lengths([256, "whole", "segment", 256], [1, 8], ("segments", 8))
    assert [spec.label for spec in specs] == ["256-tokens", "whole", "segment", "8-segments"]
    assert [spec.times for spec in specs] == [None, None, None, 1.0]
    assert parse_lengths(None, 100, None) == [LengthSpec("segments", 100)]
    for lengths, segments in ((["long"], None), ([2], None), ([True], None), (None, [0]), ([2.5], None)):
        with pytest.raises(ValueError, match="each must be an int of at least"):
            parse_lengths(lengths, segments, None)


def test_documents_that_are_not_aligned():
    with pytest.raises(ValueError, match="'x' has 2 source segments and 1 target segments"):
        TestText.of([Document("x", ("a", "b"), ("c",))], Words(), Words())
    with pytest.raises(ValueError, match="no test documents"):
        TestText.of([], Words(), Words())
