"""OpenDocument texts, slides and tables, as of LibreOffice: paragraphs, notes, text boxes, cells, headers and footers.

Source: OpenDocument 1.3, part 3. Deleted texts, comments, prompts of layouts, charts and other objects are not
translated, nor are cells with a formula or with no text; code is what it is in Word documents.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from typing import ClassVar

from scaleformer.formats.archives import ArchiveFile, read_part
from scaleformer.formats.office import TextPart
from scaleformer.formats.runs import Run, RunMarkup, Style, read_styles
from scaleformer.system.errors import DataError

_MARKS = ("alphabetical-index-mark", "bookmark", "change", "reference-mark", "toc-mark", "user-index-mark")
_NAMES = """a:hyperlink annotation:commentRangeStart annotation-end:commentRangeEnd covered-table-cell:tc footer-decl:p
    h:p header-decl:p index-title-template:p line-break:br meta:hyperlink meta-field:hyperlink ruby:fldSimple span:r
    soft-page-break:lastRenderedPageBreak table-cell:tc text-properties:rPr tracked-changes:del"""


class OdfMarkup(RunMarkup):
    """Content or styles of OpenDocument. A <span>, or a link without spans, is a run, in another one with its style."""

    spaces = r"urn:oasis:names:tc:opendocument:xmlns:(?:drawing|office|presentation|style|table|text):1\.0"
    renamed: ClassVar = dict(pair.split(":") for pair in _NAMES.split()) | {
        f"{mark}-{end.lower()}": f"bookmark{end}" for mark in _MARKS for end in ("Start", "End")
    }
    preserve = ""
    mixed = True

    def __init__(self, content: bytes, name: str, styles: Mapping[str, Style] | None = None) -> None:
        super().__init__(content, name, styles)
        self._automatic: dict[str, int] = {}
        for number, own in enumerate(self.names):
            if own == "automatic-styles":
                self._automatic |= {self.value(one, "name"): one for one in self.children(number)}
            elif own not in ("", "p", "r") and self.tokens[number + 1].text.strip():
                self.names[number] = "r" if own == "hyperlink" else "fldSimple"  # slides show no spans in links

    def text(self, number: int) -> str:
        """The text in an element, or of a token."""
        return "".join(token.text for token in self.tokens[number : self.ends.get(number, number) + 1])

    def kind(self, around: Sequence[int]) -> str:
        """As in all. Placeholders are not seen on slides, numbers and dates are no text."""
        found, master = "paragraph", any(self.names[number] == "master-page" for number in around)
        for number in around:
            is_cell, role = self.names[number] == "tc", self.value(number, "class")
            if is_cell and self.value(number, "formula"):
                return "formula"
            is_number = is_cell and self.value(number, "value-type") not in ("", "string")
            if is_number or (master and role) or self.value(number, "placeholder") == "true":
                return ""
            found = "title" if "title" in role else {"list": "item", "tc": "cell"}.get(self.names[number], found)
        return found

    def style(self, number: int) -> Style:
        own, name = self._styled(number)
        style = self.styles.get(name, Style())
        formatted = style.formatted or self.look(self.find(own, "rPr"), "") != ""
        return Style("title" if self.tokens[number].local == "h" else style.kind, formatted)

    def named(self, number: int) -> tuple[str, str, str]:
        name, shown = self.value(number, "name"), self.value(number, "display-name")
        return name, shown or name, self.value(number, "parent-style-name")

    def run(self, number: int, outer: Run, *, bold: bool) -> Run:
        own, name = self._styled(number)
        style = self.styles.get(name, Style(formatted=name != ""))
        look = self.look(self.find(own, "rPr"), self.text(number), bold=bold) + f"<{name}>" * style.formatted
        is_code = outer.is_code or style.kind == "code" or number in self.fixed
        begin, end = outer.begin + self.tag(number), self.tag(self.ends[number]) + outer.end
        return Run(begin, end, outer.around, outer.formatting + look, is_code)

    def bare(self, number: int) -> Run:
        return Run("", "", ("", ""), is_code=number in self.fixed)

    def _font(self, number: int) -> str:
        return self.value(self.find(self._styled(number)[0], "rPr"), "font-name").rstrip("0123456789")

    def _styled(self, number: int) -> tuple[int | None, str]:
        """The automatic style of an element, if it has one, and the name of its style or of that behind it."""
        name = self.value(number, "style-name") if self.tokens[number].local in ("h", "p", "span") else self.tag(number)
        own = self._automatic.get(name)
        return own, name if own is None else self.value(own, "parent-style-name")


class OdfFile(ArchiveFile):
    """The paragraphs of a document, and those of its headers and footers. Raises DataError if the archive is damaged or
    encrypted, holds no such document, is not well-formed, declares entities, or is too large when unpacked."""

    title = "OpenDocument"

    def _read(self, archive: zipfile.ZipFile, name: str) -> dict[str, TextPart]:
        names = archive.NameToInfo
        if "mimetype" not in names or b"opendocument" not in read_part(archive, "mimetype", name):
            raise DataError(f"{name}: an archive that holds no OpenDocument file: wanted .odt, .odp or .ods")
        if any(b"encryption-data" in read_part(archive, one, name) for one in names if one.endswith("/manifest.xml")):
            raise DataError(f"{name}: an encrypted document: save it without a password")
        self.left.update("charts and other objects" for one in names if one.endswith("/content.xml"))
        parts = [f"{part}.xml" for part in ("content", "styles") if f"{part}.xml" in names]
        read = {part: (read_part(archive, part, name), f"{name}: {part}") for part in parts}
        styles = read_styles(OdfMarkup(*read[parts[-1]]))
        return {part: TextPart(OdfMarkup(*read[part], styles), self.left) for part in parts}
