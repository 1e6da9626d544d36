"""Test sets of sacrebleu, from files in its cache folder: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS, FakeSGMLDataset, PlainTextDataset

from scaleformer.data.prepare import prepare
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.formats.testsets import read_test_set
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document

SOURCE = '<doc docid="a" genre="news">\n<seg id="1">one</seg>\n<seg id="2">two  words</seg>\n</doc>\n' + (
    '<doc docid="b" genre="news">\n<seg id="1">three</seg>\n</doc>\n'
)
DOCUMENTS = [Document("a", ("one", "two words"), ("uno", "dos palabras")), Document("b", ("three",), ("tres",))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """sacrebleu's own folder, with a set of two documents and one that names none."""
    monkeypatch.setattr("sacrebleu.dataset.base.SACREBLEU_DIR", str(tmp_path))
    archive = ["file:///nowhere/tiny.tgz"]
    tiny = FakeSGMLDataset("tiny", data=archive, langpairs={"en-es": ["source.sgm", "target.sgm"]})
    lines = PlainTextDataset("lines", data=archive, langpairs={"en-es": ["source.txt", "target.txt"]})
    for test_set in (tiny, lines):
        monkeypatch.setitem(DATASETS, test_set.name, test_set)
        raw = tmp_path / test_set.name / "raw"
        raw.mkdir(parents=True)
        (raw / f"{test_set.name}.tiny.tgz").write_bytes(b"fetched before")
        target = SOURCE.replace("one", "uno").replace("two  words", "dos palabras").replace("three", "tres")
        for name, text in (
            ("source.sgm", SOURCE),
            ("target.sgm", target),
            ("source.txt", "a\n"),
            ("target.txt", "x\n"),
        ):
            (raw / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_documents_are_those_of_the_set() -> None:
    assert list(read_test_set("tiny:en-es")) == DOCUMENTS


def test_a_set_is_prepared(folder: Path) -> None:
    report = prepare(PrepareConfig("sacrebleu", "tiny:en-es", str(folder / "out"), valid=0, test=1))
    assert (report.documents, report.segments) == ({"test": 2}, {"test": 3})
    assert list(read_jsonl(folder / "out" / "test.jsonl.gz")) == DOCUMENTS


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny22:en-es", r"^'tiny22:en-es': wanted a sacrebleu test set .* and a language pair, such as wmt22:en-de"),
        ("tiny", "'tiny': tiny has no language pair ''; choose from en-es"),
        ("tiny:es-en", "tiny has no language pair 'es-en'; choose from en-es"),
        ("lines:en-es", "lines:en-es: the test set has no document ids"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_faults(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_test_set(name)


def test_a_set_that_sacrebleu_cannot_load_gives_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tiny" / "raw" / "tiny.tiny.tgz").unlink()  # so that sacrebleu downloads it
    with pytest.raises(DataError, match=r"tiny:en-es: sacrebleu cannot load it: .*No such file or directory") as caught:
        read_test_set("tiny:en-es")
    assert "\n" not in str(caught.value)

    def wrong_checksum(*_: object, **__: object) -> None:
        raise SystemExit(1)

    monkeypatch.setattr("sacrebleu.dataset.base.download_file", wrong_checksum)
    with pytest.raises(DataError, match="tiny:en-es: sacrebleu cannot load it: see above"):
        read_test_set("tiny:en-es")
