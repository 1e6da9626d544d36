"""Formats are recognised by content, then by name, then by the look of the lines."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scaleformer.formats.bitexts import Bitext, read_bitext
from scaleformer.formats.folders import find_files, report_others
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.formats.lines import Input, read_lines
from scaleformer.formats.recognition import FORMATS, recognise, refusal
from scaleformer.formats.text_pairs import read_text_pair
from scaleformer.system.errors import DataError
from tests.books import book
from tests.formats.slides import presentation
from tests.formats.test_odf import packed_odf
from tests.formats.test_xlsx import workbook


def docx() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", "<w:document/>")
    return file.getvalue()


def parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"source": ["a"]}), file)
    return file.getvalue()


XML = b'<?xml version="1.0" encoding="utf-8"?>\n<!-- made by a tool -->\n'
BY_CONTENT = {
    "jsonl": b'{"id": "a", "source": ["b"]}\n',
    "json": b'[\n  {"id": "a"}\n]\n',
    "html": b"\n<!DOCTYPE html>\n<html><body>Words.</body></html>\n",
    "xliff": XML + b'<xliff version="1.2"><file/></xliff>',
    "tmx": XML + b'<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><body/></tmx>',
    "xml": XML + b"<dataset><doc/></dataset>",
    "po": b'# Spanish\n#, fuzzy\nmsgid ""\nmsgstr ""\n"Language: es\\n"\n',
    "srt": b"1\r\n00:00:01,000 --> 00:00:02,500\r\nHello.\r\n",
    "vtt": b"WEBVTT\n\n00:01.000 --> 00:02.000\nHello.\n",
    "docx": docx(),
    "pptx": presentation("<p:cSld/>"),
    "odf": packed_odf(""),
    "xlsx": workbook(""),
    "epub": book(),
    "parquet": parquet(),
    "pdf": b"%PDF-1.7\n",
    "rtf": rb"{\rtf1\ansi Words.}",
    "utf16": "text\n".encode("utf-16"),
}
BY_LOOK = {
    "tsv": b"id\tsource\ttarget\na\tone\tuno\n",
    "csv": b'source,target\n"One, two",uno\n',
    "markdown": b"# Manual\n\nSee [the page](page.html).\n",
}


@pytest.mark.parametrize("name", ["", "stdin", "a.txt", "a.jsonl"])
@pytest.mark.parametrize("format", BY_CONTENT)
def test_content_decides(format: str, name: str) -> None:
    assert recognise(BY_CONTENT[format], name).name == format


@pytest.mark.parametrize("format", BY_LOOK)
def test_lines_decide_if_nothing_else_does(format: str) -> None:
    assert recognise(BY_LOOK[format], "/dev/fd/63").name == format
    assert recognise(BY_LOOK[format], "a.txt").name == "text"


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.md", "markdown"),
        ("a.MDX", "markdown"),
        ("A.CSV.gz", "csv"),
        ("a.b.xlf", "xliff"),
        ("a.po", "po"),
        ("a.en", "text"),
        ("md", "text"),
        ("a.rst", "rst"),
        ("a.adoc", "asciidoc"),
        ("a.tex", "latex"),
        ("a.yml", "yaml"),
    ],
)
def test_names(name: str, format: str) -> None:
    assert recognise(b"Words.\n", name).name == format


@pytest.mark.parametrize(
    "text",
    [
        "Hello, world.\nWell, yes.\n",
        "1,000\n",
        "Words.\n\nWords, too.\n",
        "\tindented\n\tindented\n",
        "# a\n# b\n",
        "a\tb\nc\n",
        "<sep> is a token\n<b>Bold.</b>\n",
        "[1] a note\n[2] another\n",
        "{a} brace\n",
        "msgid is a word\n",
        "",
    ],
)
def test_text_is_text(text: str) -> None:
    assert recognise(text.encode(), "").name == "text"


def test_compressed_files_are_unpacked_to_recognise_them(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(BY_CONTENT["tmx"]))
    assert recognise(Input(str(path)).begin, "a").name == "tmx"


@pytest.mark.parametrize("format", ["docx", "parquet", "pdf", "utf16"])
def test_line_readers_refuse_binary_formats(tmp_path: Path, format: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(BY_CONTENT[format])
    with pytest.raises(DataError, match=r"a.txt: .*wanted text$"):
        list(read_lines(path))


def test_corpus_readers_name_the_format_they_get(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(BY_CONTENT["tmx"])
    with pytest.raises(DataError, match=r"a: a translation memory .TMX., wanted JSON Lines"):
        list(read_jsonl(path))
    with pytest.raises(DataError, match=r"a: a translation memory .TMX., wanted text, one segment per line"):
        list(read_text_pair(path, path))
    path.write_bytes(BY_CONTENT["json"])
    with pytest.raises(DataError, match=r"a: a single JSON value .*, wanted JSON Lines"):
        list(read_jsonl(path))
    with pytest.raises(DataError, match=r"wanted tab-separated values"):
        list(read_bitext(Bitext("tsv", str(path)), Counter()))
    path.write_bytes(BY_CONTENT["jsonl"])
    assert len(list(read_text_pair(path, path))) == 1  # such lines may be for translation


@pytest.mark.parametrize("packed", [False, True])
def test_lone_carriage_returns_end_lines(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "a.txt"

    def lines(content: bytes) -> list[str]:
        path.write_bytes(gzip.compress(content) if packed else content)
        return [line for _, line in read_lines(path)]

    assert lines("uno\rdós\r\rtres".encode()) == ["uno", "dós", "", "tres"]
    assert lines(b"one\r\ntwo\r\n") == ["one", "two"]
    assert lines(b"one\rmore\ntwo\n") == ["one\rmore", "two"]  # a pair of files stays aligned


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_the_first_line_may_exceed_the_look_ahead(tmp_path: Path, packed: bool) -> None:
    long = "word " * 20_000
    for text, wanted in (
        (f"{long}\rb\rc\r", [long, "b", "c"]),
        (f"{long}\rb\nc\n", [f"{long}\rb", "c"]),
        (f"{long}\r\nb", [long, "b"]),
        (long, [long]),
    ):
        path = tmp_path / "a"
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
        assert [line for _, line in read_lines(path)] == wanted


def test_a_carriage_return_within_a_line_is_a_space_of_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{\r"id": "d", "source": ["a"], "target": ["b"]}\n')
    assert [document.id for document in read_jsonl(path)] == ["d"]


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.json", b'{"id": "a", "source": ["b"]}\n', "jsonl"),
        ("a.json", b'{"name": "app", "version": "1"}\n', "json"),
        ("a.arb.json", b'{\n  "hello": "Hello"\n}\n', "json"),
        ("a.ipynb", b'{\n "cells": []\n}\n', "notebook"),
        ("a.resx", XML + b"<root/>", "resx"),
        ("a.xml", XML + b"<root/>", "xml"),
        ("a.xcstrings", b'{\n  "sourceLanguage" : "en",\n', "catalog"),
        ("a.ts", XML + b"<!DOCTYPE TS>\n<TS version='2.1'/>", "qt"),
        ("a.dfxp", XML + b'<tt xml:lang="en"/>', "ttml"),
        ("a.docx", b"PK\x03\x04" + bytes(99), "docx"),
        ("a.odp", b"PK\x03\x04" + bytes(99), "odf"),
        ("a.strings", '"a" = "b";\n'.encode("utf-16"), "utf16"),
        ("a.strings", b'"a" = "b";\n', "strings"),
        ("en.arb", b'{"@@locale": "en", "a": "A"}\n', "arb"),
        ("a.xml", XML + b"<!-- c --><resources/>", "android"),
        ("a.ts", b"export const a = 1;\n", "unknown"),
        ("a.properties", b"a.b = Words.\n", "properties"),
        ("a.ass", b"[Script Info]\n", "ass"),
        ("a", b"0:00:00.599,0:00:04.160\nWords.\n", "sbv"),
        ("a.cfg", b"# Manual\n\nSee [the page](page.html).\n", "unknown"),
        ("a.ts", b"let a = 1\n", "unknown"),
        ("a.pt_BR", b"Words.\n", "text"),
        ("Chapter 1. The cat", b"Words.\n", "text"),
    ],
)
def test_what_is_not_read_is_known_by_its_name(name: str, content: bytes, format: str) -> None:
    assert recognise(content, name).name == format


def test_every_refusal_says_what_to_do() -> None:
    for format in FORMATS.values():
        if format.name not in ("xz", "bzip2", "zstd"):
            assert format.is_read or re.search(r"\(.+\)", format.title), format.name
    assert refusal(FORMATS["tmx"], "translated").endswith(
        "cannot be translated: `scaleformer prepare format=tmx` reads it"
    )
    assert refusal(recognise(b"", "a.xyz"), "translated") == (
        "a file of unknown format (.xyz) cannot be translated: if each line is text, name it .txt; alone, it needs "
        "format=text"
    )


def test_folders_are_searched_alike(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {"a.md": "", "b.json": '{"a": 1}', "c.json": '{"source": ["x"]}', "d.rtf": "", ".e.md": ""}
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "link").symlink_to(tmp_path)
    others: Counter[str] = Counter()
    assert [path.name for path in find_files(tmp_path, ("markdown", "jsonl"), others)] == ["a.md", "c.json"]
    assert others == {".json": 1, ".rtf": 1}
    assert "link: a link to a folder, which is not followed" in caplog.text
    report_others(others)
    assert "1 .rtf, rich text (save it as docx, as with `soffice --convert-to docx`)" in caplog.text


def test_strings_in_a_folder_of_a_language_and_what_is_ours(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "en"
    folder.mkdir()
    (folder / "common.json").write_text('{"a": "cat"}')
    (folder / "es.terms.json").write_text('{\n  "command": "scaleformer translate",\n  "terms": []\n}\n')
    (folder / "gone.md").symlink_to("nowhere.md")
    others: Counter[str] = Counter()
    assert [path.name for path in find_files(folder, ("json", "markdown"), others)] == ["common.json"]
    assert not others
    assert "gone.md: a link to nothing" in caplog.text
