"""Damaged, hostile or odd Word documents and placeholders in any order: a one-line error, or every element once."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from lxml import etree

from scaleformer.formats.office import DocxFile
from scaleformer.system.errors import DataError
from tests.formats.fake import jumbler, translate, unchanged
from tests.formats.faults import check_damage, check_fault
from tests.formats.word import BOMB, OVERRIDE, TYPES, W, body, box, document, field, p, packed, parts_of, r, real


def spoilt(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :]


def encrypted() -> bytes:
    data = bytearray(document(p(r("a"))))
    for sign, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        place = -1
        while (place := data.find(sign, place + 1)) >= 0:
            data[place + offset] |= 1
    return bytes(data)


def method(number: int) -> bytes:
    data = bytearray(document(p(r("a"))))
    for sign, offset in ((b"PK\3\4", 8), (b"PK\1\2", 10)):
        place = -1
        while (place := data.find(sign, place + 1)) >= 0:
            data[place + offset] = number
    return bytes(data)


UNSOUND = r"^a\.docx: not a sound docx file \(.+\)$"
FAULTS: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", UNSOUND),
    "no archive": (lambda: b"words", UNSOUND),
    "a beginning alone": (lambda: b"PK\3\4 and no more", UNSOUND),
    **{f"cut at {n}": (lambda n=n: real()[: len(real()) * n // 1000], UNSOUND) for n in (1, 100, 500, 900, 999)},
    "beginning cut": (lambda: real()[1000:], UNSOUND),
    "spoilt": (lambda: spoilt(document(p(r("a"))), 120), r"^a\.docx: "),
    "spoilt image": (
        lambda: spoilt(packed({"word/document.xml": body(p(r("a"))), "x.png": b"x" * 99}, zipfile.ZIP_STORED), -200),
        "x.png in it is damaged: fetch it again",
    ),
    "empty archive": (lambda: packed({}), "a.docx: an archive that holds no Word document: wanted .docx"),
    "another archive": (lambda: packed({"mimetype": "application/epub+zip"}), "holds no Word document"),
    "a spreadsheet": (
        lambda: packed({"[Content_Types].xml": TYPES.format(OVERRIDE.format("sheet", "x").replace("word", "xl"))}),
        "holds no Word document",
    ),
    "a real spreadsheet": (
        lambda: packed(
            {"[Content_Types].xml": TYPES.format(OVERRIDE.format("a", "sheet.main").replace("word", "spread")),
             "word/a.xml": "<worksheet/>"}
        ),
        "holds no Word document",
    ),
    "main part missing": (
        lambda: packed({"[Content_Types].xml": TYPES.format(OVERRIDE.format("document", "document.main"))}),
        "holds no Word document",
    ),
    "old format": (lambda: b"\xd0\xcf\x11\xe0" + bytes(600), "an old or encrypted Word document"),
    "password": (encrypted, UNSOUND),
    "unknown packing": (lambda: method(77), UNSOUND),
    "other packing": (lambda: method(12), UNSOUND),
    "bomb": (lambda: document(p(r("a" * 60_000_000))), r"word/document.xml: [\d,]+ bytes unpack to [\d,]+: not"),
    "bomb of elements": (lambda: document("<w:p/>" * 3_000_000), "bytes unpack to"),
    "bomb beside it": (
        lambda: packed({"word/document.xml": body(p(r("a"))), "b.bin": bytes(1 << 28)}),
        "bytes unpacked, more than 268,435,456: split it",
    ),
    "bomb of types": (lambda: packed({"[Content_Types].xml": " " * 60_000_000}), "bytes unpack to"),
    "laughs": (lambda: packed({"word/document.xml": BOMB + "<a>&e29;</a>"}), "declares the entity 'e0'"),
    "laughs in UTF-16": (
        lambda: packed({"word/document.xml": (BOMB + "<a>&e29;</a>").encode("utf-16")}),
        "declares the entity 'e0'",
    ),
    "laughs in UTF-16 without a mark": (
        lambda: packed({"word/document.xml": (BOMB + "<a>&e29;</a>").encode("utf-16-be")}),
        "declares the entity 'e0'",
    ),
    "laughs in types": (lambda: packed({"[Content_Types].xml": BOMB + "<a b='&e29;'/>"}), "declares the entity 'e0'"),
    "from outside": (
        lambda: packed({"word/document.xml": "<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><x>&e;</x>"}),
        "declares the entity 'e'",
    ),
    "undefined": (lambda: document(p(r("&nbsp;"))), "a.docx: word/document.xml:1: malformed XML .undefined entity"),
    "deep": (lambda: document("<w:tbl>" * 5_000), "more than 256 nested elements"),
    "deep runs": (lambda: document(p("<w:ins>" * 300 + r("a") + "</w:ins>" * 300)), "more than 256 nested elements"),
    "not closed": (lambda: document("<w:p><w:r>"), "malformed XML .mismatched tag"),
    "cut part": (lambda: packed({"word/document.xml": body(p(r("a")))[:-20]}), "malformed XML"),
    "no xml": (lambda: packed({"word/document.xml": b"\x89PNG"}), "malformed XML .not UTF-8"),
    "empty part": (lambda: packed({"word/document.xml": b""}), "malformed XML .no element found"),
    "latin-1": (lambda: packed({"word/document.xml": body(p(r("é"))).encode("latin-1")}), "malformed XML .not UTF-8"),
    "null": (lambda: document(p(r("a\0b"))), "malformed XML .*invalid token"),
    "header": (lambda: document(p(r("a")), header="<w:p>"), r"a\.docx: word/header\.xml:1: malformed XML"),
    "prefix": (lambda: document("<z:p/>"), "malformed XML .unbound prefix"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str) -> None:
    make, message = FAULTS[name]
    check_fault(lambda: DocxFile(make(), "a.docx"), message, "a.docx: ")


def test_whatever_a_model_makes_of_the_placeholders() -> None:
    """Every letter and element is there once, inside a valid parent."""
    random = Random(3)

    def made(depth: int = 0) -> str:
        def inner() -> str:
            return "".join(made(depth + 1) for _ in range(random.randrange(3)))

        words = "".join(random.choices(("word ", "x", " ", "End. ", "%s ", "&amp; "), k=3))
        kinds = (
            lambda: r(words, random.choice(("", "<w:b/>", "<w:u/>", "<w:lang/>"))),
            lambda: f'<w:hyperlink r:id="x">{inner()}</w:hyperlink>',
            lambda: f"<w:ins>{inner()}</w:ins>",
            lambda: f"<w:sdt><w:sdtPr/><w:sdtContent>{inner()}</w:sdtContent></w:sdt>",
            lambda: field("HYPERLINK x", inner()),
            lambda: field("PAGE", r("3")),
            lambda: "<w:r><w:tab/><w:t>z</w:t></w:r>",
            lambda: f"<w:bookmark{random.choice(('Start', 'End'))} w:id='{random.randrange(3)}'/>",
            lambda: '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'.format(random.choice(("begin", "separate", "end"))),
            lambda: box(p(inner()), p(inner())),
        )
        return random.choices(kinds, (12 if depth < 4 else 1000, *[1] * (len(kinds) - 1)))[0]()

    def held(data: bytes) -> tuple[Counter[object], list[str]]:
        root = etree.fromstring(parts_of(data)["word/document.xml"])
        names = [etree.QName(element).localname for element in root.iter(etree.Element)]
        letters = "".join(element.text or "" for element in root.iter(f"{{{W}}}t")).upper()
        parts_of_runs = ("r", "t", "rPr", "b", "u", "lang")
        return Counter(name for name in names if name not in parts_of_runs), sorted(letters.replace(" ", ""))

    for _ in range(300):
        data = document("".join(p(*(made() for _ in range(random.randrange(1, 8)))) for _ in range(2)))
        assert held(translate(DocxFile(data, "a.docx"), jumbler(random))[0]) == held(data)


def test_no_damage_is_another_error() -> None:
    check_damage(DocxFile, real(), "a.docx", times=25)
    xml, random = parts_of(real())["word/document.xml"], Random(3)
    for _ in range(80):
        begin = random.randrange(len(xml))
        cut = xml[:begin] + xml[begin + random.randrange(1, 40) :]
        with suppress(DataError):
            translate(DocxFile(packed({"word/document.xml": cut}), "a.docx"))


FIELD = [f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")]
ODD: dict[str, Callable[[], bytes]] = {
    "a folder with an absolute name": lambda: packed({"/x/": b"", "../x": b"y", "word/document.xml": body(p(r("a")))}),
    "a huge attribute": lambda: packed({"word/document.xml": body(f"<w:p w:x='{'x' * 3_000_000}'>{r('a')}</w:p>")}, 0),
    "another document inside": lambda: packed({"word/document.xml": body(p(r("a"))), "word/b.docx": real()}),
    "many runs": lambda: document(p(*(r(f"w{n} ", "<w:b/>" * (n % 2)) for n in range(3_000)))),
    "fields without end": lambda: document(p(r("a"), '<w:r><w:fldChar w:fldCharType="begin"/></w:r>' * 3_000)),
    "ends without field": lambda: document(p(r("a"), '<w:r><w:fldChar w:fldCharType="end"/></w:r>' * 3_000)),
    "nested fields": lambda: document(p(r("a"), field("A", field("HYPERLINK", field("B", r("b"))))) * 50),
    "deep fields": lambda: document(p(r("a"), "".join(FIELD[0] + FIELD[1] for _ in range(3_000)), FIELD[2] * 3_000)),
    "fields across links": lambda: document(
        p(r("a"), field("A", "</w:hyperlink>" + r("b")).replace("<w:r>", "<w:hyperlink><w:r>", 1))
    ),
    "odd fields": lambda: document(p(r("a"), '<w:r><w:fldChar w:fldCharType=")"/><w:fldChar/></w:r><w:end/>')),
    "crossed bookmarks": lambda: document(
        p("<w:bookmarkStart w:id='1'/>", r("a"), "<w:bookmarkStart w:id='2'/><w:bookmarkEnd w:id='1'/>", r("b"),
          "<w:bookmarkEnd w:id='2'/><w:bookmarkEnd w:id='3'/><w:bookmarkStart/>")
    ),
    "paragraphs in paragraphs": lambda: document("<w:p>" + r("a") + p(r("b") + p(r("c"))) + r("d") + "</w:p>"),
    "fallbacks alone": lambda: document(p("<mc:Fallback>", r("x"), p(r("a")), "</mc:Fallback>", r("b"))),
    "no space after types": lambda: packed({"[Content_Types].xml": "<Types/>", "word/document.xml": body(p(r("a")))}),
    "many paragraphs": lambda: document("".join(p(r(f"Text {n}.")) for n in range(4_000))),
    "text outside runs": lambda: document("<w:p>x<w:t>y</w:t><![CDATA[z]]>" + r("a<![CDATA[<b>]]>") + "</w:p>"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_read_quickly(name: str) -> None:
    data = ODD[name]()
    file = DocxFile(data, "a.docx")
    assert file.blocks
    assert unchanged(file) == data
    for part in parts_of(translate(file)[0]).values():
        if part.startswith(b"<"):
            etree.fromstring(part, etree.XMLParser(huge_tree=True))
