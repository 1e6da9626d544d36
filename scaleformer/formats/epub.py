"""EPUB books: the prose of their pages and tables of contents; metadata, styles and pictures stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scaleformer.formats.archives import open_archive, read_part
from scaleformer.formats.epub_package import book_parts
from scaleformer.formats.html import HtmlFile
from scaleformer.formats.parts import write_parts
from scaleformer.formats.restoring import Change


class EpubFile:
    """The blocks of all pages in the order of reading, then those of the tables of contents and other pages.

    Raises DataError if the archive is damaged, holds no book, protects its pages, or is too large when unpacked.
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._content = content
        self.left: Counter[str] = Counter()
        with open_archive(content, name, "EPUB") as archive:
            pages, contents = book_parts(archive, name)
            self._parts = {
                part: HtmlFile(read_part(archive, part, name), f"{name}: {part}") for part in [*pages, *contents]
            }
        self.blocks = [block for part in self._parts.values() for block in part.blocks]

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The book with the changes of each block; without changes the same file."""
        return write_parts(self._content, self._parts, changes)
