"""Excel workbooks: texts of cells and drawings are translated, all else stays to the byte.

What they share with Word documents is tested with those.
"""

from __future__ import annotations

import pytest
from lxml import etree

from scaleformer.formats.office import XlsxFile
from tests.formats.fake import translate, unchanged
from tests.formats.faults import check_damage, check_fault
from tests.formats.slides import SPACES as DRAWN
from tests.formats.slides import ap, ar
from tests.formats.word import BOMB, TYPES, document, p, packed, parts_of, r

S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
KINDS = {
    "workbook": "spreadsheetml.sheet.main",
    "worksheets/sheet1": "spreadsheetml.worksheet",
    "drawings/drawing1": "drawing",
    "tables/table1": "spreadsheetml.table",
    "pivotCache/pivotCacheDefinition1": "spreadsheetml.pivotCacheDefinition",
    "comments1": "spreadsheetml.comments",
    "sharedStrings": "spreadsheetml.sharedStrings",
}
OVERRIDE = '<Override PartName="/xl/{}.xml" ContentType="application/vnd.openxmlformats-officedocument.{}+xml"/>'


def workbook(strings: str, **others: str | bytes) -> bytes:
    """A file with these shared strings, and other parts by the beginning of their names."""
    parts: dict[str, str | bytes] = {
        "workbook": f'<workbook xmlns="{S}"><sheets><sheet name="My sheet"/></sheets></workbook>',
        "sharedStrings": f'<sst xmlns="{S}" count="9">{strings}</sst>',
    }
    for name, xml in others.items():
        parts[next(kind for kind in KINDS if name in kind)] = xml
    types = "".join(OVERRIDE.format(name, KINDS[name]) for name in parts)
    return packed(
        {"[Content_Types].xml": TYPES.format(types), **{f"xl/{name}.xml": xml for name, xml in parts.items()}}
    )


def strings(data: bytes) -> str:
    """The shared strings of a file of `workbook`."""
    return parts_of(data)["xl/sharedStrings.xml"].decode().partition(">")[2].removesuffix("</sst>")


def si(text: str) -> str:
    return f'<si><t xml:space="preserve">{text}</t></si>'


def rich(*runs: str) -> str:
    return f"<si>{''.join(runs)}</si>"


def run(text: str, properties: str = "") -> str:
    return f'<r><rPr>{properties}</rPr><t xml:space="preserve">{text}</t></r>'


@pytest.mark.parametrize(
    ("string", "texts", "wanted"),
    [
        (si("One &amp; two"), ["One & two"], si("ONE &amp; TWO")),
        ("<si><t> One</t></si>", ["One"], si("ONE")),
        # a line break is a character here
        (si("one\ntwo_x000D_\nthree"), ["one", "two", "three"], si("ONE\nTWO_x000D_\nTHREE")),
        (
            rich(run("See "), run("this", "<b/>"), run(" now")),
            ["See ￼this￼ now"],
            rich(run("SEE "), run("THIS", "<b/>"), run(" NOW")),
        ),
        (
            rich(run("One ", "<family val='2'/>"), run("two", "<charset val='1'/>")),
            ["One two"],
            rich(run("ONE TWO", "<family val='2'/>")),
        ),
        # readings stand over characters that are gone
        (
            "<si><t>課長</t><rPh sb='0' eb='1'><t>カ</t></rPh><phoneticPr fontId='1'/></si>",
            ["課長"],
            si("課長").replace("課長", "Head"),
        ),
        (si("12.5"), [], si("12.5")),
        ("<si/>", [], "<si/>"),
    ],
)
def test_cells(string: str, texts: list[str], wanted: str) -> None:
    data = workbook(string)
    file = XlsxFile(data, "a.xlsx")
    assert [block.text for block in file.blocks] == texts
    assert {block.kind for block in file.blocks} <= {"cell"}
    assert unchanged(file) == data
    found = translate(file, lambda segment: "Head" if segment.text == "課長" else segment.text.upper())[0]
    assert strings(found) == wanted
    etree.fromstring(parts_of(found)["xl/sharedStrings.xml"])


def test_what_else_holds_texts() -> None:
    """Cells with a text of their own and drawings. What names cells, and what formulas make, stays."""
    inline = '<c t="inlineStr"><is><t xml:space="preserve">Inline</t></is></c>'
    sheet = f'<worksheet xmlns="{S}"><c t="s"><v>0</v></c>{inline}<c t="str"><f>A1&amp;"x"</f><v>Ax</v></c></worksheet>'
    data = workbook(
        si("Shared") + si("The header") + si("of\nlines"),
        sheet=sheet,
        drawing=f"<x {DRAWN}>{ap(ar('Drawn'))}</x>",
        table=f'<table xmlns="{S}"><tableColumn name="The header"/></table>',
        pivot=f'<pivotCacheDefinition xmlns="{S}"><cacheField name="of_x000a_lines"/></pivotCacheDefinition>',
        comments=f'<comments xmlns="{S}"><text><t>Hm.</t></text></comments>',
    )
    file = XlsxFile(data, "a.xlsx")
    assert sorted(block.text for block in file.blocks) == ["Drawn", "Inline", "Shared"]
    assert file.left == {"cells with formulas": 1, "headers of tables": 2, "parts with comments": 1}
    assert unchanged(file) == data
    old, new = parts_of(data), parts_of(translate(file)[0])
    for name in old:
        wanted = old[name].decode()
        for text in ("Drawn", "Inline", "Shared"):
            wanted = wanted.replace(f">{text}<", f">{text.upper()}<")
        assert new[name].decode() == wanted


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"not a sound xlsx file \("),
        (document(p(r("a"))), "an archive that holds no Excel workbook: wanted .xlsx"),
        (workbook(si("a"))[:-200], r"not a sound xlsx file \("),
        (workbook(si("a" * 60_000_000)), r"xl/sharedStrings\.xml: [\d,]+ bytes unpack to"),
        (workbook(si("a"), sheet=b"a" * 60_000_000), r"xl/worksheets/sheet1\.xml: [\d,]+ bytes unpack to"),
        (workbook(si("a"), shared=BOMB + "<a>&e29;</a>"), "sharedStrings.xml: declares the entity 'e0'"),
        (workbook(si("a"), table=BOMB + "<a>&e29;</a>"), "table1.xml: declares the entity 'e0'"),
        (workbook("<si>" * 300), "more than 256 nested elements"),
        (workbook("<si>"), r"sharedStrings\.xml:1: malformed XML"),
    ],
)
def test_faults(data: bytes, message: str) -> None:
    check_fault(lambda: XlsxFile(data, "a.xlsx"), message, "a.xlsx: ")


def test_no_damage_is_another_error() -> None:
    check_damage(XlsxFile, workbook(si("One") + rich(run("See "), run("this", "<b/>"))), "a.xlsx")
