"""Reads documents of several formats as blocks of text: titles, paragraphs, list items, table cells."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from scaleformer.formats.archives import open_archive, read_part
from scaleformer.formats.epub_package import book_parts
from scaleformer.formats.lines import read_lines
from scaleformer.formats.word_styles import code_styles
from scaleformer.system.errors import DataError
from scaleformer.text.sentences import split_text

KINDS = ("title", "paragraph", "item", "cell", "code")
LABELS = (*KINDS, "inside")  # the kind of block that a segment begins, or "inside" for none
UNWRAPPED = 120  # characters: in a text file with a longer line, every line is a paragraph
DEEPEST = 255  # levels of Markdown; a list takes two
_HTML_KINDS = {
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6", "title", "caption"), "title"),
    **dict.fromkeys(("li", "dt", "dd", "option"), "item"),
    **dict.fromkeys(("td", "th"), "cell"),
    "pre": "code",
    **dict.fromkeys(
        ("p", "div", "section", "article", "blockquote", "body", "html", "head", "main", "header", "footer", "nav",
         "aside", "ul", "ol", "dl", "table", "thead", "tbody", "tfoot", "tr", "figure", "figcaption", "address", "form",
         "fieldset", "details", "summary", "hr"),
        "paragraph",
    ),
}  # fmt: skip
# What a Markdown file says about itself, in YAML or TOML, before its text. A blank line follows a mere rule.
FRONT_MATTER = re.compile(
    r"\A\ufeff?(---|\+\+\+)[ \t]*\r?\n(?![ \t]*\r?\n).*?^\1[ \t]*(?=\r?$)", re.MULTILINE | re.DOTALL
)
# A second copy of a drawing's text, for programs that do not know the first form.
_DOCX_TWICE = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_DOCX_RELATIONS, _DOCX_STRICT = "_rels/.rels", b"http://purl.oclc.org/ooxml/"  # python-docx reads no strict ones
_HTML_UNSEEN = ("script", "style", "template", "noscript")


@dataclass(frozen=True)
class Block:
    """A piece of a document that contains whole sentences; kind is one of `KINDS`. Code is not prose and not aligned.

    The text is one line; only plain text keeps its line ends.
    """

    kind: str
    text: str


def read_blocks(path: str | Path) -> list[Block]:
    """The nonempty blocks of a .txt, .md, .html, .docx or .epub file, in order.

    Markdown keeps the markup inside its blocks; other formats lose theirs, except that code gets backticks.
    Raises DataError for other suffixes and unreadable files.
    """
    path = Path(path)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: wanted one of {', '.join(READERS)}")
    return [Block(block.kind, block.text.strip()) for block in reader(path) if block.text.strip()]


def _text(path: Path) -> Iterator[Block]:
    lines = [line.strip() for _, line in read_lines(path, "text")]
    if any(len(line) > UNWRAPPED for line in lines) or "" not in lines:
        lines = [part for line in lines for part in (line, "")]
    for paragraph in "\n".join(lines).split("\n\n"):
        yield Block("paragraph", paragraph)


def _markdown(path: Path) -> Iterator[Block]:
    markdown = _library("markdown_it", "Markdown", path).MarkdownIt("commonmark", {"maxNesting": DEEPEST})
    text = FRONT_MATTER.sub("", "\n".join(line for _, line in read_lines(path, "markdown")))
    tokens = markdown.enable("table").parse(text)
    if any(token.level >= DEEPEST - 1 for token in tokens):  # the parser drops deeper levels
        raise DataError(f"{path}: quotations or lists nested {DEEPEST // 2} levels or more: flatten them")
    inside: list[str] = []
    for token in tokens:
        if token.nesting == 1:
            inside.append(token.type.removesuffix("_open"))
        elif token.nesting == -1:
            inside.pop()
        elif token.type == "inline":
            yield Block(_markdown_kind(inside), " ".join(token.content.split()))
        elif token.type in ("fence", "code_block"):
            yield Block("code", token.content)
        elif token.type == "html_block":
            yield from _html_text(token.content, path)


def _markdown_kind(inside: list[str]) -> str:
    kinds = {"heading": "title", "th": "cell", "td": "cell", "list_item": "item"}
    return next((kinds[name] for name in reversed(inside) if name in kinds), "paragraph")


def _html(path: Path) -> Iterator[Block]:
    return _html_text("\n".join(line for _, line in read_lines(path, "html")), path)


def _html_text(text: str, path: Path) -> Iterator[Block]:
    html = _library("lxml.html", "HTML", path)
    if not text.strip():
        return
    try:
        # As bytes: lxml refuses decoded text that declares an encoding.
        parser = html.HTMLParser(encoding="utf-8")
        root = html.fromstring(text.encode(), parser=parser)
    except html.etree.ParserError:  # nothing but comments or end tags
        return
    except (ValueError, AssertionError) as error:
        raise DataError(f"{path}: unreadable HTML ({error})") from None
    if fatal := parser.error_log.filter_from_fatals():  # the parser drops what follows
        raise DataError(f"{path}: unreadable HTML ({fatal[0].message})")
    kind, pieces = "paragraph", [""]
    for event, element in html.etree.iterwalk(root, events=("start", "end")):
        name = element.tag if isinstance(element.tag, str) else "!"
        unseen = any(a.tag in _HTML_UNSEEN for a in (element, *element.iterancestors()) if isinstance(a.tag, str))
        if name in _HTML_KINDS:
            yield Block(kind, _collapsed(pieces, kind))
            pieces = []
            around = element if event == "start" else element.getparent()
            kind = _html_kind(around)
        if name == "code" and kind != "code":
            pieces.append("`")
        if name == "br" and event == "start":
            pieces.append(" ")
        if event == "start" and name != "!" and not unseen:
            pieces.append(element.text or "")
        if event == "end" and not any(a.tag in _HTML_UNSEEN for a in element.iterancestors()):
            pieces.append(element.tail or "")
    yield Block(kind, _collapsed(pieces, kind))


def _html_kind(element: Any) -> str:
    """The kind of the nearest enclosing element that is not a paragraph: a paragraph in a list item is an item."""
    names = [] if element is None else [element.tag, *(a.tag for a in element.iterancestors())]
    kinds = [_HTML_KINDS.get(name, "paragraph") for name in names if isinstance(name, str)]
    return next((kind for kind in kinds if kind != "paragraph"), "paragraph")


def _collapsed(pieces: list[str], kind: str) -> str:
    text = "".join(pieces)
    return text if kind == "code" else " ".join(text.split())


def _docx(path: Path) -> Iterator[Block]:
    docx = _library("docx", "docx", path)
    content = _read(path)
    with open_archive(content, str(path), "docx") as archive:
        if _DOCX_RELATIONS in archive.namelist() and _DOCX_STRICT in read_part(archive, _DOCX_RELATIONS, str(path)):
            raise DataError(f"{path}: a strict Open XML document: save it as an ordinary Word document (.docx)")
        document = docx.Document(io.BytesIO(content))
    yield from _docx_blocks(document, docx)


def _epub(path: Path) -> Iterator[Block]:
    with open_archive(_read(path), str(path), "EPUB") as archive:
        pages = [(part, read_part(archive, part, str(path))) for part in book_parts(archive, str(path))[0]]
    for part, content in pages:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise DataError(f"{path}: {part}: not UTF-8: convert it to UTF-8") from None
        yield from _html_text(text, path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None


def _docx_blocks(document: Any, docx: ModuleType) -> Iterator[Block]:
    """All paragraphs, including those in content controls and text boxes, which python-docx skips."""
    word = docx.oxml.ns.nsmap["w"]
    paragraph, cell, moved, text = (f"{{{word}}}{name}" for name in ("p", "tc", "moveFrom", "t"))
    breaks = [f"{{{word}}}{name}" for name in ("tab", "br", "cr")]
    code = code_styles(
        (style.style_id, style.name or "", getattr(style.base_style, "style_id", None))
        for style in document.styles
        if hasattr(style, "base_style")  # lists have none
    )
    for element in document.element.body.iter(paragraph):
        around = [a.tag for a in element.iterancestors()]
        if _DOCX_TWICE in around:
            continue
        pieces: list[tuple[str, bool]] = []  # with whether they are code
        for piece in element.iter(text, *breaks):
            inside = [a.tag for a in piece.iterancestors()]
            run = next(piece.iterancestors(f"{{{word}}}r"), None)  # none: a tab stop
            if run is not None and next(piece.iterancestors(paragraph)) is element and moved not in inside:
                pieces.append((piece.text or "" if piece.tag == text else " ", run.style in code))
        style = docx.text.paragraph.Paragraph(element, document).style
        name = (style.name if style is not None else "").lower()
        kind = "title" if name.startswith(("heading", "title", "subtitle")) else "paragraph"
        kind = "item" if name.startswith("list") else kind
        kind = "cell" if cell in around else kind
        if style is not None and style.style_id in code:
            yield Block("code", "".join(piece for piece, _ in pieces))
        else:
            yield Block(kind, _with_backticks(pieces))


def _with_backticks(pieces: list[tuple[str, bool]]) -> str:
    """The text of some pieces, white space collapsed, with backticks around those that are code."""
    found = []
    for code, some in groupby(pieces, lambda piece: piece[1]):
        text = "".join(piece for piece, _ in some)
        found.append(f"`{text}`" if code and text.strip() else text)
    return " ".join("".join(found).split())


def _library(name: str, title: str, path: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise DataError(f"{path}: {title} needs another package: pip install 'scaleformer[documents]'") from None


READERS = {
    **dict.fromkeys((".txt", ".text"), _text),
    **dict.fromkeys((".md", ".markdown"), _markdown),
    **dict.fromkeys((".html", ".htm", ".xhtml"), _html),
    ".docx": _docx,
    ".epub": _epub,
}


def split_blocks(blocks: Iterable[Block], language: str, grain: str) -> tuple[list[str], list[int]]:
    """The segments of blocks, each one line, and their labels, as indices of `LABELS`.

    grain: "sentence"  sentences by the rules of the language [sentencex]
           "paragraph" each block is a segment
           "none"      each line is a segment
    Raises DataError if sentencex is not installed.
    """
    segments, labels = [], []
    for block in blocks:
        for number, part in enumerate(split_text(block.text, language, grain)):
            segments.append(part)
            labels.append(LABELS.index("inside" if number else block.kind))
    return segments, labels
