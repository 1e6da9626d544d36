"""File formats, recognised by their first bytes, then by name, then by the look of their lines."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import PurePath

_RECORD = re.compile(r'\{[ \t\r]*"[^"]*"[ \t\r]*:')  # the beginning of a JSON object
_JSON = re.compile(r'\{\s*"[^"]*"\s*:|[\[{]\s*\n\s*["\[{]|\[\s*(?:\{\s*"|"[^"\n]*"\s*[,\]])')
_TIMES = re.compile(r"\d+[ \t]*\n\d+:\d\d:\d\d,\d{3}[ \t]+-->")
_MESSAGE = re.compile(r'(?:msgid|msgctxt)[ \t]+"')
_MARKDOWN = (
    re.compile(r"#{1,6} +\S", re.MULTILINE),
    re.compile(r"(?:```|~~~)", re.MULTILINE),
    re.compile(r"!?\[[^\]\n]+\]\([^)\s]+\)"),
    re.compile(r"\*\*[^\s*][^*\n]*\*\*"),
    re.compile(r"\|.*\|[ \t]*\n\|[ \t:|-]+\|[ \t]*$", re.MULTILINE),
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
    """

    name: str
    title: str
    endings: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    inside: bytes = b""

    @property
    def binary(self) -> bool:
        """Whether the format cannot be read line by line."""
        return bool(self.magic)


_ZIP = (b"PK\x03\x04",)
TEXT = Format("text", "text, one segment per line", (".txt", ".text"))
FORMATS = {
    format.name: format
    for format in (
        TEXT,
        Format("jsonl", "JSON Lines", (".jsonl", ".json", ".ndjson")),
        Format("json", "a single JSON value (convert it to JSON Lines with `jq -c`)"),
        Format("markdown", "Markdown", (".md", ".markdown")),
        Format("html", "HTML", (".html", ".htm", ".xhtml")),
        Format("rst", "reStructuredText (make PO of it with `sphinx-build -b gettext`)", (".rst",)),
        Format("asciidoc", "AsciiDoc (make PO of it with `po4a-gettextize -f asciidoc`)", (".adoc", ".asciidoc")),
        Format("latex", "LaTeX (make PO of it with `po4a-gettextize -f latex`)", (".tex",)),
        Format("yaml", "YAML (make PO of it with `po4a-gettextize -f yaml`)", (".yaml", ".yml")),
        Format("rtf", "rich text (save it as docx)", (".rtf",), (rb"{\rtf",)),
        Format("po", "a gettext catalogue (PO)", (".po", ".pot")),
        Format("xliff", "XLIFF", (".xliff", ".xlf", ".sdlxliff", ".mqxliff")),
        Format("tmx", "a translation memory (TMX)", (".tmx",)),
        Format("xml", "XML", (".xml", ".sgm", ".sgml")),
        Format("csv", "comma-separated values (CSV)", (".csv",)),
        Format("tsv", "tab-separated values (TSV)", (".tsv", ".tab")),
        Format("srt", "subtitles (SRT)", (".srt",)),
        Format("vtt", "subtitles (WebVTT)", (".vtt",)),
        Format("docx", "a Word document (docx)", (".docx",), _ZIP, b"word/"),
        Format("xlsx", "an Excel table (xlsx)", (".xlsx",), _ZIP, b"xl/"),
        Format("pptx", "a PowerPoint file (pptx)", (".pptx",), _ZIP, b"ppt/"),
        Format("odt", "an OpenDocument file", (".odt", ".ods", ".odp"), _ZIP, b"application/vnd.oasis.opendocument"),
        Format("epub", "an EPUB book", (".epub",), _ZIP, b"application/epub+zip"),
        Format("zip", "a zip archive", (".zip",), _ZIP),
        Format("parquet", "a Parquet table", (".parquet",), (b"PAR1",)),
        Format("pdf", "a PDF", (".pdf",), (b"%PDF-",)),
        Format("doc", "an old Office document", (".doc", ".xls", ".ppt"), (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",)),
        Format("xz", "a file compressed with xz", (), (b"\xfd7zXZ\x00",)),
        Format("bzip2", "a file compressed with bzip2", (), (b"BZh",)),
        Format("zstd", "a file compressed with zstd", (), (b"\x28\xb5\x2f\xfd",)),
        Format(
            "utf16",
            "text in UTF-16 (convert it with `iconv -f UTF-16 -t UTF-8`)",
            (),
            (b"\xff\xfe", b"\xfe\xff"),
        ),
    )
}


def recognise(begin: bytes, name: str) -> Format:
    """The format of a file from its first kilobytes, unpacked, and its name ("" or "stdin" say nothing); text by
    default."""
    return by_content(begin) or by_name(name) or _by_look(_text(begin)) or TEXT


def by_content(begin: bytes) -> Format | None:
    """The format that the content shows, regardless of the name; None for other text."""
    for format in FORMATS.values():
        if begin.startswith(format.magic) and format.inside in begin and format.binary:
            return format
    text = _text(begin).lstrip()
    return FORMATS.get(_markup(text) or _lines(text))


def _markup(text: str) -> str:
    low = text[:4096].lower()
    if low.startswith(("<!doctype html", "<html")):
        return "html"
    if not low.startswith(("<?xml", "<!doctype", "<xliff", "<tmx")):
        return ""
    root = re.search(r"<(?![?!])(?:\w+:)?(\w+)", low)
    return root[1] if root and root[1] in ("xliff", "tmx", "html") else "xml"


def _lines(text: str) -> str:
    if _RECORD.match(text):
        return "jsonl"
    if _JSON.match(text):
        return "json"
    if text.startswith("WEBVTT"):
        return "vtt"
    if _TIMES.match(text):
        return "srt"
    first = next((line for line in text.split("\n") if line.strip() and not line.startswith("#")), "")
    return "po" if _MESSAGE.match(first) else ""


def by_name(name: str) -> Format | None:
    """The format that the suffix of a name shows, before one of compression; None if unknown."""
    name = name.lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    ending = PurePath(name).suffix
    return next((format for format in FORMATS.values() if ending in format.endings), None)


def _by_look(text: str) -> Format | None:
    """A table has at least two rows and the same number of columns, at least two, in all; Markdown has two kinds of
    markup."""
    rows = text.rstrip("\n").split("\n")[: _ROWS + 1]
    rows = rows[:_ROWS] if len(rows) > 1 else []
    for name, delimiter in (("tsv", "\t"), ("csv", ",")):
        if _is_table(rows, delimiter):
            return FORMATS[name]
    return FORMATS["markdown"] if sum(bool(mark.search(text)) for mark in _MARKDOWN) > 1 else None


def _is_table(rows: list[str], delimiter: str) -> bool:
    """Whether all rows have equally many cells. The space after a comma excludes sentences, an empty first cell
    excludes indented lines."""
    try:
        cells = list(csv.reader(rows, strict=True)) if delimiter == "," else [row.split(delimiter) for row in rows]
    except csv.Error:
        return False
    counts = {len(row) for row in cells}
    spaced = any(cell[:1].isspace() for row in cells for cell in row[1:])
    return len(counts) == 1 and min(counts) > 1 and all(row[0] for row in cells) and not spaced


def _text(begin: bytes) -> str:
    text = begin.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    return text if "\n" in text else text.replace("\r", "\n")  # as lines are read
