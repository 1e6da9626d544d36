"""EPUB books: the prose of their pages and tables of contents; metadata, styles and pictures stay.

Source: EPUB 3.3, a W3C Recommendation of 2023, sections 4 (container) and 5 (package document).
"""

from __future__ import annotations

import posixpath
import zipfile
from urllib.parse import unquote

from scaleformer.formats.archives import ArchiveFile, find_elements, read_part
from scaleformer.formats.html import HtmlFile
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PAGES = ("application/xhtml+xml", "text/html")
_CONTENTS = "application/x-dtbncx+xml"  # the table of contents of EPUB 2


class EpubFile(ArchiveFile):
    """The blocks of all pages in the order of reading, then those of the tables of contents and other pages.

    Raises DataError if the archive is damaged, holds no book, protects its pages, or is too large when unpacked.
    """

    title = "EPUB"

    def _read(self, archive: zipfile.ZipFile, name: str) -> dict[str, HtmlFile]:
        return {part: HtmlFile(read_part(archive, part, name), f"{name}: {part}") for part in _pages(archive, name)}


def _pages(archive: zipfile.ZipFile, name: str) -> list[str]:
    """The names of the pages of a book in the order of reading, then of its tables of contents and other pages.

    Raises DataError if it is no book, lacks a page, or protects one.
    """
    if _CONTAINER not in archive.namelist():
        raise DataError(f"{name}: an archive that holds no EPUB book: wanted .epub")
    packages = [root.get("full-path", "") for root in find_elements(archive, _CONTAINER, name, "rootfile")]
    if not packages:
        raise DataError(f"{name}: {_CONTAINER} names no package: wanted .epub")
    package = packages[0]  # others are renditions of the same book
    kinds: dict[str, str] = {}
    parts: dict[str, str] = {}
    for item in find_elements(archive, package, name, "item"):
        part = posixpath.join(posixpath.dirname(package), unquote(item.get("href", "")))
        parts[item.get("id", "")] = part = posixpath.normpath(part)
        kinds[part] = item.get("media-type", "")
    read = [parts.get(item.get("idref", ""), "") for item in find_elements(archive, package, name, "itemref")]
    others = (part for part, kind in kinds.items() if kind in (*_PAGES, _CONTENTS))
    pages = list(dict.fromkeys([*(part for part in read if kinds.get(part) in _PAGES), *others]))
    locked, names = _locked(archive, name), set(archive.namelist())
    for part in pages:
        if part not in names:
            raise DataError(f"{name}: lacks its page {shown(part)}: fetch it again")
        if part in locked:
            raise DataError(f"{name}: is protected against copying: wanted a book without that")
    return pages


def _locked(archive: zipfile.ZipFile, name: str) -> set[str]:
    """The parts that are encrypted; fonts often are."""
    if _ENCRYPTION not in archive.namelist():
        return set()
    return {unquote(item.get("URI", "")) for item in find_elements(archive, _ENCRYPTION, name, "CipherReference")}
