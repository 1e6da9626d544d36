"""OpenDocument texts, slides and tables: paragraphs in every place are translated, the rest stays to the byte."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from random import Random

import pytest
from lxml import etree

from scaleformer.formats.odf import OdfFile
from tests.formats.fake import jumbler, shown, translate, unchanged
from tests.formats.faults import check_damage, check_fault
from tests.formats.word import BOMB, packed, parts_of

NAMES = ("drawing", "office", "presentation", "style", "table", "text")
SPACES = " ".join(f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in NAMES)
SPACES += ' xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0" xmlns:dc="urn:dc"'
MANIFEST = "<manifest><file-entry/></manifest>"
STYLE = '<style:style style:name="{}" style:parent-style-name="{}"><style:text-properties {}/></style:style>'
NAMED = (
    *(STYLE.format("Strong", "", 'fo:font-weight="bold"'), STYLE.format("Plain", "", "")),
    *(
        '<style:style style:name="Source_20_Text" style:display-name="Source Text"/>',
        '<style:style style:name="Heading_20_1" style:display-name="Heading 1"/>',
    ),
    '<style:style style:name="Own" style:parent-style-name="Heading_20_1"/>',
)
AUTOMATIC = (
    STYLE.format("T1", "", 'fo:font-weight="bold"'),
    STYLE.format("T2", "", 'style:rsid="00a1" fo:language="de" style:font-size-complex="9pt" fo:font-style="normal"'),
    STYLE.format("T3", "", 'fo:font-weight="bold" style:rsid="00a2"'),
    STYLE.format("T4", "", 'style:font-name="Courier New1"'),
    STYLE.format("P1", "Own", ""),
    STYLE.format("P2", "", 'style:font-name="DejaVu Sans Mono"'),
)
NOTE = "<text:note><text:note-citation>1</text:note-citation><text:note-body>{}</text:note-body></text:note>"
COMMENT = '<office:annotation office:name="c"><dc:creator>Ann</dc:creator>{}</office:annotation>'
PAGE = "<text:page-number>3</text:page-number>"


def packed_odf(content: str, styles: str = "", kind: str = "text", **others: str) -> bytes:
    """A file with this body, and these master pages."""
    automatic = f"<office:automatic-styles>{''.join(AUTOMATIC)}</office:automatic-styles>"
    named = f"<office:styles>{''.join(NAMED)}</office:styles>"
    masters = f"<office:master-styles><style:master-page>{styles}</style:master-page></office:master-styles>"
    return packed(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "content.xml": f"<office:c {SPACES}>{automatic}<office:body>{content}</office:body></office:c>",
            "styles.xml": f"<office:s {SPACES}>{named}{masters}</office:s>",
            "META-INF/manifest.xml": MANIFEST,
            **others,
        },
        zipfile.ZIP_STORED,
    )


def inside(data: bytes) -> str:
    """The body of a file of `packed_odf`."""
    xml = parts_of(data)["content.xml"].decode()
    return xml.partition("<office:body>")[2].partition("</office:body>")[0]


def p(*parts: str, style: str = "") -> str:
    name = style and f' text:style-name="{style}"'
    return f"<text:p{name}>{''.join(parts)}</text:p>"


def span(style: str, text: str) -> str:
    return f'<text:span text:style-name="{style}">{text}</text:span>'


def cell(text: str, attributes: str = 'office:value-type="string"') -> str:
    return f"<table:table-cell {attributes}>{p(text)}</table:table-cell>"


def test_where_paragraphs_stand() -> None:
    data = packed_odf(
        "<text:tracked-changes><text:deletion>" + p("Gone") + "</text:deletion></text:tracked-changes>"
        "<text:h>The heading</text:h>" + p("Own heading", style="P1") + p("One", NOTE.format(p("A note.")), " two")
        + "<text:list><text:list-item>" + p("An item", COMMENT.format(p("Hm."))) + "</text:list-item></text:list>"
        + "<table:table>" + cell("A cell") + cell("12 May", 'office:value-type="date"')
        + cell("Sum is", 'office:value-type="string" table:formula="of:=A1"') + "</table:table>"
        + p("<draw:frame xmlns:draw='d'><draw:text-box>" + p("A box") + "</draw:text-box></draw:frame>", "Around")
        + "<text:p/>" + p("12") + p("x  = make(y)", style="P2"),
        "<style:header>" + p("The header ", PAGE) + "</style:header>",
    )  # fmt: skip
    file = OdfFile(data, "a.odt")
    assert shown(file) == [
        ("title", "The heading"),
        ("title", "Own heading"),
        ("paragraph", "One two"),
        ("paragraph", "A note."),
        ("item", "An item"),
        ("cell", "A cell"),
        ("paragraph", "Around"),
        ("paragraph", "A box"),
        ("paragraph", "The header `3`"),
    ]
    assert file.left == {"deleted texts": 1, "comments": 1, "cells with formulas": 1, "fields": 1}
    assert unchanged(file) == data
    translated, counts = translate(file)
    assert not counts
    wanted = inside(data)
    for text in ("The heading", "Own heading", "One", " two", "A note.", "An item", "A cell", "A box", "Around"):
        wanted = wanted.replace(f">{text}<", f">{text.upper()}<")
    assert inside(translated) == wanted
    old, new = parts_of(data), parts_of(translated)
    assert list(old) == list(new)
    assert b"THE HEADER" in new["styles.xml"]
    with zipfile.ZipFile(io.BytesIO(translated)) as archive:
        first = archive.infolist()[0]
    assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)


def test_slides() -> None:
    frame = '<draw:frame presentation:class="{}" {}>{}</draw:frame>'.replace("draw:", "drawing:")
    data = packed_odf(
        "<presentation:footer-decl>The company</presentation:footer-decl>"
        + frame.format("title", "", p("The title"))
        + frame.format("outline", 'presentation:placeholder="true"', p("Click to add"))
        + "<presentation:notes>" + frame.format("notes", "", p("Say it.")) + "</presentation:notes>",
        frame.format("title", "", p("Click to edit")) + "<drawing:frame>" + p("On each slide") + "</drawing:frame>",
        "presentation",
    )  # fmt: skip
    wanted = [("paragraph", "The company"), ("title", "The title"), ("paragraph", "Say it.")]
    assert shown(OdfFile(data, "a.odp")) == [*wanted, ("paragraph", "On each slide")]
    assert "<presentation:footer-decl>THE COMPANY<" in inside(translate(OdfFile(data, "a.odp"))[0])


@pytest.mark.parametrize(
    ("parts", "text", "wanted"),
    [
        ("Press " + span("T1", "here") + " now", "Press ￼here￼ now", "PRESS " + span("T1", "HERE") + " NOW"),
        # what cannot be seen is no formatting; equal formatting is one
        ("Press " + span("T2", "here") + span("Plain", " now"), "Press here now", "PRESS HERE NOW"),
        (
            "Press " + span("T1", "here ") + span("T3", "too") + " now",
            "Press ￼here too￼ now",
            "PRESS " + span("T1", "HERE TOO") + " NOW",
        ),
        (
            "Press " + span("Strong", "here " + span("T2", "too")) + " now",
            "Press ￼here too￼ now",
            "PRESS " + span("Strong", "HERE TOO") + " NOW",
        ),
        ("Press " + span("Unknown", "here"), "Press ￼here￼", "PRESS " + span("Unknown", "HERE")),
        # of the whole paragraph is that of the prose
        (span("T1", "All is bold"), "All is bold", span("T1", "ALL IS BOLD")),
        ("Go <text:a href='x'>home</text:a> now", "Go ￼home￼ now", "GO <text:a href='x'>HOME</text:a> NOW"),
        # LibreOffice shows no text of links that get a span on slides, and wants spans in those of texts
        (
            span("T1", "Go bravely ") + "<text:a href='x'>home</text:a>",
            "Go bravely ￼home￼",
            span("T1", "GO BRAVELY ") + "<text:a href='x'>HOME</text:a>",
        ),
        (
            span("T1", "Go bravely <text:a href='x'>home</text:a>"),
            "Go bravely ￼home￼",
            span("T1", "GO BRAVELY ") + span("T1", "<text:a href='x'>HOME</text:a>"),
        ),
        (
            "Go bravely <text:a href='x'>" + span("T1", "home") + "</text:a>",
            "Go bravely ￼￼home￼￼",
            "GO BRAVELY <text:a href='x'>" + span("T1", "HOME") + "</text:a>",
        ),
        (
            "It is here " + span("T1", "has<text:a href='x'> links</text:a> in") + " it",
            "It is here ￼has￼ ￼links￼ ￼in￼ it",
            None,
        ),
        ("Run " + span("Source_20_Text", "a <text:s/>b") + " twice", "Run ￼ twice", None),
        ("Run " + span("T4", "a") + " twice", "Run ￼ twice", "RUN " + span("T4", "a") + " TWICE"),
        ("a<text:s text:c='3'/>b <text:tab/>c", "a b ￼c", "A B <text:tab/>C"),
        ("On " + PAGE + " of", "On ￼ of", "ON " + PAGE + " OF"),
        (
            "<text:bookmark-start text:name='a'/>A b<text:bookmark-end text:name='a'/> c",
            "￼A b￼ c",
            "<text:bookmark-start text:name='a'/>A B<text:bookmark-end text:name='a'/> C",
        ),
        (
            "Old <text:change-start text:change-id='x'/>new<text:change-end text:change-id='x'/> end",
            "Old ￼new￼ end",
            "OLD <text:change-start text:change-id='x'/>NEW<text:change-end text:change-id='x'/> END",
        ),
        ("A<text:soft-page-break/> b &amp; &lt;c", "A b & <c", "A B &amp; &lt;C"),
    ],
)  # fmt: skip
def test_paragraphs(parts: str, text: str, wanted: str | None) -> None:
    data = packed_odf(p(parts))
    file = OdfFile(data, "a.odt")
    assert [block.text for block in file.blocks] == [text]
    assert unchanged(file) == data
    found = inside(translate(file)[0])
    etree.fromstring(f"<x {SPACES}>{found}</x>")
    if wanted is not None:
        assert found == p(wanted)


def test_other_scripts_have_formatting_of_their_own() -> None:
    """What is set for them alone is not seen in Latin letters."""
    style = STYLE.format("T9", "", 'style:font-weight-complex="bold"')
    for text, wanted in (("here", "Press here"), ("هنا", "Press ￼هنا￼")):
        data = parts_of(packed_odf(p("Press ", span("T9", text))))
        content = data["content.xml"].decode().replace("</office:automatic", f"{style}</office:automatic")
        (block,) = OdfFile(packed({**data, "content.xml": content}), "a.odt").blocks
        assert block.text == wanted


def test_line_breaks_end_blocks() -> None:
    data = packed_odf(p("one<text:line-break/>", span("T1", "two")))
    file = OdfFile(data, "a.odt")
    assert [block.text for block in file.blocks] == ["one", "two"]
    assert inside(translate(file)[0]) == p("ONE<text:line-break/>", span("T1", "TWO"))


ENCRYPTED = "<m:manifest xmlns:m='m'><m:file-entry><m:encryption-data/></m:file-entry></m:manifest>"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"not a sound OpenDocument file \("),
        (packed_odf(p("a"))[:-200], r"not a sound OpenDocument file \("),
        (packed({"content.xml": "<a/>"}), "an archive that holds no OpenDocument file: wanted .odt, .odp or .ods"),
        (packed_odf(p("a"), **{"META-INF/manifest.xml": ENCRYPTED}), "an encrypted document: save it without"),
        (packed({"mimetype": "x.opendocument.text", "META-INF/manifest.xml": MANIFEST}), "not a sound OpenDocument"),
        (packed_odf(p("a"), **{"x.bin": "x" * (1 << 28)}), "bytes unpacked, more than 268,435,456: split it"),
        (packed({**parts_of(packed_odf("")), "content.xml": "a" * 60_000_000}), r"content\.xml: [\d,]+ bytes unpack"),
        (packed_odf(p("a"), **{"content.xml": BOMB + "<a>&e29;</a>"}), "content.xml: declares the entity 'e0'"),
        (packed_odf(p("a"), **{"styles.xml": BOMB + "<a>&e29;</a>"}), "styles.xml: declares the entity 'e0'"),
        (packed_odf(span("a", "") * 2 + "<text:span>" * 300), "more than 256 nested elements"),
        (packed_odf("<text:p>"), r"content\.xml:1: malformed XML"),
    ],
)  # fmt: skip
def test_faults(data: bytes, message: str) -> None:
    check_fault(lambda: OdfFile(data, "a.odt"), message, "a.odt: ")


def test_whatever_a_model_makes_of_the_placeholders() -> None:
    """Every letter and element is there once, but spans and links, which may be parted."""
    random = Random(3)

    def made(depth: int = 0) -> str:
        def inner() -> str:
            return "".join(made(depth + 1) for _ in range(random.randrange(3)))

        kinds = (
            lambda: random.choice(("word ", "x", " ", "End. ", "%s ", "&amp; ")),
            lambda: span(random.choice(("T1", "T2", "Strong", "T4")), inner()),
            lambda: f"<text:a>{inner()}</text:a>",
            lambda: NOTE.format(p(inner())),
            lambda: random.choice((PAGE, "<text:tab/>", "<text:line-break/>", "<text:change/>")),
            lambda: f"<text:bookmark-{random.choice(('start', 'end'))} text:name='{random.randrange(3)}'/>",
        )
        return random.choices(kinds, (6 if depth < 4 else 1000, *[1] * (len(kinds) - 1)))[0]()

    def held(data: bytes) -> tuple[Counter[str], list[str]]:
        root = etree.fromstring(f"<x {SPACES}>{inside(data)}</x>")
        names = [etree.QName(element).localname for element in root.iter(etree.Element)]
        letters = "".join("".join(root.itertext()).split()).upper()
        return Counter(name for name in names if name not in ("a", "span")), sorted(letters)

    for _ in range(300):
        data = packed_odf("".join(p(*(made() for _ in range(random.randrange(1, 8)))) for _ in range(2)))
        assert held(translate(OdfFile(data, "a.odt"), jumbler(random))[0]) == held(data)


def test_no_damage_is_another_error() -> None:
    check_damage(
        OdfFile, packed_odf(p("One ", span("T1", "two")) + "<text:h>A heading</text:h>", p("A header")), "a.odt"
    )
