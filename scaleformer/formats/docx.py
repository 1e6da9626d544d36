"""Word documents: paragraphs of the body, tables, text boxes, content controls, headers, footers and notes. Unchanged
paragraphs and all other parts stay as they are.

A text box is stored twice, once as a fallback for old programs: identical paragraphs get the same translation there.
Deleted texts, charts, diagrams and comments are not translated, nor is what has a style of code or, set directly, a
font of fixed width.
"""

from __future__ import annotations

import re
import zipfile
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from scaleformer.formats.archives import ArchiveFile, find_elements, read_part
from scaleformer.formats.blocks import Block, Span
from scaleformer.formats.markup import decode_xml
from scaleformer.formats.paragraphs import Paragraph
from scaleformer.formats.restoring import Change
from scaleformer.formats.splicing import Edit, encode, splice
from scaleformer.formats.word_markup import Style, WordMarkup, read_styles
from scaleformer.system.errors import DataError

_TYPES = "[Content_Types].xml"
_MAIN = re.compile(r"[./](?:wordprocessingml|ms-word)\.(?:document|template)\.(?:macroEnabled\w*\.)?main\+xml")
_OTHERS = ("footnotes", "endnotes", "header", "footer")  # in order of translation
_LEFT = {"chart": "charts", "diagramData": "diagrams", "comments": "parts with comments"}
_CHOICE, _FALLBACK = (
    f"{{http://schemas.openxmlformats.org/markup-compatibility/2006}}{name}" for name in ("Choice", "Fallback")
)
_OLE = b"\xd0\xcf\x11\xe0"  # first bytes of Word documents before 2007, and of encrypted ones


class DocxFile(ArchiveFile):
    """The paragraphs of a document and its notes, headers and footers.

    Raises DataError if the archive is damaged, holds no Word document, is not well-formed, declares entities, or is
    too large when unpacked.
    """

    title = "docx"

    def __init__(self, content: bytes, name: str) -> None:
        if content.startswith(_OLE):
            raise DataError(f"{name}: an old or encrypted Word document: save it as .docx without a password")
        super().__init__(content, name)

    def _read(self, archive: zipfile.ZipFile, name: str) -> dict[str, _Part]:
        names, with_styles = self._names(archive, name)
        read = {part: read_part(archive, part, name) for part in (*names, *with_styles)}
        styles: dict[str, Style] = {}
        for part in with_styles:
            styles |= read_styles(read[part], f"{name}: {part}")
        return {part: _Part(read[part], f"{name}: {part}", self.left, styles) for part in names}

    def _names(self, archive: zipfile.ZipFile, name: str) -> tuple[list[str], list[str]]:
        """The names of the parts to translate, and of those with styles, by their types."""
        names = set(archive.namelist())
        found: dict[str, list[str]] = defaultdict(list)
        for attributes in find_elements(archive, _TYPES, name, "Override") if _TYPES in names else ():
            part, kind = attributes.get("PartName", "").removeprefix("/"), attributes.get("ContentType", "")
            if part in names:
                last = re.split(r"[./]", kind.removesuffix("+xml"))[-1]
                found["main" if _MAIN.search(kind) else last].append(part)
        main = found["main"] or [part for part in ("word/document.xml",) if part in names]
        if not main:
            raise DataError(f"{name}: an archive that holds no Word document: wanted .docx")
        for kind, words in _LEFT.items():
            if found[kind]:
                self.left[words] += len(found[kind])
        others = [part for kind in _OTHERS for part in sorted(found[kind])]
        return list(dict.fromkeys([*main, *others])), list(dict.fromkeys(found["styles"]))


class _Part:
    """A part of a document with its paragraphs; blocks: those that are not copies in a fallback."""

    def __init__(self, content: bytes, where: str, left: Counter[str], styles: Mapping[str, Style]) -> None:
        text, self._encoding = decode_xml(content, where)
        self._markup = WordMarkup(text, where)
        # The paragraphs, and of those in fallbacks the numbers of the ones whose translation they copy.
        self._paragraphs: list[tuple[Paragraph, int | None]] = []
        waiting: dict[tuple[int, object], deque[int]] = defaultdict(deque)
        for number, is_cell, choice, fallback in _paragraph_tokens(self._markup):
            counts = left if fallback is None else Counter()
            paragraph = Paragraph(self._markup, number, counts, styles, "cell" if is_cell else "paragraph")
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


def _paragraph_tokens(markup: WordMarkup) -> Iterator[tuple[int, bool, int | None, int | None]]:
    """The paragraphs that are not deleted, whether each is in a cell, and the number of the alternative content in
    which it is a choice or the fallback."""
    around: list[int] = []
    for number, token in enumerate(markup.tokens):
        if token.kind == "end":
            around.pop()
        elif token.kind == "start":
            if markup.names[number] == "p" and not markup.tag(number).endswith("/>"):
                names = [markup.names[outer] or markup.tokens[outer].name for outer in around]
                if "del" not in names and "moveFrom" not in names:
                    choice, fallback = (
                        next((around[i - 1] for i in range(len(names) - 1, 0, -1) if names[i] == kind), None)
                        for kind in (_CHOICE, _FALLBACK)
                    )
                    yield number, "tc" in names, choice, fallback
            around.append(number)


def _moved(change: Change, block: Block, twin: Block) -> Change:
    """A change of a block with the spans of another block of the same text."""
    spans = dict(zip(map(id, block.spans), twin.spans, strict=True))
    parts = tuple(spans[id(part)] if isinstance(part, Span) else part for part in change.parts)
    return replace(change, parts=parts)
