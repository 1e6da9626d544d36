"""Word documents: paragraphs wherever they stand are translated with all that they hold, the rest stays to the byte."""

from __future__ import annotations

import io
import struct
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import docx
import pytest
from docx.enum.text import WD_BREAK
from docx.opc.constants import RELATIONSHIP_TYPE
from lxml import etree

from scaleformer.data.errors import DataError
from scaleformer.translation.files.docx import DocxFile
from tests.translation.files.fake import jumbler, translate, unchanged

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SPACES = (
    f'xmlns:w="{W}" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
)
TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="xml" '
    'ContentType="application/xml"/>{}</Types>'
)
OVERRIDE = (
    '<Override PartName="/word/{}.xml" ContentType='
    '"application/vnd.openxmlformats-officedocument.wordprocessingml.{}+xml"/>'
)
BOMB = '<!DOCTYPE x [<!ENTITY e0 "x">' + "".join(f'<!ENTITY e{n} "&e{n - 1};&e{n - 1};">' for n in range(1, 30)) + "]>"


def packed(parts: dict[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def body(xml: str) -> str:
    return f"<?xml version='1.0'?><w:document {SPACES}><w:body>{xml}<w:sectPr/></w:body></w:document>"


def document(xml: str, **others: str) -> bytes:
    """A file with this body, and other parts by kind."""
    overrides = [OVERRIDE.format("document", "document.main"), *(OVERRIDE.format(kind, kind) for kind in others)]
    parts = {"[Content_Types].xml": TYPES.format("".join(overrides)), "word/document.xml": body(xml)}
    return packed(parts | {f"word/{kind}.xml": f"<w:{kind} {SPACES}>{xml}</w:{kind}>" for kind, xml in others.items()})


def parts_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def inside(data: bytes) -> str:
    """The body of a file of `document`."""
    return parts_of(data)["word/document.xml"].decode().partition("<w:body>")[2].partition("<w:sectPr/>")[0]


def texts(xml: str, **others: str) -> list[str]:
    return [block.text for block in DocxFile(document(xml, **others), "a.docx").blocks]


def r(text: str, properties: str = "") -> str:
    properties = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r>{properties}<w:t xml:space="preserve">{text}</w:t></w:r>'


def p(*runs: str) -> str:
    return f"<w:p><w:pPr><w:jc/></w:pPr>{''.join(runs)}</w:p>"


def field(code: str, result: str) -> str:
    kinds = [f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")]
    return f"{kinds[0]}<w:r><w:instrText> {code} </w:instrText></w:r>{kinds[1]}{result}{kinds[2]}"


FORMULA = "<m:oMath><m:r><m:t>x</m:t></m:r></m:oMath>"
NOTE = "<w:r><w:footnoteReference w:id='2'/></w:r>"
INSERTED = "<w:ins>" + r("{}") + "</w:ins><w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"


def control(properties: str, text: str) -> str:
    return f"<w:sdt><w:sdtPr>{properties}</w:sdtPr><w:sdtContent>{r(text)}</w:sdtContent></w:sdt>"


def real() -> bytes:
    """A document as python-docx writes it, with most of what Word has."""
    made = docx.Document()
    made.add_heading("The title", 1)
    paragraph = made.add_paragraph("Some ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(" and ")
    paragraph.add_run("italic").italic = True
    paragraph.add_run(" words & < more.").add_break(WD_BREAK.LINE)
    link = docx.oxml.OxmlElement("w:hyperlink")
    identity = made.part.relate_to("https://example.org", RELATIONSHIP_TYPE.HYPERLINK, is_external=True)
    link.set(docx.oxml.ns.qn("r:id"), identity)
    link.append(paragraph.add_run("a link")._r)
    paragraph._p.append(link)
    paragraph.add_run(" here.\tEnd.")
    image = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)) + chunk(b"IEND", b"")
    paragraph.add_run().add_picture(io.BytesIO(image))
    made.add_paragraph("one", style="List Bullet")
    table = made.add_table(1, 2)
    table.cell(0, 0).text = "A cell."
    table.cell(0, 1).text = "12.5"
    made.sections[0].header.paragraphs[0].text = "The header"
    made.sections[0].footer.paragraphs[0].text = "The footer"
    file = io.BytesIO()
    made.save(file)
    return file.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zipfile.crc32(name + data))


def shape(made: Any) -> list[object]:
    """What is to be the same before and after."""
    elements = Counter(
        etree.QName(e).localname
        for e in made.element.body.iter(etree.Element)
        if e.tag != f"{{{W}}}lastRenderedPageBreak"
    )
    return [
        [paragraph.style.name for paragraph in made.paragraphs],
        [Counter((run.bold, run.italic) for run in p.runs if run.bold or run.italic) for p in made.paragraphs],
        [[link.address for link in paragraph.hyperlinks] for paragraph in made.paragraphs],
        elements["drawing"], elements["tab"], elements["br"], elements["tbl"], elements["p"],
    ]  # fmt: skip


def test_a_real_document() -> None:
    data = real()
    file = DocxFile(data, "a.docx")
    assert [block.text for block in file.blocks] == [
        "The title",
        "Some ￼bold￼ and ￼italic￼ words & < more.￼￼a link￼ here.￼End.",
        "one",
        "A cell.",
        "The header",
        "The footer",
    ]
    assert unchanged(file) == data
    translated, counts = translate(file)
    before, after = docx.Document(io.BytesIO(data)), docx.Document(io.BytesIO(translated))
    assert not counts
    assert shape(before) == shape(after)
    assert [paragraph.text.replace("\t", " ").split() for paragraph in after.paragraphs] == [
        ["THE", "TITLE"],
        ["SOME", "BOLD", "AND", "ITALIC", "WORDS", "&", "<", "MORE.", "A", "LINK", "HERE.", "END."],
        ["ONE"],
    ]
    assert {run.text for run in after.paragraphs[1].runs if run.bold} == {"BOLD"}
    assert after.tables[0].cell(0, 0).text == "A CELL."
    assert after.sections[0].header.paragraphs[0].text == "THE HEADER"
    assert after.sections[0].footer.paragraphs[0].text == "THE FOOTER"
    old, new = parts_of(data), parts_of(translated)
    assert list(old) == list(new)
    changed = {name for name in old if old[name] != new[name]}
    assert changed == {"word/document.xml", "word/header1.xml", "word/footer1.xml"}


def test_unchanged_paragraphs_stay_to_the_byte() -> None:
    odd = "<w:p  a='1'><w:r ><w:t>Kept  as &#233; it</w:t >\n<!-- c --></w:r></w:p>"
    data = document(odd.replace(" a='1'", "") + p(r("Changed.")) + odd.replace(" a='1'", ""))
    found = translate(DocxFile(data, "a.docx"), lambda s: s.text if "Kept" in s.text else "Neu.")[0]
    assert inside(found) == inside(data).replace("Changed.", "Neu.")


@pytest.mark.parametrize(
    ("runs", "text", "wanted"),
    [
        (r("One ") + r("two."), "One two.", r("ONE TWO.")),
        (r("See ") + r("this", "<w:b/>") + r(" now."), "See ￼this￼ now.", r("SEE ") + r("THIS", "<w:b/>") + r(" NOW.")),
        # languages and checks of spelling are no formatting
        (
            "<w:proofErr w:type='spellStart'/>" + r("See ", '<w:lang w:val="en"/>') + r("this", "<w:noProof/>"),
            "See this",
            "<w:proofErr w:type='spellStart'/>" + r("SEE THIS", '<w:lang w:val="en"/>'),
        ),
        # that of most letters is the prose's
        (r("All bold ", "<w:b/>") + r("not"), "All bold ￼not￼", r("ALL BOLD ", "<w:b/>") + r("NOT")),
        # white space alone is not formatted, unless it is a line to write on
        (r("One") + r(" ", "<w:b/>") + r("two"), "One two", r("ONE TWO")),
        (r("Name: ") + r("  ", "<w:u/>") + r("!"), "Name: ￼!", r("NAME: ") + r("  ", "<w:u/>") + r("!")),
        (
            r("Go ") + '<w:hyperlink r:id="x">' + r("home", "<w:u/>") + "</w:hyperlink>" + r(" now"),
            "Go ￼￼home￼￼ now",
            r("GO ") + '<w:hyperlink r:id="x">' + r("HOME", "<w:u/>") + "</w:hyperlink>" + r(" NOW"),
        ),
        (
            r("Old ") + INSERTED.format("new ") + r("end"),
            "Old ￼new ￼￼end",
            r("OLD ") + INSERTED.format("NEW ") + r("END"),
        ),
        (
            r("Read ") + control("<w:id/>", "this") + r("."),
            "Read ￼this￼.",
            r("READ ") + control("<w:id/>", "THIS") + r("."),
        ),
        (
            r("Is ") + control("<w:dropDownList/>", "a") + r("!"),
            "Is ￼!",
            r("IS ") + control("<w:dropDownList/>", "a") + r("!"),
        ),
        (r("Page ") + field("PAGE", r("3")) + r(" of"), "Page ￼ of", r("PAGE ") + field("PAGE", r("3")) + r(" OF")),
        (
            r("Go ") + field("HYPERLINK &quot;x&quot;", r("home")) + r("."),
            "Go ￼home￼.",
            r("GO ") + field("HYPERLINK &quot;x&quot;", r("HOME")) + r("."),
        ),
        (
            "<w:bookmarkStart w:id='1'/>" + r("Title") + "<w:bookmarkEnd w:id='1'/>",
            "Title",
            "<w:bookmarkStart w:id='1'/>" + r("TITLE") + "<w:bookmarkEnd w:id='1'/>",
        ),
        # so is what stands in front of all words and behind them; but a field, a formula or another formatting is not
        (
            NOTE + " <w:commentRangeStart w:id='1'/>" + r(" A word") + NOTE + "<w:commentRangeEnd w:id='1'/>",
            "A word",
            NOTE + "<w:commentRangeStart w:id='1'/>" + r(" A WORD") + NOTE + "<w:commentRangeEnd w:id='1'/>",
        ),
        (NOTE + FORMULA + r(" and ") + r("b", "<w:b/>") + NOTE, "￼ and ￼b￼", None),
        (
            "<w:bookmarkStart w:id='1'/>" + r("A b") + "<w:bookmarkEnd w:id='1'/>" + r(" c"),
            "￼A b￼ c",
            "<w:bookmarkStart w:id='1'/>" + r("A B") + "<w:bookmarkEnd w:id='1'/>" + r(" C"),
        ),
        # which scripts fonts are for is no formatting
        (r("a ", '<w:rFonts w:hint="eastAsia"/>') + r("b") + r(" c", '<w:rFonts w:ascii="x"/>'), "a b ￼c￼", None),
        (
            r("A note") + "<w:r><w:rPr><w:i/></w:rPr><w:footnoteReference w:id='2'/></w:r>" + r(" of"),
            "A note￼ of",
            r("A NOTE") + "<w:r><w:rPr><w:i/></w:rPr><w:footnoteReference w:id='2'/></w:r>" + r(" OF"),
        ),
        (
            r("Sum ") + FORMULA + r(" and ") + "<w:fldSimple w:instr='A'/>" + r("b"),
            "Sum ￼ and ￼b",
            r("SUM ") + "<w:fldSimple w:instr='A'/>" + r(" AND ") + FORMULA + r("B"),
        ),
        ("<w:r><w:t> A </w:t><w:tab/><w:t>b</w:t></w:r>", "A￼b", None),
        ("<w:r><w:t>non</w:t><w:noBreakHyphen/><w:softHyphen/><w:t>stop</w:t></w:r>", "non\u2011stop", None),
        ("<w:smartTag><w:smartTagPr/>" + r("Rome") + "</w:smartTag>" + r(" is"), "￼Rome￼ is", None),
        ("<w:r/><w:hyperlink/>" + r("a &amp;&lt; b"), "a &< b", "<w:hyperlink/>" + r("A &amp;&lt; B")),
    ],
)  # fmt: skip
def test_paragraphs(runs: str, text: str, wanted: str | None) -> None:
    data = document(p(runs))
    file = DocxFile(data, "a.docx")
    assert [block.text for block in file.blocks] == [text]
    found = inside(translate(file)[0])
    etree.fromstring(body(found))
    if wanted is not None:
        assert found == p(wanted)


def test_fields_over_several_paragraphs() -> None:
    """Tables of contents: what they show is prose, the codes stand where they stood."""
    first, rest = field("TOC", "|").split("|")
    entry = (
        '<w:hyperlink w:anchor="a">'
        + r("Title")
        + "<w:r><w:tab/></w:r>"
        + field("PAGEREF a", r("3"))
        + "</w:hyperlink>"
    )
    file = DocxFile(document(p(first, entry) + p(entry) + p(rest)), "a.docx")
    assert [block.text for block in file.blocks] == ["Title￼￼", "Title￼￼"]
    found = translate(file, lambda segment: segment.text.upper())[0]
    assert inside(found) == inside(document(p(first, entry) + p(entry) + p(rest))).replace("Title", "TITLE")


def box(choice: str, fallback: str) -> str:
    choice, fallback = (f"<w:txbxContent>{xml}</w:txbxContent>" for xml in (choice, fallback))
    inner = f"<mc:Choice>{choice}</mc:Choice><mc:Fallback>{fallback}</mc:Fallback>"
    return f"<w:r><mc:AlternateContent>{inner}</mc:AlternateContent></w:r>"


def test_text_boxes() -> None:
    """The fallback gets the same translation where it says the same, with its own spans."""
    link = '<w:hyperlink r:id="{}">' + r("link") + "</w:hyperlink>"
    twice = [p(r("In a "), link.format(n), r(".")) for n in "ab"]
    xml = p(r("Around "), box(twice[0] + p(r("More")), twice[1] + p(r("Other"))), r(" it"))
    file = DocxFile(document(xml), "a.docx")
    assert [block.text for block in file.blocks] == ["Around ￼ it", "In a ￼link￼.", "More", "Other"]
    wanted = xml
    for word in ("Around ", "In a ", "link<", "More", "Other", " it"):
        wanted = wanted.replace(word, word.upper())
    assert inside(translate(file)[0]) == wanted
    only_inside = translate(file, lambda s: s.text.replace("More", "Mehr").replace("In a", "Im"))[0]
    assert inside(only_inside) == xml.replace("More", "Mehr").replace("In a ", "Im ")


def test_where_paragraphs_stand() -> None:
    found = texts(
        "<w:sdt><w:sdtContent>" + p(r("Control")) + "</w:sdtContent></w:sdt><w:tbl><w:tr><w:tc>" + p(r("Cell"))
        + "</w:tc></w:tr></w:tbl><w:del>" + p(r("Gone")) + "</w:del><w:p/>" + p(r("12")),
        header=p(r("Header")), footer=p(r("Footer")), footnotes="<w:footnote>" + p(r("Note")) + "</w:footnote>",
        endnotes=p(r("End")), comments=p(r("Comment")),
    )  # fmt: skip
    assert found == ["Control", "Cell", "Note", "End", "Header", "Footer"]


def test_what_is_left_is_counted() -> None:
    deleted = "<w:del><w:r><w:delText>x</w:delText></w:r></w:del>"
    file = DocxFile(document(p(r("a"), deleted, field("PAGE", r("3"))), comments=p(r("Comment"))), "a.docx")
    assert file.left == {"deleted texts": 1, "fields": 1, "parts with comments": 1}


def test_other_name_spaces_and_encodings() -> None:
    xml = f'<document xmlns="{W}"><body><p><r><t>One</t></r></p></body></document>'
    strict = xml.replace(W, "http://purl.oclc.org/ooxml/wordprocessingml/main")
    for text in (xml, strict, "\ufeff" + xml):
        for encoding in ("utf-8", "utf-16-le"):
            if encoding != "utf-8" and not text.startswith("\ufeff"):
                continue
            file = DocxFile(packed({"word/document.xml": text.encode(encoding)}), "a.docx")
            found = parts_of(translate(file)[0])["word/document.xml"].decode(encoding)
            assert found == text.replace("<t>One", '<t xml:space="preserve">ONE')


def test_characters_that_xml_does_not_have() -> None:
    data = document(p(r("One")))
    found = translate(DocxFile(data, "a.docx"), lambda _: "a\x00\x0bb\ufffe <é>")[0]
    assert inside(found) == p(r("a b  &lt;é&gt;"))


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
    "main part missing": (
        lambda: packed({"[Content_Types].xml": TYPES.format(OVERRIDE.format("document", "document.main"))}),
        "holds no Word document",
    ),
    "old format": (lambda: b"\xd0\xcf\x11\xe0" + bytes(600), "an old Word document, or one with a password"),
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
    "laughs in types": (lambda: packed({"[Content_Types].xml": BOMB + "<a b='&e29;'/>"}), "declares the entity 'e0'"),
    "from outside": (
        lambda: packed({"word/document.xml": "<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><x>&e;</x>"}),
        "declares the entity 'e'",
    ),
    "undefined": (lambda: document(p(r("&nbsp;"))), "a.docx: word/document.xml:1: malformed XML .undefined entity"),
    "deep": (lambda: document("<w:tbl>" * 5_000), "more than 256 elements inside each other"),
    "deep runs": (lambda: document(p("<w:ins>" * 300 + r("a") + "</w:ins>" * 300)), "more than 256 elements"),
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
    with pytest.raises(DataError, match=message) as caught:
        DocxFile(make(), "a.docx")
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


def test_whatever_a_model_makes_of_the_placeholders() -> None:
    """Everything is there once, inside what it may stand in, and every letter."""
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
    data = real()
    random = Random(3)
    for _ in range(60):
        damaged = spoilt(data, random.randrange(len(data)))
        with suppress(DataError):
            translate(DocxFile(damaged, "a.docx"))
    xml = parts_of(data)["word/document.xml"]
    for _ in range(200):
        begin = random.randrange(len(xml))
        cut = xml[:begin] + xml[begin + random.randrange(1, 40) :]
        with suppress(DataError):
            translate(DocxFile(packed({"word/document.xml": cut}), "a.docx"))


ODD: dict[str, Callable[[], bytes]] = {
    "a folder with an absolute name": lambda: packed({"/x/": b"", "../x": b"y", "word/document.xml": body(p(r("a")))}),
    "a huge attribute": lambda: packed({"word/document.xml": body(f"<w:p w:x='{'x' * 3_000_000}'>{r('a')}</w:p>")}, 0),
    "another document inside": lambda: packed({"word/document.xml": body(p(r("a"))), "word/b.docx": real()}),
    "many runs": lambda: document(p(*(r(f"w{n} ", "<w:b/>" * (n % 2)) for n in range(3_000)))),
    "fields without end": lambda: document(p(r("a"), '<w:r><w:fldChar w:fldCharType="begin"/></w:r>' * 3_000)),
    "ends without field": lambda: document(p(r("a"), '<w:r><w:fldChar w:fldCharType="end"/></w:r>' * 3_000)),
    "nested fields": lambda: document(p(r("a"), field("A", field("HYPERLINK", field("B", r("b"))))) * 50),
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
    "many paragraphs": lambda: document("".join(p(r(f"Text {n}.")) for n in range(10_000))),
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
