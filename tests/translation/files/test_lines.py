"""Documents in files and pipes: reading, and writing in the form of the input."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from scaleformer.formats.lines import Input
from scaleformer.system.errors import DataError
from scaleformer.translation.files.lines import (
    LinesFile,
    choose_format,
    choose_output_format,
    read_documents,
    translation_writer,
    write_translations,
)
from scaleformer.translation.translations import DocumentHypothesis, Translation


def unchanged(file: LinesFile) -> str:
    """The output of a translator that changes nothing."""
    out = io.StringIO()
    found = [Translation((DocumentHypothesis(d.source, 0.0, 0.0, True),), 1, 1) for d in file.documents]
    write_translations(out, file, found)
    return out.getvalue()


@pytest.mark.parametrize("text", ["a\n", "\n\na\nb\n\n\nc\n\n", " \n\n", "\n"], ids=["one", "gaps", "blanks", "blank"])
def test_text_keeps_its_shape(tmp_path: Path, text: str) -> None:
    path = tmp_path / "in.txt"
    path.write_text(text)
    for boundaries in ("file", "blank", "lines"):
        assert unchanged(read_documents(Input(str(path)), "text", boundaries)) == text.replace(" ", "")


@pytest.mark.parametrize(
    ("boundaries", "ids", "expected", "counts"),
    [
        ("file", None, {"in:2": ["a", "b", "c", "d"]}, "1 document, 4 segments"),
        ("blank", None, {"in:2": ["a", "b"], "in:5": ["c", "d"]}, "2 documents, 4 segments"),
        ("lines", None, {"in:2": ["a"], "in:3": ["b"], "in:5": ["c"], "in:6": ["d"]}, "4 documents, 4 segments"),
        ("ids", "x\nx\ny\ny\ny\nz\n", {"x": ["a"], "y": ["b", "c"], "z": ["d"]}, "3 documents, 4 segments"),
    ],
)
def test_what_a_document_of_text_is(tmp_path, monkeypatch, boundaries, ids, expected, counts) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("\na\nb\n\nc\nd\n")
    if ids is not None:
        Path("ids").write_text(ids)
    file = read_documents(Input("in"), "text", boundaries, None if ids is None else "ids")
    assert {d.id: list(d.source) for d in file.documents} == expected
    assert file.counts() == counts
    assert [place for document in file.documents for place in document.where] == [
        "in:2",
        "in:3",
        "in:5",
        "in:6",
    ]
    assert unchanged(file) == "\na\nb\n\nc\nd\n"


@pytest.mark.parametrize(
    ("boundaries", "ids", "message"),
    [
        ("ids", None, "belong together"),
        ("file", "x\n", "belong together"),
        ("ids", "x\n", "ids: ends before line 2 of in"),
        ("ids", "x\nx\nx\n", "ids:3: in ends before this line"),
    ],
)
def test_boundaries_that_do_not_fit(tmp_path, monkeypatch, boundaries, ids, message) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("a\nb\n")
    Path("ids").write_text(ids or "")
    with pytest.raises(ValueError, match=message):
        read_documents(Input("in"), "text", boundaries, None if ids is None else "ids")


def test_ids_of_one_document_stand_together(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").write_text("a\nb\nc\n")
    Path("ids").write_text("x\ny\nx\n")
    with pytest.raises(DataError, match="ids:3: document 'x' began earlier"):
        read_documents(Input("in"), "text", "ids", "ids")


def test_json_lines_to_translate_need_no_id(tmp_path) -> None:
    (tmp_path / "in").write_text('{"source": ["a"]}\n{"id": "b", "source": ["c"]}\n')
    file = read_documents(Input(str(tmp_path / "in")), "jsonl")
    assert [d.id for d in file.documents] == [f"{tmp_path / 'in'}:1", "b"]
    assert not any(d.where for d in file.documents)


@pytest.mark.parametrize(
    ("asked", "name", "read", "chosen"),
    [
        ("auto", "out.jsonl.gz", "text", "jsonl"),
        ("auto", "out.txt", "text", "text"),
        ("auto", "-", "jsonl", "jsonl"),
        ("jsonl", "out.txt", "text", "jsonl"),
        ("text", "out.jsonl", "text", "text"),
    ],
)
def test_the_output_has_the_format_asked_for(asked: str, name: str, read: str, chosen: str) -> None:
    assert choose_output_format(asked, name, read) == chosen


@pytest.mark.parametrize(
    ("asked", "name", "message"),
    [
        ("text", "out", "JSON Lines input needs JSON Lines output"),
        ("auto", "out.docx", "output=out.docx: a Word document .docx. cannot be written"),
    ],
)
def test_an_output_that_cannot_be_is_named(asked: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose_output_format(asked, name, "jsonl")


def test_a_list_of_one_is_a_list(tmp_path: Path) -> None:
    """A beam may find fewer hypotheses than n_best; score.py needs lists for all documents or none."""
    (tmp_path / "in").write_text("a\n\nb\n")
    source, found, out = read_documents(Input(str(tmp_path / "in")), "text", "blank"), [], io.StringIO()
    for count in (1, 2):
        found.append(Translation((DocumentHypothesis(("c",), -1.0, -1.0, True),) * count, 1, 1))
    write_translations(out, source, found, "jsonl", lists=True)
    assert [len(json.loads(line)["n_best"]) for line in out.getvalue().splitlines()] == [1, 2]


@pytest.mark.parametrize("format", ["text", "jsonl"])
def test_no_line_is_an_error(tmp_path: Path, format: str) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"")
    with pytest.raises(DataError, match="in: no documents"):
        read_documents(Input(str(path)), format)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"a\n\xff\n", "stdin:2: not UTF-8"), (b"", "stdin: no documents")],
    ids=["encoding", "empty"],
)
def test_stdin_faults(monkeypatch: pytest.MonkeyPatch, data: bytes, message: str) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    with pytest.raises(DataError, match=message):
        read_documents(Input("-"), "text")


TWO_MEMBERS = gzip.compress(b"a\n", mtime=0) + gzip.compress(b"b\n", mtime=0)


@pytest.mark.parametrize("data", [gzip.compress(b"a\nb\n", mtime=0), TWO_MEMBERS], ids=["one", "two"])
def test_stdin_may_be_compressed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    give(monkeypatch, data)
    assert read_documents(Input("-"), "text").documents[0].source == ("a", "b")


def test_compressed_stdin_that_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, TWO_MEMBERS[:-4])
    with pytest.raises(DataError, match=r"stdin:3: the compressed file is truncated"):
        read_documents(Input("-"), "text")


def give(monkeypatch: pytest.MonkeyPatch, data: bytes) -> io.BufferedReader:
    stdin = io.BufferedReader(io.BytesIO(data))  # type: ignore[type-var]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=stdin))
    return stdin


def test_stdout_is_utf8_whatever_the_locale_says(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    with translation_writer("-") as file:
        file.write("日本\n")
    assert written.getvalue() == "日本\n".encode()


class Slow(io.RawIOBase):
    """A pipe with a slow writer: one byte per read."""

    def __init__(self, data: bytes) -> None:
        self.data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        byte = self.data.read(1)
        buffer[: len(byte)] = byte
        return len(byte)


@pytest.mark.parametrize("stream", [io.BytesIO, Slow])
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"id": "a", "source": ["b"]}\n', "jsonl"),
        (b'\xef\xbb\xbf { "source": ["b"]}\n', "jsonl"),
        (b"{a} brace\n", "text"),
        (b'"source": text\n', "text"),
        (b"", "text"),
        (b'{"lang": "de", "source": ["b"]}\n', "jsonl"),
        (gzip.compress(b'{"id": "a", "source": ["b"]}\n', mtime=0), "jsonl"),
        (gzip.compress(b"text", mtime=0), "text"),
        (b"\x1f\x8b no gzip", "text"),
    ],
)
def test_stdin_is_known_by_its_beginning(monkeypatch, data: bytes, expected: str, stream) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(stream(data))))
    assert choose_format("auto", Input("-")) == expected


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_is_looked_at_and_read(tmp_path: Path, packed: bool) -> None:
    line = b'{"id": "a", "source": ["b"]}\n'
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(gzip.compress(line) if packed else line))
    writer.start()
    source = Input(str(tmp_path / "pipe"))
    writer.join()
    assert choose_format("auto", source) == "jsonl"
    assert [d.id for d in read_documents(source, "jsonl").documents] == ["a"]


def test_a_closed_stdin_is_named(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="stdin is closed"):
        Input("-")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", '\n{"lang": "de", "source": ["b"]}\n', "jsonl"),
        ("a.txt", "{a} brace\n", "text"),
        ("a.txt", "", "text"),
        ("A.JSONL", "", "jsonl"),
        ("a.ndjson.gz", "", "jsonl"),
    ],
)
def test_files_are_known_by_beginning_or_name(tmp_path: Path, name: str, text: str, expected: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert choose_format("auto", Input(str(path))) == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.docx",
            b"PK\x03\x04...word/document.xml",
            r"docx: a Word document .docx., wanted text .* or JSON Lines$",
        ),
        ("a", b"source,target\none,uno\n", r"a: comma-separated values .CSV., .*; format=text reads it"),
        ("a.md", b"Words.\n", "a.md: Markdown, wanted text"),
    ],
)
def test_what_is_recognised_is_refused_by_its_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    source = Input(str(tmp_path / name))
    with pytest.raises(ValueError, match=message):
        choose_format("auto", source)
    assert choose_format("text", source) == "text"
