"""EPUB books: the prose of their pages and tables of contents; metadata but the language, styles and pictures stay.

Source: EPUB 3.3, a W3C Recommendation of 2023, sections 4 (container) and 5 (package document). As in reading systems,
the names of parts may differ in percent-encoding, case and the like, and what the spine does not need may be missing.
"""

from __future__ import annotations

import posixpath
import unicodedata
import zipfile
from urllib.parse import unquote

from scaleformer.formats.archives import ArchiveFile, find_elements, read_part
from scaleformer.formats.html import HtmlFile, language_edits
from scaleformer.formats.markup import decode_xml
from scaleformer.formats.splicing import encode, splice
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PAGES = ("application/xhtml+xml", "text/html")
_CONTENTS = "application/x-dtbncx+xml"  # the table of contents of EPUB 2
_LACKING = "pages that the book names but does not hold, outside its order of reading"


class EpubFile(ArchiveFile):
    """The blocks of all pages in the order of reading, then those of the tables of contents and other pages; language:
    of the translation, for pages and package. Raises DataError if the archive is damaged, holds no book, protects its
    pages, or is too large when unpacked."""

    title = "EPUB"

    def __init__(self, content: bytes, name: str, language: str = "") -> None:
        self.language = language
        super().__init__(content, name)

    def _read(self, archive: zipfile.ZipFile, name: str) -> dict[str, HtmlFile]:
        listed = archive.namelist()
        self._names = {_plain(part): part for part in listed} | dict(zip(listed, listed, strict=True))
        pages = self._pages(archive, name)
        self._description = read_part(archive, self._package, name)
        read = {part: HtmlFile(read_part(archive, part, name), f"{name}: {part}", self.language) for part in pages}
        for file in read.values():
            file.left = self.left
        return read

    def _also_written(self) -> dict[str, bytes]:
        """The package with the language of the translation."""
        text, encoding = decode_xml(self._description, self._package)
        return {self._package: encode(splice(text, language_edits(text, self.language)), encoding)}

    def _find(self, reference: str) -> str:
        """The name in the archive that a reference means; without one, the reference."""
        exact = posixpath.normpath(unquote(reference))
        return self._names.get(exact) or self._names.get(_plain(reference), exact)

    def _pages(self, archive: zipfile.ZipFile, name: str) -> list[str]:
        """The names of the pages of a book in the order of reading, then of its tables of contents and other pages.
        Raises DataError if it is no book, lacks a page, or protects one."""
        if (container := self._find(_CONTAINER)) not in self._names:
            raise DataError(f"{name}: an archive that holds no EPUB book: wanted .epub")
        packages = [root.get("full-path", "") for root in find_elements(archive, container, name, "rootfile")]
        if not packages:
            raise DataError(f"{name}: {_CONTAINER} names no package: wanted .epub")
        self._package = package = self._find(packages[0])  # others are renditions of the same book
        kinds: dict[str, str] = {}
        parts: dict[str, str] = {}
        for item in find_elements(archive, package, name, "item"):
            part = self._find(posixpath.join(posixpath.dirname(package), item.get("href", "").partition("#")[0]))
            parts[item.get("id", "")] = part
            kinds[part] = item.get("media-type", "")
        read = [parts.get(item.get("idref", ""), "") for item in find_elements(archive, package, name, "itemref")]
        first = dict.fromkeys(part for part in read if kinds.get(part) in _PAGES)
        others = [part for part in kinds if kinds[part] in (*_PAGES, _CONTENTS) and part not in first]
        self.left.update(_LACKING for part in others if part not in self._names)
        encrypted = self._find(_ENCRYPTION)  # fonts often are
        marks = find_elements(archive, encrypted, name, "CipherReference") if encrypted in self._names else []
        for part in first:
            if part not in self._names:
                raise DataError(f"{name}: lacks its page {shown(part)}: fetch it again")
        pages = [*first, *(part for part in others if part in self._names)]
        if any(self._find(mark.get("URI", "")) in pages for mark in marks):
            raise DataError(f"{name}: is protected against copying: wanted a book without that")
        return pages


def _plain(name: str) -> str:
    """A name without what does not tell parts apart."""
    name = posixpath.normpath(unquote(name).replace("\\", "/")).lstrip("/")
    return unicodedata.normalize("NFC", name).casefold()
