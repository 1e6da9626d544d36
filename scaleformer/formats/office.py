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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from scaleformer.formats.archives import ArchiveFile, find_elements, read_part
from scaleformer.formats.blocks import Block, Span
from scaleformer.formats.lines import LARGEST
from scaleformer.formats.paragraphs import LEFT, Paragraph
from scaleformer.formats.restoring import Change
from scaleformer.formats.runs import DrawingMarkup, RunMarkup, SheetMarkup, Style, WordMarkup, read_styles
from scaleformer.formats.splicing import Edit, encode, splice
from scaleformer.system.errors import DataError

_TYPES = "[Content_Types].xml"
_DRAWN = dict.fromkeys(("chart", "chartex", "diagramData", "diagramDrawing", "drawing"), DrawingMarkup)
# What names the header of a column, by which formulas and pivot tables know it.
_HEADERS = {"table": "tableColumn", "pivotCacheDefinition": "cacheField"}
_CHOICE, _FALLBACK = (
    f"{{http://schemas.openxmlformats.org/markup-compatibility/2006}}{name}" for name in ("Choice", "Fallback")
)
_SKIPPED = {**LEFT, "commentRangeStart": "comments", "formula": "cells with formulas"}


class OfficeFile(ArchiveFile):
    """The paragraphs of a document. Of a format: its name, its family of types, its main part, and the dialects of the
    types of parts that are read, in order of translation where the document says none. Raises DataError if the archive
    is damaged, holds no such document, is not well-formed, declares entities, or is too large when unpacked."""

    family = main = ""
    dialects: ClassVar[Mapping[str, type[RunMarkup]]]

    def _read(self, archive: zipfile.ZipFile, name: str) -> dict[str, TextPart]:
        kinds = self._kinds(archive, name)
        read = {part: read_part(archive, part, name) for part in kinds}
        styles: dict[str, Style] = {}
        headers = set()
        for part, kind in kinds.items():
            if kind == "styles":
                styles |= read_styles(WordMarkup(read[part], f"{name}: {part}"))
            elif kind in _HEADERS:
                found = find_elements(archive, part, name, _HEADERS[kind])
                headers |= {re.sub("(?i)_x000a_", "\n", one.get("name", "")) for one in found}
            elif kind == "worksheet":
                self.left += Counter({_SKIPPED["formula"]: len(re.findall(rb"<(?:\w+:)?f[\s/>]", read[part]))})
            self.left += Counter({"labels in the data of charts": read[part].count(b":strCache>") // 2})
        return {
            part: TextPart(self.dialects[kinds[part]](content, f"{name}: {part}", styles), self.left, headers)
            for part, content in read.items()
            if kinds[part] not in ("styles", *_HEADERS) and (kinds[part] != "worksheet" or b"inlineStr" in content)
        }

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
        found["main"] += [self.main] if self.main in names and not found["main"] else []
        if not found["main"]:
            raise DataError(f"{name}: an archive that holds no {self.document}: wanted .{self.title}")
        self.left += Counter({"parts with comments": len(found["comments"])})
        kinds = {part: kind for kind in self.dialects for part in sorted(found[kind], key=lambda one: (len(one), one))}

        def referred(part: str) -> list[str]:
            """The parts that a part refers to, in the order in which it names them, then the others."""
            relations = "{}/_rels/{}.rels".format(*posixpath.split(part))
            if not {part, relations} <= names:
                return []
            content, some = read_part(archive, part, name), find_elements(archive, relations, name, "Relationship")
            some.sort(key=lambda one: content.find(f'"{one.get("Id")}"'.encode()) % LARGEST)
            return [posixpath.normpath(posixpath.join("/", part, "..", one.get("Target", "")))[1:] for one in some]

        order = list(found["main"])
        for part in referred(order[0]):
            inner = [one for one in referred(part) if kinds.get(one, "")[:5] != "slide"]
            order += [part, *inner] if kinds.get(part) != "slideMaster" else []
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


class XlsxFile(OfficeFile):
    """The texts of an Excel workbook, each once, and those of its drawings and charts."""

    title, document, main = "xlsx", "Excel workbook", "xl/workbook.xml"
    family = "spreadsheetml|ms-excel"
    dialects = _DRAWN | dict.fromkeys(("worksheet", "sharedStrings", *_HEADERS), SheetMarkup)


class TextPart:
    """A part with its paragraphs; blocks: of those that are no copies in a fallback; headers: texts that stay."""

    def __init__(self, markup: RunMarkup, left: Counter[str], headers: Collection[str] = ()) -> None:
        self._markup, self.left = markup, left
        # The paragraphs, and of those in fallbacks the numbers of the ones whose translation they copy.
        self._paragraphs: list[tuple[Paragraph, int | None]] = []
        waiting: dict[tuple[int, object], deque[int]] = defaultdict(deque)
        for number, kind, choice, fallback in _paragraph_tokens(markup):
            counts = left if fallback is None else Counter()
            if reason := "headers of tables" if headers and markup.text(number) in headers else _SKIPPED.get(kind):
                counts[reason] += 1
                continue
            paragraph = Paragraph(markup, number, counts, kind)
            if blocks := paragraph.blocks:
                shape = tuple((one.text, *((span.pair is None, span.opens) for span in one.spans)) for one in blocks)
                if choice is not None:
                    waiting[choice, shape].append(len(self._paragraphs))
                copied = waiting[fallback, shape] if fallback is not None else None
                self._paragraphs.append((paragraph, copied.popleft() if copied else None))
        self.blocks = [block for paragraph, copied in self._paragraphs if copied is None for block in paragraph.blocks]

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
                return splice(content, inside[first:last], start, stop)

            edits.append((paragraph.start, paragraph.stop, paragraph.write(some, raw)))
        return encode(splice(content, edits), self._markup.encoding)


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
