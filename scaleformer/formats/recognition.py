"""The table of all file formats: how they are recognised, what reads and writes them, and what to do with the others.

Content decides, then the name, then the look of the lines.
"""

from __future__ import annotations

import csv
import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePath
from typing import Any

from scaleformer.text.languages import TWO_LETTERS

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
    title    in messages; of what is not read, with advice
    endings  suffixes of file names
    magic    first bytes of the content
    inside   for zip files: other content of the first kilobytes
    begins   a regular expression for the beginning of text
    looks    whether a text looks like it; called if neither content nor name tell
    prose    MODULE.CLASS of `scaleformer.formats`: a `BlockFile`, in which only prose is translated
    whole    whether each of its blocks is a segment
    rows     MODULE of `scaleformer.formats` that reads pairs for training: `read_rows(path, name, bitext, dropped)`, or
             of the class for prose `rows(name, dropped)`
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
    def is_read(self) -> bool:
        """Whether any command reads it."""
        return bool(self.prose or self.rows) or self.name == "jsonl"

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


def _is_markdown(text: str) -> bool:
    return sum(bool(mark.search(text)) for mark in _MARKDOWN) > 1


_TSV = partial(_is_table, split=lambda rows: [row.split("\t") for row in rows])
_CSV = partial(_is_table, split=lambda rows: list(csv.reader(rows, strict=True)))
_ZIP = (b"PK\x03\x04",)
_ROOT = r"(?i)(?:<[?!][^<]*)*<(?:\w+:)?"  # XML up to the name of the outermost element
_HTML = rf"{_ROOT}html\b|<!doctype html"
_RECORD = r'\{[ \t\r]*"[^"]*"[ \t\r]*:'
_JSON = r'\{\s*"[^"]*"\s*:|[\[{][^\S\n]*\n\s*["\[{]|\[\s*(?:\{\s*"|"[^"\n]*"\s*[,\]])'
_MESSAGE = r'(?:(?:[^\S\n]*|#.*)\n)*(?:msgid|msgctxt)[ \t]+"'
_CUE = r"(?:\d+[ \t]*\n)?\d+:\d\d:\d\d,\d{3}[ \t]+-->"
_XML = r"(?i)<\?xml|<!doctype"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_PO4A = "`po4a-gettextize -f {}` makes PO of it"
_SAVE = "save it as docx, as with `soffice --convert-to docx`"
_FFMPEG = "`ffmpeg -i FILE FILE.srt` makes SRT of them"
_XLIFF = (".xliff", ".xlf", ".sdlxliff", ".mqxliff")
STRINGS = "strings.StringsFile"
_messages = partial(Format, whole=True)  # each text is a segment
TEXT = Format("text", "text, one segment per line", (".txt", ".text"), prose="text.TextFile")
FORMATS = {
    format.name: format
    for format in (
        TEXT,
        Format("jsonl", "JSON Lines", (".jsonl", ".ndjson"), begins=_RECORD),
        _messages("json", "a single JSON value (`jq -c` makes JSON Lines)", (".json",), begins=_JSON, prose=STRINGS),
        _messages("arb", "ARB", (".arb",), prose=STRINGS),
        _messages("yaml", "YAML of texts by key", (".yaml", ".yml"), prose=STRINGS),
        _messages("properties", "Java properties", (".properties",), prose=STRINGS),
        _messages("strings", "strings of Apple", (".strings",), prose=STRINGS),
        _messages("android", "strings of Android", begins=rf"{_ROOT}resources\b", prose=STRINGS),
        _messages("resx", "texts of .NET", (".resx",), prose=STRINGS),
        _messages("catalog", "a String Catalog of Xcode", (".xcstrings",), prose="catalogs.CatalogFile"),
        _messages("qt", "a Qt translation", begins=rf"{_ROOT}TS\b", prose=STRINGS),
        _messages("po", "a gettext catalogue (PO)", (".po", ".pot"), begins=_MESSAGE, prose="po.PoFile", rows="po"),
        Format("tmx", "a translation memory (TMX)", (".tmx",), begins=rf"{_ROOT}tmx\b", rows="tmx", languages=True),
        _messages("xliff", "XLIFF", _XLIFF, begins=rf"{_ROOT}xliff\b", prose="xliff.XliffFile", rows="xliff"),
        Format("tsv", "tab-separated values (TSV)", (".tsv", ".tab"), looks=_TSV, rows="tables", columns=True),
        Format("csv", "comma-separated values (CSV)", (".csv",), looks=_CSV, rows="tables", columns=True),
        Format("parquet", "a Parquet table", (".parquet",), (b"PAR1",), rows="tables", columns=True),
        Format("markdown", "Markdown", (".md", ".markdown", ".mdx"), looks=_is_markdown, prose="markdown.MarkdownFile"),
        Format("notebook", "a Jupyter notebook", (".ipynb",), prose="markdown.NotebookFile"),
        Format("html", "HTML", (".html", ".htm", ".xhtml"), begins=_HTML, prose="html.HtmlFile"),
        Format("docx", "a Word document (docx)", (".docx",), _ZIP, b"word/", prose="office.DocxFile"),
        Format("pptx", "a PowerPoint file (pptx)", (".pptx",), _ZIP, b"ppt/", prose="office.PptxFile"),
        Format("epub", "an EPUB book", (".epub",), _ZIP, b"application/epub+zip", prose="epub.EpubFile"),
        Format("odf", "an OpenDocument file", (".odt", ".odp", ".ods"), _ZIP, b"opendocument", prose="odf.OdfFile"),
        Format("xlsx", "an Excel workbook (xlsx)", (".xlsx",), _ZIP, b"xl/", prose="office.XlsxFile"),
        _messages("srt", "subtitles (SRT)", (".srt",), begins=_CUE, prose="subtitles.SrtFile"),
        _messages("vtt", "subtitles (WebVTT)", (".vtt",), begins="WEBVTT", prose="subtitles.VttFile"),
        # known, so that messages can say what to do with them
        Format("ttml", "subtitles (TTML; save them as SRT or WebVTT)", (".ttml", ".dfxp"), begins=rf"{_ROOT}tt\b"),
        Format("tbx", "a term base (TBX), for `terms=`", (".tbx",), begins=rf"{_ROOT}(?:martif|tbx)\b"),
        Format("xml", f"XML ({_PO4A.format('xml')})", (".xml", ".sgm", ".sgml"), begins=_XML),
        Format("stringsdict", "plurals of Apple (Xcode exports XLIFF of them)", (".stringsdict",)),
        Format("php", "PHP (`php2po` makes PO of its arrays)", (".php",)),
        Format("rst", "reStructuredText (`sphinx-build -b gettext` makes PO of it)", (".rst",)),
        Format("asciidoc", f"AsciiDoc ({_PO4A.format('asciidoc')})", (".adoc", ".asciidoc")),
        Format("latex", f"LaTeX ({_PO4A.format('latex')})", (".tex",)),
        Format("wiki", "a page of a wiki (`pandoc` makes Markdown of it)", (".wiki", ".mediawiki", ".org", ".textile")),
        Format("ass", f"subtitles (SubStation Alpha; {_FFMPEG})", (".ass", ".ssa"), begins=r"(?i)\[Script Info\]"),
        Format("sbv", f"subtitles (SubViewer; {_FFMPEG})", (".sbv", ".sub"), begins=r"(?:\d+:\d\d:\d\d\.\d+,?){2}"),
        Format("rtf", f"rich text ({_SAVE})", (".rtf",), (rb"{\rtf",)),
        Format("zip", "a zip archive (unpack it)", (".zip",), _ZIP),
        Format("pdf", "a PDF (`pdftotext` makes text of it)", (".pdf",), (b"%PDF-",)),
        Format("doc", "an old Office file (save it as docx, pptx, xlsx)", (".doc", ".dot", ".xls", ".ppt"), (_OLE,)),
        Format("xz", "a file compressed with xz", (), (b"\xfd7zXZ\x00",)),
        Format("bzip2", "a file compressed with bzip2", (), (b"BZh",)),
        Format("zstd", "a file compressed with zstd", (), (b"\x28\xb5\x2f\xfd",)),
        Format("utf16", "text in UTF-16 (convert it with `iconv -f UTF-16 -t UTF-8`)", (), (b"\xff\xfe", b"\xfe\xff")),
    )
}
TRANSLATED = tuple(name for name, format in FORMATS.items() if format.prose or name == "jsonl")
_GENERAL = ("json", "xml", "zip", "utf16")  # the content of many formats
# The languages of ISO 639-1 as the ends of names, but for those of shell scripts and TypeScript.
LANGUAGE = re.compile(rf"(?!sh|ts)(?:{TWO_LETTERS.replace(' ', '|')})(?:[-_]\w+)?")
BITEXTS = tuple(name for name, format in FORMATS.items() if format.rows)


def load(name: str) -> Any:
    """MODULE.NAME of `scaleformer.formats`, imported here with all that only this format needs."""
    module, _, attribute = name.partition(".")
    return getattr(importlib.import_module(f"scaleformer.formats.{module}"), attribute)


def recognise(begin: bytes, name: str) -> Format:
    """The format of a file from its first kilobytes, unpacked, and its name ("" or "stdin" say nothing).

    What is none of the table is text if the name ends like text: not at all, or with the code of a language. Else it is
    of an unknown format, which is not read.
    """
    found, named = by_content(begin), by_name(name)
    if found and named and found.name in ("jsonl", "json") and named.name in ("arb", "json", "notebook", "catalog"):
        return found if named.name == "json" and b'"source"' in begin else named
    if found is None or (named and found.name in _GENERAL and (not named.is_read or named.magic == found.magic != ())):
        found = named
    found = named if found and named and (found.name, named.name) == ("xml", "resx") else found
    ending = _ending(name)
    if found is None and ending and not LANGUAGE.fullmatch(ending[1:]):
        return replace(TEXT, name="unknown", title=f"a file of unknown format ({ending})", prose="")
    looks = (format for format in FORMATS.values() if format.looks is not None and format.looks(_text(begin)))
    return found or next(looks, TEXT)


def refusal(format: Format, wanted: str) -> str:
    """What to say of a file that is `not wanted`, such as "translated"."""
    if format.name == "unknown":
        return f"{format.title} cannot be {wanted}: if each line is text, name it .txt; alone, it needs format=text"
    if not format.is_read:
        return f"{format.title} cannot be {wanted}"
    return f"{format.title} cannot be {wanted}: `scaleformer prepare format={format.name}` reads it"


def by_content(begin: bytes) -> Format | None:
    """The format that the content shows, regardless of the name; None for other text."""
    for format in FORMATS.values():
        if begin.startswith(format.magic) and format.inside in begin and format.binary:
            return format
    text = _text(begin).lstrip()
    return next((format for format in FORMATS.values() if format.begins and re.match(format.begins, text)), None)


def by_name(name: str) -> Format | None:
    """The format that the suffix of a name shows, before one of compression; None if unknown."""
    ending = _ending(name)
    return next((format for format in FORMATS.values() if ending in format.endings), None)


def _ending(name: str) -> str:
    name = name.lower()
    for ending in _PACKED:
        name = name.removesuffix(ending)
    suffix = PurePath(name).suffix
    return "" if re.search(r"\s", suffix) else suffix  # of a title


def _text(begin: bytes) -> str:
    text = begin.decode("utf-8-sig", errors="replace").replace("\r\n", "\n")
    return text if "\n" in text else text.replace("\r", "\n")  # as lines are read
