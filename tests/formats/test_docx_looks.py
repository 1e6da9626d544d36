"""Word documents: which properties of runs and paragraphs part a text, and which cannot be seen."""

from __future__ import annotations

import pytest

from scaleformer.formats.office import DocxFile
from tests.formats.fake import shown, translate
from tests.formats.word import box, document, inside, p, r


@pytest.mark.parametrize(
    ("one", "other", "seen"),
    [
        ("", '<w:spacing w:val="-2"/><w:w w:val="105"/><w:kern w:val="2"/>', False),
        ('<w:b/><w:szCs w:val="22"/>', '<w:bCs/><w:szCs w:val="24"/><w:b w:val="1"/>', False),
        ('<w:color w:val="auto"/><w:u w:val="none"/>', '<w:vertAlign w:val="baseline"/><w:rtl w:val="0"/>', False),
        ("", '<w:shd w:val="clear" w:color="auto" w:fill="auto"/><w:highlight w:val="none"/>', False),
        ('<w:i/><w:sz w:val="22"/>', '<w:sz w:val="22"/><w:i w:val="true"/><w:b w:val="false"/>', False),
        ('<w:rFonts w:ascii="A" w:cs="B"/>', '<w:rFonts w:ascii="A" w:eastAsia="C" w:hint="eastAsia"/>', False),
        ("", '<w:rStyle w:val="plain"/>', False),
        ("", '<w:rStyle w:val="strong"/>', True),
        ("", '<w:color w:val="FF0000"/>', True),
        ("", '<w:sz w:val="24"/>', True),
        ("", '<w:shd w:val="clear" w:fill="FFFF00"/>', True),
        ("", '<w:vertAlign w:val="superscript"/>', True),
        ("", '<w:vanish/>', True),
    ],
)  # fmt: skip
def test_what_cannot_be_seen_is_no_boundary(one: str, other: str, seen: bool) -> None:
    styles = '<w:style w:styleId="plain"/><w:style w:styleId="strong"><w:rPr><w:b/></w:rPr></w:style>'
    for first, second in ((one, other), (other, one)):
        (block,) = DocxFile(document(p(r("One long ", first), r("two", second)), styles=styles), "a.docx").blocks
        assert block.text == ("One long ￼two￼" if seen else "One long two")


def test_what_can_be_seen_by_style_or_script_is_one() -> None:
    """Text that is not bold within a bold style, and sizes of complex scripts."""
    styles = '<w:style w:styleId="s"><w:rPr><w:b/></w:rPr></w:style>'
    runs = r("One long ") + r("two", '<w:b w:val="0"/>')
    xml = f'<w:p><w:pPr><w:pStyle w:val="s"/></w:pPr>{runs}</w:p>' + p(runs)
    xml += p(r("عربي طويل"), r("هنا", '<w:szCs w:val="40"/>'))
    found = [block.text for block in DocxFile(document(xml, styles=styles), "a.docx").blocks]
    assert found == ["One long ￼two￼", "One long two", "عربي طويل￼هنا￼"]


def test_line_breaks_end_blocks() -> None:
    """As <br> of HTML does, also inside a link; formatting begins anew after them."""
    line = "<w:r><w:br/></w:r>"
    link = '<w:hyperlink r:id="x">' + r("on") + line + r("off") + "</w:hyperlink>"
    xml = p(r("One. ") + r("Two", "<w:b/>") + line + line + r("three", "<w:b/>") + r(" four "), link + r(" end"))
    file = DocxFile(document(xml), "a.docx")
    assert shown(file) == [("paragraph", text) for text in ("One. Two", "three four on", "off end")]
    translated, counts = translate(file)
    assert not counts
    wanted = xml
    for word in ("One", "Two", "three four", "four", "three", "on<", "off", "end"):
        wanted = wanted.replace(word, word.upper())
    assert inside(translated) == wanted
    box_twice = p(r("A"), box(p(r("b"), line, r("c")), p(r("b"), line, r("c"))))
    file = DocxFile(document(box_twice), "a.docx")
    assert [block.text for block in file.blocks] == ["A", "b", "c"]
    assert inside(translate(file)[0]) == box_twice.replace(">b<", ">B<").replace(">c<", ">C<").replace(">A<", ">A<")


def test_fonts_of_fixed_width_are_code() -> None:
    font = '<w:rFonts w:ascii="{0}" w:hAnsi="{0}"/>'
    courier = font.format("Courier New")
    xml = p(r("Call "), r("f(x)", courier), r(" or "), r("g", font.format("Monotype Corsiva")), r(" now."))
    file = DocxFile(document(xml + p(r("x = 1", font.format("DejaVu Sans Mono")))), "a.docx")
    assert shown(file) == [("paragraph", "Call `f(x)` or g now.")]
    script = "".join(p(r(f"Line {n} of a script.", courier)) for n in range(9))
    file = DocxFile(document(script + p(r("By Ann"))), "a.docx")
    assert len(file.blocks) == 10


def test_soft_hyphens_stay_out_of_the_text() -> None:
    data = document(p(r("Com\u00adputer. "), r("Me\u00admory.")))
    file = DocxFile(data, "a.docx")
    assert [block.text for block in file.blocks] == ["Computer. Memory."]
    found = translate(file, lambda s: s.text.replace("Computer", "Rechner"))[0]
    assert inside(found) == p(r("Rechner. "), r("Me\u00admory."))
