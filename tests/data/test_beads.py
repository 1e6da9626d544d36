"""Segments that do not match one to one, from the file to the batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scaleformer.data.batching import collate, make_example
from scaleformer.data.cutting import SOURCE, TARGET, Cutting, make_plan
from scaleformer.data.encoded import EncodedCorpus, encode_documents, merge_encoded, open_encoded, write_encoded
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.formats.json_lines import parse_document
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document, from_parts
from scaleformer.vocabulary import SEP, SEP0, SEP2, SEP3, consumed, separators
from tests.data.toy import random_corpus

BEADS = ((1, 1), (2, 1), (1, 2), (0, 1), (1, 0), (2, 2), (5, 1))
DOCUMENT = Document(
    "d", tuple(f"s{n}" for n in range(12)), tuple(f"t{n}" for n in range(8)), beads=BEADS
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([*DOCUMENT.source, *DOCUMENT.target] * 3, 286)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (1, 1, [(SEP,)]),
        (2, 1, [(SEP2,)]),
        (3, 1, [(SEP3,)]),
        (1, 2, [(SEP0,), (SEP,)]),
        (0, 1, [(SEP0,)]),
        (1, 0, [(SEP,)]),
        (2, 2, [(SEP,), (SEP,)]),
        (3, 2, [(SEP,), (SEP2,)]),
        (5, 1, [(SEP3, SEP2)]),
        (8, 2, [(SEP3, SEP), (SEP3, SEP)]),
    ],
)
def test_separators_spread_the_source_over_the_target(source, target, expected) -> None:
    assert separators(source, target) == tuple(expected)


def test_beads_round_trip_through_json_and_encoding(tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert parse_document(DOCUMENT.to_json(), "f:1") == DOCUMENT
    plain = Document("p", ("a", "b"), ("c", "d"))
    assert "beads" not in plain.to_json()
    assert parse_document(json.dumps(json.loads(plain.to_json()) | {"beads": [[1, 1], [1, 1]]}), "f:1") == plain
    corpus = encode_documents([DOCUMENT, plain], tokenizer, tokenizer)
    assert corpus.segments == 9
    assert corpus.single.tolist() == [True, False, False, True, True, False, False, True, True]
    for number, folder in enumerate((tmp_path / "a", tmp_path / "b", tmp_path / "whole")):
        folder.mkdir()
        if number < 2:
            write_encoded(encode_documents([(DOCUMENT, plain)[number]], tokenizer, tokenizer), folder)
    merge_encoded([tmp_path / "a", tmp_path / "b"], tmp_path / "whole")
    kept = open_encoded(tmp_path / "whole", tokenizer, tokenizer)
    for name in ("source", "target", "source_offsets", "target_offsets", "documents", "single"):
        assert getattr(kept, name).tolist() == getattr(corpus, name).tolist()
    example = make_example(corpus, np.arange(7))
    assert tokenizer.decode_segments(example.source.tolist()) == list(DOCUMENT.source)
    assert tokenizer.decode_counted(example.target.tolist()) == [
        ("t0", 1), ("t1", 2), ("t2", 0), ("t3", 1), ("t4", 0), ("", 1), ("t5", 1), ("t6", 1), ("t7", 3), ("", 2),
    ]  # fmt: skip
    batch = collate([example])
    assert int(batch.target_segments.max()) == len(DOCUMENT.source)


@pytest.mark.parametrize(
    ("beads", "message"),
    [
        ([[1, 1]], "its beads hold 1 source and 1 target segments, the document has 2 and 1"),
        ([[2, 1], [0, 0]], r"bead 1 is \[0, 0\]: leave it out"),
        ([[2, 1, 0]], r"bead 0 is \[2, 1, 0\]: wanted \[source segments, target segments\]"),
        ([[2, -1]], r"bead 0 is \[2, -1\]"),
        ("all", "'beads' is not a list"),
        (None, "2 source segments and 1 target segments: align them one to one, or"),
    ],
)
def test_wrong_beads_are_named(beads, message) -> None:
    record = {"id": "d", "source": ["a", "b"], "target": ["c"]} | ({} if beads is None else {"beads": beads})
    with pytest.raises(DataError, match=message):
        parse_document(json.dumps(record), "f:1")


def rebuilt(corpus: EncodedCorpus, segments: np.ndarray, left_out: np.ndarray) -> tuple[list[list[int]], ...]:
    """Words of the source segments, and of the target segments with what each consumes, by hand."""
    sides: tuple[list[list[int]], ...] = ([], [])
    for side, (tokens, offsets) in enumerate(
        ((corpus.source, corpus.source_offsets), (corpus.target, corpus.target_offsets))
    ):
        words: list[int] = []
        ended = 0
        for place, segment in enumerate(segments):
            words += tokens[offsets[segment] : offsets[segment + 1] - 1].tolist()
            ended += not left_out[place] & SOURCE
            if not left_out[place] & (SOURCE, TARGET)[side]:
                sides[side].append([*words, *([] if side == 0 else [ended])])
                words, ended = [], 0
    return sides


@pytest.mark.parametrize("cutting", [Cutting(60, drop_separators=0.6), Cutting(60, merge_segments=0.7)], ids=str)
@pytest.mark.parametrize("both", [False, True])
def test_omissions_are_counted(cutting: Cutting, both: bool) -> None:
    corpus = random_corpus(3, documents=40, tokens=8)
    if both:
        cutting = replace(cutting, drop_separators=0.5, merge_segments=0.4)
    plan = make_plan(corpus, cutting, np.random.default_rng(1))
    merged = 0
    for number in range(len(plan)):
        segments, left_out = plan.part(number)
        example = make_example(corpus, segments, left_out)
        assert len(example.source) == plan.source_lengths[number]
        assert len(example.target) == plan.target_lengths[number]
        source, target = rebuilt(corpus, segments, left_out)
        found: list[list[int]] = []
        words: list[int] = []
        for token in example.target[:-1].tolist():
            if SEP <= token <= SEP3:
                found.append([*words, {SEP0: 0, SEP: 1, SEP2: 2, SEP3: 3}[token]])
                words = []
            else:
                words.append(token)
        assert found == target
        assert not words
        assert sum(row[-1] for row in found) == len(source) == example.source.tolist().count(SEP)
        assert collate([example]).target_segments[0, -1] == len(source)
        merged += int((left_out == SOURCE | TARGET).sum())
    assert set(np.unique(plan.left_out)) >= ({SOURCE | TARGET} if cutting.merge_segments else {SOURCE, TARGET})
    assert (merged > 0) == (cutting.merge_segments > 0)


def test_separators_of_beads_are_left_alone(tokenizer: Tokenizer) -> None:
    """But for the source's: a bead can lose the end of its source, and consumes one segment less."""
    corpus = encode_documents([replace(DOCUMENT, id=str(n)) for n in range(30)], tokenizer, tokenizer)
    plan = make_plan(corpus, Cutting(500, drop_separators=0.9), np.random.default_rng(0))
    assert set(plan.left_out[np.arange(len(plan.order)) % 7 == 1]) == {0, SOURCE}
    for number in range(len(plan)):
        example = make_example(corpus, *plan.part(number))
        steps = consumed(collate([example]).target_output)
        assert int(steps.sum()) == example.source.tolist().count(SEP)
        assert len(example.target) == plan.target_lengths[number]


def test_documents_are_rebuilt_from_their_parts() -> None:
    assert from_parts(DOCUMENT.id, DOCUMENT.parts()) == DOCUMENT
    plain = Document("p", ("a", "b"), ("c", "d"))
    assert from_parts("p", plain.parts()) == plain
