"""The table of all file formats: how they are recognised, and what reads and writes them.

Content decides, then the name, then the look of the lines.
"""

from __future__ import annotations

import csv
import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

_MARKDOWN = (
    re.compile(r"#{1,6} +\S", re.MULTILINE),
    re.compile(r"(?:```|~~~)", re.MULTILINE),
    re.compile(r"!?\[[^\[\]\n]+\]\([^()\s]+\)"),
    re.compile(r"\*\*[^\s*][^*\n]*\*\*"),
    re.compile(r"\|[^|\n]*\|[ \t]*\n\|[ \t:|-]+\|[ \t]*$", re.MULTILINE),
)
_ROWS = 20  # checked for equal numbers of columns
_PACKED = (".gz", ".bz2", ".xz", ".zst")


@dataclass(frozen=True)
class Format:
    """A file format.

    name     in settings
    title    in messages
    endings  suffixes of file names
    magic    first bytes of the content
    inside   for zip files: other content of the first kilobytes
    begins   a regular expression for the beginning of text
    looks    whether a text looks like it; called if neither content nor name tell
    prose    MODULE.CLASS of `scaleformer.formats`: a `BlockFile`, in which only prose is translated
    whole    whether each of its blocks is a segment
    rows     MODULE of `scaleformer.formats` whose `read_rows(path, name, bitext, dropped)` reads pairs for training
    columns, languages
             whether it reads these settings of a `Bitext`
    """

    name: str
    title: str
    endings: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    inside: bytes = b""
    begins: str = ""
    looks: Callable[[str], bool] | None = None
    prose: str = ""
    whole: bool = False
    rows: str = ""
    columns: bool = False
    languages: bool = False

    @property
    def binary(self) -> bool:
        """Whether the format cannot be read line by line."""
        return bool(self.magic)


def _is_table(text: str, split: Callable[[Sequence[str]], list[list[str]]]) -> bool:
    """Whether there are several rows with equally many cells. The space after a comma excludes sentences, an empty
    first cell excludes indented lines."""
    rows = text.rstrip("\n").split("\n")[: _ROWS + 1]
    try:
        cells = split(rows[:_ROWS])
    except csv.Error:
        return False
    counts = {len(row) for row in cells}
    spaced = any(cell[:1].isspace() for row in cells for cell in row[1:])
    return len(rows) > 1 and len(counts) == 1 and min(counts) > 1 and all(row[0] for row in cells) and not spaced


def _is_tsv(text: str) -> bool:
    return _is_table(text, lambda rows: [row.split("\t") for row in rows])


def _is_csv(text: str) -> bool:
    return _is_table(text, lambda rows: list(csv.reader(rows, strict=True)))


def _is_markdown(text: str) -> bool:
    return sum(bool(mark.search(text)) for mark in _MARKDOWN) > 1


_ZIP = (b"PK\x03\x04",)
_ROOT = r"(?i)(?:<[?!][^<]*)*<(?:\w+:)?"  # XML up to the name of the outermost element
_HTML = rf"{_ROOT}html\b|<!doctype html"
_RECORD = r'\{[ \t\r]*"[^"]*"[ \t\r]*:'
_JSON = r'\{\s*"[^"]*"\s*:|[\[{][^\S\n]*\n\s*["\[{]|\[\s*(?:\{\s*"|"[^"\n]*"\s*[,\]])'
_MESSAGE = r'(?:(?:[^\S\n]*|#.*)\n)*(?:msgid|msgctxt)[ \t]+"'
_CUE = r"\d+[ \t]*\n\d+:\d\d:\d\d,\d{3}[ \t]+-->"
_XLIFF = (".xliff", ".xlf", ".sdlxliff", ".mqxliff")
TEXT = Format("text", "text, one segment per line", (".txt", ".text"), prose="text.TextFile")
FORMATS = {
    format.name: format
    for format in (
        TEXT,
        Format("jsonl", "JSON Lines", (".jsonl", ".json", ".ndjson"), begins=_RECORD),
        Format("json", "a single JSON value (convert it to JSON Lines with `jq -c`)", begins=_JSON),
        Format(
            "po", "a gettext catalogue (PO)", (".po", ".pot"), begins=_MESSAGE, prose="po.PoFile", whole=True, rows="po"
        ),
        Format("tmx", "a translation memory (TMX)", (".tmx",), begins=rf"{_ROOT}tmx\b", rows="tmx", languages=True),
        Format("xliff", "XLIFF", _XLIFF, begins=rf"{_ROOT}xliff\b", prose="xliff.XliffFile", whole=True, rows="xliff"),
        Format("tsv", "tab-separated values (TSV)", (".tsv", ".tab"), looks=_is_tsv, rows="tables", columns=True),
        Format("csv", "comma-separated values (CSV)", (".csv",), looks=_is_csv, rows="tables", columns=True),
        Format("parquet", "a Parquet table", (".parquet",), (b"PAR1",), rows="tables", columns=True),
        Format("markdown", "Markdown", (".md", ".markdown", ".mdx"), looks=_is_markdown, prose="markdown.MarkdownFile"),
        Format("html", "HTML", (".html", ".htm", ".xhtml"), begins=_HTML, prose="html.HtmlFile"),
        Format("docx", "a Word document (docx)", (".docx",), _ZIP, b"word/", prose="docx.DocxFile"),
        Format("epub", "an EPUB book", (".epub",), _ZIP, b"application/epub+zip", prose="epub.EpubFile"),
        Format("srt", "subtitles (SRT)", (".srt",), begins=_CUE, prose="subtitles.SrtFile", whole=True),
        Format("vtt", "subtitles (WebVTT)", (".vtt",), begins="WEBVTT", prose="subtitles.VttFile", whole=True),
        # known, so that messages can name them
        Format("xml", "XML", (".xml", ".sgm", ".sgml"), begins=r"(?i)<\?xml|<!doctype"),
        Format("rst", "reStructuredText (make PO of it with `sphinx-build -b gettext`)", (".rst",)),
        Format("asciidoc", "AsciiDoc (make PO of it with `po4a-gettextize -f asciidoc`)", (".adoc", ".asciidoc")),
        Format("latex", "LaTeX (make PO of it with `po4a-gettextize -f latex`)", (".tex",)),
        Format("yaml", "YAML (make PO of it with `po4a-gettextize -f yaml`)", (".yaml", ".yml")),
        Format("rtf", "rich text (save it as docx)", (".rtf",), (rb"{\rtf",)),
        Format("xlsx", "an Excel table (xlsx)", (".xlsx",), _ZIP, b"xl/"),
        Format("pptx", "a PowerPoint file (pptx)", (".pptx",), _ZIP, b"ppt/"),
        Format("odt", "an OpenDocument file", (".odt", ".ods", ".odp"), _ZIP, b"application/vnd.oasis.opendocument"),
        Format("zip", "a zip archive", (".zip",), _ZIP),
        Format("pdf", "a PDF", (".pdf",), (b"%PDF-",)),
        Format("doc", "an old Office document", (".doc", ".xls", ".ppt"), (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",)),
        Format("xz", "a file compressed with xz", (), (b"\xfd7zXZ\x00",)),
        Format("bzip2", "a file compressed with bzip2", (), (b"BZh",)),
        Format("zstd", "a file compressed with zstd", (), (b"\x28\xb5\x2f\xfd",)),
        Format("utf16", "text in UTF-16 (convert it with `iconv -f UTF-16 -t UTF-8`)", (), (b"\xff\xfe", b"\xfe\xff")),
    )
}
TRANSLATED = tuple(name for name, format in FORMATS.items() if format.prose or name == "jsonl")
BITEXTS = tuple(name for name, format in FORMATS.items() if format.rows)


def load(name: str) -> Any:
    """MODULE.NAME of `scaleformer.formats`, imported here with all that only this format needs."""
    module, _, attribute = name.partition(".")
    return getattr(importlib.import_module(f"scaleformer.formats.{module}"), attribute)


def recognise(begin: bytes, name: str) -> Format:
    """The format of a file from its first kilobytes, unpacked, and its name ("" or "stdin" say nothing); text by
    default."""
    looks = (format for format in FORMATS.values() if format.looks is not None and format.looks(_text(begin)))
    return by_content(begin) or by_name(name) or next(looks, TEXT)


def by_content(begin: bytes) -> Format | None:
    """The format that the content shows, regardless of the name; None for other text."""
    for format in FORMATS.values():
        if begin.startswith(format.magic) and format.inside in begin and format.binary:
            return format
    text = _text(begin).lstrip()
    return next((format for format in FORMATS.values() if format.begins and re.match(format.begins, text)), None)


def by_name(name: str) -> Format | None:
    """The format that the suffix of a name shows, before one of compression; None if unknown."""
    name = name.lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    ending = PurePath(name).suffix
    return next((format for format in FORMATS.values() if ending in format.endings), None)


def _text(begin: bytes) -> str:
    text = begin.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    return text if "\n" in text else text.replace("\r", "\n")  # as lines are read
