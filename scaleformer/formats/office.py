"""Office documents of Open XML: body, tables, text boxes, content controls, headers, footers and notes of Word; slides,
tables and notes of PowerPoint; what charts and diagrams have in words. Unchanged paragraphs and all other parts stay.

A text box is stored twice, once as a fallback for old programs: identical paragraphs get the same translation there.
Deleted texts, comments and the data of charts are not translated, nor is what has a style of code or, set directly, a
font of fixed width.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from scaleformer.formats.archives import ArchiveFile, find_elements, read_part
from scaleformer.formats.blocks import Block, Span
from scaleformer.formats.markup import decode_xml
from scaleformer.formats.paragraphs import Paragraph
from scaleformer.formats.restoring import Change
from scaleformer.formats.runs import DrawingMarkup, RunMarkup, Style, WordMarkup, read_styles
from scaleformer.formats.splicing import Edit, encode, splice
from scaleformer.system.errors import DataError

_TYPES = "[Content_Types].xml"
_LEFT = {"comments": "parts with comments", "threadedComments": "parts with comments"}
_DRAWN: dict[str, type[RunMarkup]] = dict.fromkeys(
    ("chart", "chartex", "chartshapes", "diagramData", "diagramDrawing"), DrawingMarkup
)
_INSIDE = ("header", "footer", "footnotes", "endnotes", "notesSlide", "worksheet", "sharedStrings", "drawing", *_DRAWN)
_DATA = re.compile(rb"<(?:\w+:)?(?:str|multiLvlStr)Ref[\s>]")
_LABELS = "charts whose labels stay as in their data"
_CHOICE, _FALLBACK = (
    f"{{http://schemas.openxmlformats.org/markup-compatibility/2006}}{name}" for name in ("Choice", "Fallback")
)
_SKIPPED = {"del": "deleted texts", "moveFrom": "deleted texts"}
_OLE = b"\xd0\xcf\x11\xe0"  # first bytes of Office documents before 2007, and of encrypted ones


class OfficeFile(ArchiveFile):
    """The paragraphs of a document. Of a format: its name, its family of types, its main part, and the dialects of the
    types of parts that are read, in order of translation where the document says none.

    Raises DataError if the archive is damaged, holds no such document, is not well-formed, declares entities, or is
    too large when unpacked.
    """

    document: ClassVar[str]
    family: ClassVar[str]
    main: ClassVar[str]
    dialects: ClassVar[Mapping[str, type[RunMarkup]]]

    def __init__(self, content: bytes, name: str) -> None:
        if content.startswith(_OLE):
            raise DataError(f"{name}: an old or encrypted {self.document}: save it as .{self.title} without a password")
        super().__init__(content, name)

    def _read(self, archive: zipfile.ZipFile, name: str) -> dict[str, TextPart]:
        kinds = self._kinds(archive, name)
        read = {part: read_part(archive, part, name) for part in kinds}
        styles: dict[str, Style] = {}
        for part in [part for part, kind in kinds.items() if kind == "styles"]:
            styles |= read_styles(WordMarkup(decode_xml(read.pop(part), f"{name}: {part}")[0], f"{name}: {part}"))
        parts = {}
        for part, content in read.items():
            markup = self.dialects[kinds[part]]
            parts[part] = TextPart(content, f"{name}: {part}", self.left, markup, styles)
            self.left.update(_LABELS for _ in [part] if kinds[part] in _DRAWN and _DATA.search(content))
        return parts

    def _kinds(self, archive: zipfile.ZipFile, name: str) -> dict[str, str]:
        """The kinds of the parts to read, by their types: in the order in which others refer to them."""
        names = set(archive.namelist())
        found: dict[str, list[str]] = defaultdict(list)
        main = re.compile(rf"[./](?:{self.family})\.\w+\.(?:macroEnabled\w*\.)?main\+xml")
        for attributes in find_elements(archive, _TYPES, name, "Override") if _TYPES in names else ():
            part, kind = attributes.get("PartName", "").removeprefix("/"), attributes.get("ContentType", "")
            if part in names:
                last = re.split(r"[./]", kind.removesuffix("+xml"))[-1].removeprefix("main")  # of another program
                found["main" if main.search(kind) else last].append(part)
        if not (first := found["main"] or [part for part in (self.main,) if part in names]):
            raise DataError(f"{name}: an archive that holds no {self.document}: wanted .{self.title}")
        found["main"] = first
        for kind, words in _LEFT.items():
            self.left += Counter({words: len(found[kind])})
        kinds = {part: kind for kind in self.dialects for part in sorted(found[kind], key=_natural)}
        order, waiting = dict[str, None](), first[::-1]
        while waiting:
            if (part := waiting.pop()) not in order:
                order[part] = None
                referred = _referred(archive, part, name) if _relations(part) in names else []
                slides = "slide" if part in first else ""  # others are links
                waiting += [one for one in referred[::-1] if one in kinds and kinds[one] in (slides, *_INSIDE)]
        return {part: kinds[part] for part in (*order, *kinds) if part in kinds}


class DocxFile(OfficeFile):
    """A Word document."""

    title, document, main = "docx", "Word document", "word/document.xml"
    family = "wordprocessingml|ms-word"
    dialects = _DRAWN | dict.fromkeys(("styles", "main", "footnotes", "endnotes", "header", "footer"), WordMarkup)


class PptxFile(OfficeFile):
    """A PowerPoint presentation, each slide before its charts, diagrams and notes."""

    title, document, main = "pptx", "PowerPoint presentation", "ppt/presentation.xml"
    family = "presentationml|ms-powerpoint"
    dialects = dict.fromkeys(("slide", "notesSlide", *_DRAWN, "slideLayout", "slideMaster"), DrawingMarkup)


def _natural(part: str) -> list[str | int]:
    return [int(piece) if piece.isdecimal() else piece for piece in re.split(r"(\d{1,9})", part)]


def _relations(part: str) -> str:
    folder, own = posixpath.split(part)
    return posixpath.join(folder, "_rels", f"{own}.rels")


def _referred(archive: zipfile.ZipFile, part: str, name: str) -> list[str]:
    """The parts that a part refers to, in the order in which it names them, then the others."""
    content = read_part(archive, part, name)
    places = []
    for one in find_elements(archive, _relations(part), name, "Relationship"):
        target = posixpath.normpath(posixpath.join("/", part, "..", one.get("Target", "")))
        place = content.find(f'"{one.get("Id")}"'.encode())
        places.append((place < 0, place, target.removeprefix("/")))
    return [target for *_, target in sorted(places)]


class TextPart:
    """A part of a document with its paragraphs; blocks: those that are not copies in a fallback; kept: texts that stay,
    and why."""

    def __init__(
        self,
        content: bytes,
        where: str,
        left: Counter[str],
        dialect: type[RunMarkup],
        styles: Mapping[str, Style] | None = None,
        kept: Mapping[str, str] | None = None,
    ) -> None:
        text, self._encoding = decode_xml(content, where)
        self._markup = dialect(text, where, styles)
        # The paragraphs, and of those in fallbacks the numbers of the ones whose translation they copy.
        self._paragraphs: list[tuple[Paragraph, int | None]] = []
        waiting: dict[tuple[int, object], deque[int]] = defaultdict(deque)
        for number, kind, choice, fallback in _paragraph_tokens(self._markup):
            counts = left if fallback is None else Counter()
            if reason := (kept or {}).get(self._markup.text(number)) or _SKIPPED.get(kind):
                counts[reason] += 1
                continue
            paragraph = Paragraph(self._markup, number, counts, kind)
            if blocks := paragraph.blocks:
                shape = tuple((one.text, *((span.pair is None, span.opens) for span in one.spans)) for one in blocks)
                if choice is not None:
                    waiting[choice, shape].append(len(self._paragraphs))
                copied = waiting[fallback, shape] if fallback is not None else None
                self._paragraphs.append((paragraph, copied.popleft() if copied else None))
        own = (paragraph.blocks for paragraph, copied_from in self._paragraphs if copied_from is None)
        self.blocks = [block for blocks in own for block in blocks]

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The part with the changes of its blocks."""
        own = iter(changes)
        by_paragraph: list[list[Sequence[Change]]] = []  # and by block
        for paragraph, copied in self._paragraphs:
            if copied is None:
                by_paragraph.append([next(own) for _ in paragraph.blocks])
                continue
            twins = zip(by_paragraph[copied], self._paragraphs[copied][0].blocks, paragraph.blocks, strict=True)
            by_paragraph.append([[_moved(change, block, twin) for change in some] for some, block, twin in twins])
        content = self._markup.content
        edits: list[Edit] = []  # edits of nested paragraphs are part of the edit of the outer one
        for (paragraph, _), some in zip(self._paragraphs[::-1], by_paragraph[::-1], strict=True):
            if not any(some):
                continue
            inside: list[Edit] = []
            while edits and edits[-1][0] < paragraph.stop:
                inside.append(edits.pop())

            def raw(start: int, stop: int, inside: Sequence[Edit] = tuple(inside)) -> str:
                first, last = (bisect_left(inside, place, key=lambda edit: edit[0]) for place in (start, stop))
                own = [(a - start, b - start, text) for a, b, text in inside[first:last]]
                return splice(content[start:stop], own)

            edits.append((paragraph.start, paragraph.stop, paragraph.write(some, raw)))
        return encode(splice(content, edits), self._encoding)


def _paragraph_tokens(markup: RunMarkup) -> Iterator[tuple[int, str, int | None, int | None]]:
    """The paragraphs, the kind of each or why it is not read, and the number of the alternative content in which it is
    a choice or the fallback."""
    around: list[int] = []
    for number, token in enumerate(markup.tokens):
        if token.kind == "end":
            around.pop()
        elif token.kind == "start":
            if markup.names[number] == "p" and not markup.tag(number).endswith("/>"):
                names = [markup.names[outer] or markup.tokens[outer].name for outer in around]
                kind = next((name for name in names if name in _SKIPPED), "") or markup.kind(around)
                choice, fallback = (
                    next((around[i - 1] for i in range(len(names) - 1, 0, -1) if names[i] == branch), None)
                    for branch in (_CHOICE, _FALLBACK)
                )
                if kind:
                    yield number, kind, choice, fallback
            around.append(number)


def _moved(change: Change, block: Block, twin: Block) -> Change:
    """A change of a block with the spans of another block of the same text."""
    spans = dict(zip(map(id, block.spans), twin.spans, strict=True))
    parts = tuple(spans[id(part)] if isinstance(part, Span) else part for part in change.parts)
    return replace(change, parts=parts)
