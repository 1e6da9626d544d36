"""EPUB books: prose in the order of reading, everything else byte for byte."""

from __future__ import annotations

import io
import zipfile

import pytest

from scaleformer.formats.epub import EpubFile
from tests import books
from tests.books import book
from tests.formats.fake import shown, translate, unchanged
from tests.formats.faults import check_damage, check_fault


def contents(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        first = archive.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)  # as readers want it
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_book() -> None:
    data = book()
    file = EpubFile(data, "a.epub")
    assert [block.text for block in file.blocks] == [
        "It begins.",
        "",  # code
        "The end",
        "It ￼ends￼",
        "here & now. Use ￼.",
        "￼To the end￼",
        "To the end",
    ]
    kinds = ("paragraph", "title", *("paragraph",) * 4)
    texts = ("It begins.", "The end", "It <em>ends</em>", "here & now. Use `x`.", "To the end", "To the end")
    assert shown(file) == list(zip(kinds, texts, strict=True))
    assert unchanged(file) == data
    translated, counts = translate(file)
    assert not counts
    old, new = contents(data), contents(translated)
    assert list(old) == list(new)
    assert {name for name in old if old[name] != new[name]} == {
        "text/a.xhtml",
        "text/part 2/b.xhtml",
        "text/nav.xhtml",
        "text/toc.ncx",
    }
    wanted = "<h1>THE END</h1><p>IT <em>ENDS</em><br/>HERE &amp; NOW. USE <code>x</code>.</p>"
    assert new["text/a.xhtml"].decode() == books.PAGE.format(wanted)
    assert new["text/toc.ncx"].decode() == books.CONTENTS.format("TO THE END")


def test_the_encoding_that_a_page_declares() -> None:
    page = books.PAGE.replace("utf-8", "iso-8859-1").format("<p>café</p>")
    translated, _ = translate(EpubFile(book(a=page.encode("latin-1")), "a.epub"), lambda _: "señal 数")
    assert contents(translated)["text/a.xhtml"] == page.replace("café", "señal &#25968;").encode("latin-1")


@pytest.mark.parametrize(
    ("listed", "stored"),
    [
        ("/text/a.xhtml", "text/a.xhtml"),
        ("a.xhtml#part", "text/a.xhtml"),
        ("A.XHTML", "text/a.xhtml"),
        ("a.xhtml", "Text/a.XHTML"),
        ("b%20c.xhtml", "text/b%20c.xhtml"),
        ("b c.xhtml", "text/b%20c.xhtml"),
        ("b%20c.xhtml", "text/b c.xhtml"),
        ("caf%C3%A9.xhtml", "text/cafe\u0301.xhtml"),
        ("a.xhtml", "text\\a.xhtml"),
        ("../text/./a.xhtml", "text/a.xhtml"),
    ],
)
def test_names_that_differ_from_those_in_the_archive(listed: str, stored: str) -> None:
    package = books.PACKAGE.replace('href="a.xhtml"', f'href="{listed}"')
    data = rename(book(**{"book.opf": package}), "text/a.xhtml", stored)
    file = EpubFile(data, "a.epub")
    assert [block.text for block in file.blocks][2] == "The end"
    assert b"THE END" in contents(translate(file)[0])[stored]


def rename(data: bytes, old: str, new: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(packed, "w") as target:
        for part in source.infolist():
            content, part.filename = source.read(part), new if part.filename == old else part.filename
            target.writestr(part, content)
    return packed.getvalue()


def test_what_the_order_of_reading_does_not_need_may_be_missing() -> None:
    file = EpubFile(book(nav=None, toc=None), "a.epub")
    assert [block.text for block in file.blocks][-1] == "here & now. Use ￼."
    assert file.left == {"pages that the book names but does not hold, outside its order of reading": 2}


def test_title_and_language_of_the_book() -> None:
    """The title stays in the table of contents as in the package; the language becomes that of the translation."""
    title = "<docTitle><text>The book</text></docTitle><docAuthor><text>Ann</text></docAuthor>"
    toc = (
        books.CONTENTS.format("To the end")
        .replace("<navMap>", f"{title}<navMap>")
        .replace("<ncx ", '<ncx xml:lang="en" ')
    )
    package = books.PACKAGE.replace("</metadata>", "<dc:language>en-GB</dc:language></metadata>")
    package = package.replace("<package ", '<package xml:lang="en" ')
    page = books.PAGE.replace("<html ", '<html xml:lang="en" lang="en" ').format("<p>One <i lang='fr'>mot</i>.</p>")
    data = book(**{"book.opf": package, "toc": toc, "a.xhtml": page})
    old, new = contents(data), contents(translate(EpubFile(data, "a.epub", "es"))[0])
    assert new["text/book.opf"].decode() == package.replace('"en"', '"es"').replace("en-GB", "es")
    assert new["text/toc.ncx"].decode() == toc.replace('"en"', '"es"').replace("To the end", "TO THE END")
    assert new["text/a.xhtml"].decode() == page.replace('"en"', '"es"').replace("One", "ONE").replace("mot", "MOT")
    assert unchanged(EpubFile(data, "a.epub", "es")) == data
    assert contents(translate(EpubFile(data, "a.epub"))[0])["text/book.opf"] == old["text/book.opf"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\3\4 and no more", r"a\.epub: not a sound EPUB file \("),
        (book(container=None), "a.epub: an archive that holds no EPUB book: wanted .epub"),
        (book(container="<container/>"), "container.xml names no package"),
        (book(container="<container>"), r"container\.xml:1: malformed XML \(no element found"),
        (
            book(container='<!DOCTYPE c [<!ENTITY e "x">]><c>&e;</c>'),
            "declares the entity .e.: entities are not supported",
        ),
        (book(**{"book.opf": None}), "lacks 'text/book.opf': fetch it again"),
        (book(**{"b.xhtml": None}), "lacks its page 'text/part 2/b.xhtml': fetch it again"),
        (book(encryption=books.encrypted("text/part%202/b.xhtml")), "protected against copying: wanted a book"),
        (book(a=b"<p>\xff"), r"a\.epub: text/a\.xhtml:1: not UTF-8"),
        (book(a="<p>" + "a" * 60_000_000), r"text/a\.xhtml: [\d,]+ bytes unpack to"),
    ],
)
def test_faults(data: bytes, message: str) -> None:
    check_fault(lambda: EpubFile(data, "a.epub"), message, "a.epub: ")


def test_no_damage_is_another_error() -> None:
    check_damage(EpubFile, book(), "a.epub", times=60)
