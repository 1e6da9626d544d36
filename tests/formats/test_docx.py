"""Word documents: paragraphs in every place are translated with all their content, the rest stays byte for byte."""

from __future__ import annotations

import io

import docx
import pytest
from lxml import etree

from scaleformer.formats.office import DocxFile
from tests.formats.fake import shown, translate, unchanged
from tests.formats.word import (
    FORMULA,
    INSERTED,
    NOTE,
    W,
    body,
    box,
    control,
    document,
    field,
    inside,
    p,
    packed,
    parts_of,
    r,
    real,
    shape,
    texts,
)


def test_a_real_document() -> None:
    data = real()
    file = DocxFile(data, "a.docx")
    assert [block.text for block in file.blocks] == [
        "The title",
        "Some ￼bold￼ and ￼italic￼ words & < more.",
        "￼a link￼ here.￼End.",
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
        # languages and spelling checks are not formatting
        (
            "<w:proofErr w:type='spellStart'/>" + r("See ", '<w:lang w:val="en"/>') + r("this", "<w:noProof/>"),
            "See this",
            "<w:proofErr w:type='spellStart'/>" + r("SEE THIS", '<w:lang w:val="en"/>'),
        ),
        # the formatting of most letters is that of the prose
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
        # likewise content before and after all words, except fields, formulas and different formatting
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
        # the scripts of fonts are not formatting
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
    """Tables of contents: visible text is prose, codes keep their places."""
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


def test_text_boxes() -> None:
    """A fallback with the same text gets the same translation, with its own spans."""
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


@pytest.mark.parametrize(
    ("styles", "code"),
    [
        ({"a": ("Source Code", None)}, "a"),
        ({"a": ("HTML Preformatted Char", None)}, "a"),
        ({"a": ("Keyword", "b"), "b": ("Token", "c"), "c": ("Verbatim Char", None)}, "abc"),
        ({"a": ("Preformatted Text", None), "b": ("My Code of Conduct", "a")}, ""),
        ({"a": ("Keyword", "b"), "b": ("Token", "a")}, ""),  # a circle
        ({"a": ("Keyword", "none")}, ""),
    ],
)
def test_styles_of_code(styles: dict[str, tuple[str, str | None]], code: str) -> None:
    def based_on(base: str | None) -> str:
        return "" if base is None else f'<w:basedOn w:val="{base}"/>'

    names = "".join(
        f'<w:style w:styleId="{key}"><w:name w:val="{name}"/>{based_on(base)}</w:style>'
        for key, (name, base) in styles.items()
    )
    for key in styles:
        span, paragraph = f'<w:rStyle w:val="{key}"/>', f'<w:pPr><w:pStyle w:val="{key}"/></w:pPr>'
        kept = r("f  (x)", span) + r(" = y", span)
        written = p(r("Call ") + kept) + f"<w:p>{paragraph}{r('x  = 1')}</w:p>"
        data = document(written, styles=names)
        file = DocxFile(data, "a.docx")
        translated, counts = translate(file)
        assert not counts
        if key in code:
            assert shown(file) == [("paragraph", "Call `f (x) = y`")]
            assert [block.kind for block in file.blocks] == ["paragraph", "code"]
            assert inside(translated) == written.replace("Call", "CALL")
        else:
            assert "F (X) = Y" in inside(translated)
            assert "X = 1" in inside(translated)


def test_kinds_of_paragraphs() -> None:
    made = docx.Document()
    made.add_heading("Title", 1)
    made.add_paragraph("A paragraph.")
    made.add_paragraph("one", style="List Bullet")
    table = made.add_table(1, 3)
    table.cell(0, 0).merge(table.cell(0, 1)).text = "wide"
    table.cell(0, 2).text = "b"
    content = io.BytesIO()
    made.save(content)
    wanted = [("title", "Title"), ("paragraph", "A paragraph."), ("item", "one"), ("cell", "wide"), ("cell", "b")]
    assert shown(DocxFile(content.getvalue(), "a.docx")) == wanted


def test_what_trains_of_spans() -> None:
    """Text that is not translated looks like code; formatting and deleted text leave nothing."""
    choice = control("<w:dropDownList/>", "this")
    runs = (
        r("a", "<w:b/>") + "<w:r><w:tab/></w:r>" + INSERTED.format("new ") + field("PAGE", r("3")) + r(" or ") + choice
    )
    file = DocxFile(document(p(runs, r(" word ") + NOTE + FORMULA + r("end."))), "a.docx")
    assert shown(file) == [("paragraph", "a new `3` or `this` word end.")]


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
