"""Segments that do not match one to one, from the file to the batch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from scaleformer.data.batching import collate, make_example
from scaleformer.data.encoded import encode_documents, merge_encoded, open_encoded, write_encoded
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.formats.json_lines import parse_document
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document, from_parts
from scaleformer.vocabulary import SEP, SEP0, SEP2, SEP3, separators

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


def test_documents_are_rebuilt_from_their_parts() -> None:
    assert from_parts(DOCUMENT.id, DOCUMENT.parts()) == DOCUMENT
    plain = Document("p", ("a", "b"), ("c", "d"))
    assert from_parts("p", plain.parts()) == plain
