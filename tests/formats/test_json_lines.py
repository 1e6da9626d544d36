"""Translations as a corpus: what becomes a document, what is left out, and a corpus from them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from scaleformer.data.prepare import prepare
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.formats.json_lines import read_jsonl, read_translations
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document

RECORDS = [
    {"id": "a", "source": ["uno", "dos"], "hypothesis": ["one", "two"], "finished": True, "score": -1.0},
    {"id": "b", "source": ["tres"], "hypothesis": ["three"], "finished": False},
    {"id": "c", "source": ["cuatro"], "hypothesis": ["four", "more"], "finished": True},
    {"id": "d", "source": ["cinco", "seis"], "hypothesis": ["five five", "six"], "finished": False, "cut": [0]},
    {"id": "e", "source": ["siete"], "hypothesis": ["seven seven"], "finished": False, "cut": [0]},
]
KEPT = [Document("a", ("one", "two"), ("uno", "dos")), Document("d", ("six",), ("seis",))]


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_the_translation_becomes_the_source(tmp_path: Path) -> None:
    path, dropped, segments = write(tmp_path / "back.jsonl", *map(json.dumps, RECORDS)), Counter[str](), Counter[str]()
    assert list(read_translations(path, "source", dropped, segments)) == KEPT
    assert dropped == {"cut by the length limit": 2, "another number of segments": 1}
    assert segments == {"cut by the length limit": 1}


def test_cut_segments_that_do_not_exist_are_not_counted(tmp_path: Path) -> None:
    for cut in ([9], 5, None):
        record = {"id": "a", "source": ["uno"], "hypothesis": ["one"], "finished": True, "cut": cut}
        path, segments = write(tmp_path / "back.jsonl", json.dumps(record)), Counter[str]()
        assert list(read_translations(path, "target", Counter(), segments)) == [Document("a", ("uno",), ("one",))]
        assert not +segments


def test_the_report_names_the_model_of_translations(tmp_path: Path) -> None:
    path = write(tmp_path / "back.jsonl", *map(json.dumps, RECORDS))
    config = PrepareConfig("translations", str(path), str(tmp_path / "out"), valid=0, test=0)
    report = prepare(config, translated_by="abc")
    assert report.documents["train"] == 2
    assert list(read_jsonl(tmp_path / "out" / "train.jsonl.gz")) == KEPT
    assert json.loads((tmp_path / "out" / "report.json").read_text())["translated_by"] == "abc"


def test_a_student_has_the_translations_as_targets(tmp_path: Path) -> None:
    failed = {"id": "f", "source": ["ocho", "nueve", "diez"], "hypothesis": ["eight", " ", "ten"], "finished": True}
    path = write(tmp_path / "taught.jsonl", *map(json.dumps, [*RECORDS, failed]))
    config = PrepareConfig("translations", str(path), str(tmp_path / "out"), valid=0, test=0, side="target")
    report = prepare(config, translated_by="abc")
    taught = [Document(one.id, one.target, one.source) for one in KEPT]
    taught.append(Document("f", ("ocho", "diez"), ("eight", "ten")))
    assert list(read_jsonl(tmp_path / "out" / "train.jsonl.gz")) == taught
    assert report.dropped_segments == {"cut by the length limit": 1, "empty": 1}
    assert report.dropped_documents == {"cut by the length limit": 2, "another number of segments": 1}
    assert json.loads((tmp_path / "out" / "report.json").read_text())["settings"]["side"] == "target"
    with pytest.raises(ValueError, match=r"side is 'target': only format=translations reads it, not jsonl"):
        PrepareConfig("jsonl", str(path), str(tmp_path / "out"), side="target")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "a", "source": ["x"]}', "no 'hypothesis'"),
        ("[1]", "a JSON list, wanted an object with id, source, hypothesis, finished"),
        ('{"id": ', "malformed JSON"),
        ('{"id": "a", "source": null, "hypothesis": ["x"], "finished": true}', "'source' is NoneType, wanted a list"),
        ('{"id": "a", "source": ["x"], "hypothesis": "x", "finished": true}', "'hypothesis' is str, wanted a list"),
        ('{"id": "a", "source": ["x", 1], "hypothesis": [], "finished": true}', r"source\[1\] is int, wanted a string"),
        (
            '{"id": "a", "source": ["\\ud800"], "hypothesis": ["x"], "finished": true}',
            "document 'a' has a lone surrogate",
        ),
    ],
)
def test_lines_that_are_not_translations_are_refused(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "back.jsonl", json.dumps(RECORDS[0]), line)
    with pytest.raises(DataError, match=f"back.jsonl:2: {message}"):
        list(read_translations(path, "source", Counter(), Counter()))
