"""PowerPoint presentations: slides, notes, tables, charts and diagrams are translated, the rest stays to the byte.

What they share with Word documents is tested with those.
"""

from __future__ import annotations

from random import Random

import pytest
from lxml import etree

from scaleformer.formats.office import PptxFile
from scaleformer.system.errors import DataError
from tests.formats.fake import jumbler, shown, translate, unchanged
from tests.formats.faults import check_damage, check_fault
from tests.formats.slides import ap, ar, presentation, shape, slide
from tests.formats.word import BOMB, document, p, packed, parts_of, r

LINK = '<a:hlinkClick r:id="rId2"/>'
NUMBER = '<a:fld id="x" type="slidenum"><a:rPr/><a:t>3</a:t></a:fld>'
PLACEHOLDER = "Click to edit"


def test_what_is_read() -> None:
    """Slides in the order of the presentation, each before its chart and its notes."""
    relations = {
        "presentation.xml": {"rId1": "slides/slide2.xml", "rId2": "/ppt/slides/slide1.xml"},
        "slides/slide2.xml": {
            "rId1": "../slideLayout.xml", "rId2": "../notesSlide.xml", "rId3": "../chart.xml", "rId4": "slide1.xml",
            "rId5": "https://example.org/",
        },
        "notesSlide.xml": {"rId1": "slides/slide2.xml"},
    }  # fmt: skip
    table = f"<a:tbl><a:tr><a:tc><a:txBody>{ap(ar('A cell'))}</a:txBody></a:tc></a:tr></a:tbl>"
    data = presentation(
        shape(ap(ar("The last slide"))) + table,
        shape(ap(ar("The title")), role="ctrTitle") + '<c r:id="rId3"/>' + shape(ap(ar("12"))),
        relations=relations,
        notesSlide=shape(ap(ar("A note."))) + shape(ap(NUMBER)),
        chart=ap(ar("Of a chart")) + "<c:strCache></c:strCache>",
        slideLayout=shape(ap(ar(PLACEHOLDER)), role="title") + shape(ap(ar("The company"))),
        comments=ap(ar("Look here!")),
    )
    file = PptxFile(data, "a.pptx")
    assert shown(file) == [
        ("title", "The title"),
        ("paragraph", "Of a chart"),
        ("paragraph", "A note."),
        ("paragraph", "The last slide"),
        ("cell", "A cell"),
        ("paragraph", "The company"),
    ]
    assert unchanged(file) == data
    translated, counts = translate(file)
    assert not counts
    old, new = parts_of(data), parts_of(translated)
    assert list(old) == list(new)
    for name in old:
        wanted = old[name].decode()
        for _, text in shown(file):
            wanted = wanted.replace(text, text.upper())
        assert new[name].decode() == wanted
    wanted = {"fields": 1, "parts with comments": 1, "labels in the data of charts": 1}
    assert file.left == wanted


@pytest.mark.parametrize(
    ("runs", "text", "wanted"),
    [
        (ar("One ") + ar("two", 'b="1"') + ar("."), "One ￼two￼.", ar("ONE ") + ar("TWO", 'b="1"') + ar(".")),
        # what cannot be seen is no formatting
        (ar("One ", 'lang="en" dirty="0"') + ar("two", 'lang="de" err="1" b="0"'), "One two", None),
        (ar("One ", 'u="none"') + ar("two", 'strike="noStrike" baseline="0"'), "One two", None),
        (
            ar("See ") + ar("here", "", LINK) + ar(" now"),
            "See ￼here￼ now",
            ar("SEE ") + ar("HERE", "", LINK) + ar(" NOW"),
        ),
        (ar("Page ") + NUMBER + ar(" of all"), "Page ￼ of all", ar("PAGE ") + NUMBER + ar(" OF ALL")),
        (ar("a &lt; b"), "a < b", ar("A &lt; B")),
        (ar("Run ") + ar("ls  -l", "", '<a:latin typeface="Courier New"/>') + ar(" twice"), "Run ￼ twice", None),
        # white space is kept without an attribute, and a tab is a character
        (ar("Name\tWord"), "Name￼Word", ar("NAME\tWORD")),
    ],
)  # fmt: skip
def test_paragraphs(runs: str, text: str, wanted: str | None) -> None:
    data = presentation(shape(ap(runs)))
    file = PptxFile(data, "a.pptx")
    assert [block.text for block in file.blocks] == [text]
    assert unchanged(file) == data
    found = slide(translate(file)[0])
    etree.fromstring(parts_of(translate(file)[0])["ppt/slides/slide1.xml"])
    if wanted is not None:
        assert found == shape(ap(wanted))


def test_line_breaks_end_blocks() -> None:
    xml = shape(ap(ar("one") + "<a:br><a:rPr/></a:br>" + ar("two")), ap(ar("three_x000B_four")))
    file = PptxFile(presentation(xml), "a.pptx")
    assert [block.text for block in file.blocks] == ["one", "two", "three", "four"]
    wanted = xml.replace("one", "ONE").replace("two", "TWO").replace("three", "THREE").replace("four", "FOUR")
    assert slide(translate(file)[0]) == wanted


def test_a_document_of_another_program() -> None:
    with pytest.raises(DataError, match=r"a\.pptx: an archive that holds no PowerPoint presentation: wanted \.pptx"):
        PptxFile(document(p(r("a"))), "a.pptx")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"not a sound pptx file \("),
        (b"\xd0\xcf\x11\xe0" + bytes(600), "an old or encrypted PowerPoint presentation: save it as .pptx without"),
        (presentation(shape(ap(ar("a"))))[:-200], r"not a sound pptx file \("),
        (presentation(shape(ap(ar("a" * 60_000_000)))), r"ppt/slides/slide1\.xml: [\d,]+ bytes unpack to"),
        (
            packed({**parts_of(presentation("a")), "ppt/slides/slide1.xml": BOMB + "<a>&e29;</a>"}),
            "slide1.xml: declares the entity 'e0'",
        ),
        (presentation("<a:p>" * 300), "more than 256 nested elements"),
        (presentation("<a:p>"), r"slide1\.xml:1: malformed XML"),
    ],
)
def test_faults(data: bytes, message: str) -> None:
    check_fault(lambda: PptxFile(data, "a.pptx"), message, "a.pptx: ")


def test_names_that_lead_out_of_the_archive_and_circles() -> None:
    relations = {
        "slides/slide1.xml": {"rId1": "../../../../etc/passwd", "rId2": "../notesSlide.xml", "rId3": "slide1.xml"},
        "notesSlide.xml": {"rId1": "notesSlide.xml"},
    }
    data = presentation(shape(ap(ar("one"))), relations=relations, notesSlide=ap(ar("two")))
    assert [block.text for block in PptxFile(data, "a.pptx").blocks] == ["one", "two"]


def test_whatever_a_model_makes_of_the_placeholders() -> None:
    """Every letter and element is there once."""
    random = Random(3)
    made = (
        lambda: ar("word. ", random.choice(("", 'b="1"', 'i="1"'))),
        lambda: ar("it", "", LINK),
        lambda: NUMBER,
        lambda: ar("\t%s x "),
        lambda: "<a:br/>",
    )
    for _ in range(100):
        xml = shape(ap(*(random.choice(made)() for _ in range(random.randrange(1, 9)))))
        found = slide(translate(PptxFile(presentation(xml), "a.pptx"), jumbler(random))[0])

        def held(text: str) -> list[str]:
            root = etree.fromstring(f"<x xmlns:a='a' xmlns:p='p' xmlns:r='r'>{text}</x>")
            return sorted("".join("".join(root.itertext()).split()).upper())

        assert held(found) == held(xml)
        assert [found.count(name) for name in ("<a:fld", "<a:br", "<a:endPara")] == [
            xml.count(name) for name in ("<a:fld", "<a:br", "<a:endPara")
        ]


def test_no_damage_is_another_error() -> None:
    check_damage(
        PptxFile, presentation(shape(ap(ar("One ") + ar("two", 'b="1"'))), notesSlide=ap(ar("A note."))), "a.pptx"
    )
