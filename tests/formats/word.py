"""Word documents for tests, written part by part, and one by python-docx."""

from __future__ import annotations

import io
import struct
import zipfile
from collections import Counter
from typing import Any

import docx
from docx.enum.text import WD_BREAK
from docx.opc.constants import RELATIONSHIP_TYPE
from lxml import etree

from scaleformer.formats.office import DocxFile

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
    """A document from python-docx with most features of Word."""
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
    """Everything that translation must not change."""
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


def box(choice: str, fallback: str) -> str:
    choice, fallback = (f"<w:txbxContent>{xml}</w:txbxContent>" for xml in (choice, fallback))
    inner = f"<mc:Choice>{choice}</mc:Choice><mc:Fallback>{fallback}</mc:Fallback>"
    return f"<w:r><mc:AlternateContent>{inner}</mc:AlternateContent></w:r>"
