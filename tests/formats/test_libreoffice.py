"""Files that LibreOffice makes are translated, and it opens the translations: the same document in other words."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lxml import etree

from scaleformer.formats.recognition import FORMATS, load, recognise
from scaleformer.formats.segments import Segment
from tests.formats.fake import translate, unchanged

SOFFICE = shutil.which("soffice")
# LibreOffice is hundreds of megabytes, so CI does not install it; the tests of each format need none.
pytestmark = pytest.mark.skipif(SOFFICE is None, reason="no soffice on PATH: apt-get install libreoffice-impress")

URN = "urn:oasis:names:tc:opendocument:xmlns:"
NAMES = {"draw": "drawing", "fo": "xsl-fo-compatible", "svg": "svg-compatible"}
NAMES |= {name: name for name in ("office", "presentation", "style", "table", "text")}
FLAT = f"""<?xml version="1.0" encoding="UTF-8"?>
<office:document {" ".join(f'xmlns:{key}="{URN}{name}:1.0"' for key, name in NAMES.items())}
 xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:of="{URN}of:1.2" office:version="1.3"
 office:mimetype="application/vnd.oasis.opendocument.{{}}">
<office:styles><style:style style:name="Source_20_Text" style:display-name="Source Text" style:family="text"/>
</office:styles><office:automatic-styles><style:style style:name="T1" style:family="text"><style:text-properties
 fo:font-weight="bold"/></style:style></office:automatic-styles>
<office:master-styles><style:master-page style:name="M"/></office:master-styles>
<office:body><office:{{}}>{{}}</office:{{}}></office:body></office:document>"""
MARKED = """<text:p>Press the <text:span text:style-name="T1">green button</text:span> and <text:a xlink:type="simple"
 xlink:href="https://example.org/">read more</text:a> &amp; wait.</text:p>"""
LINKED = """<text:p><text:span text:style-name="T1">Bold words and <text:a xlink:type="simple"
 xlink:href="https://example.org/">a link</text:a> at</text:span> <text:a xlink:type="simple"
 xlink:href="https://example.org/">the end</text:a></text:p>"""
CELL = '<table:table-cell office:value-type="string"{}>{}</table:table-cell>'
TABLE = f"""<table:table table:name="T"><table:table-column/><table:table-row>
{CELL.format("", "<text:p>A cell here</text:p>")}</table:table-row></table:table>"""
FRAME = '<draw:frame svg:width="9cm" svg:height="4cm" svg:x="1cm" svg:y="{}cm">{}</draw:frame>'
NOTE = """<text:note text:id="n" text:note-class="footnote"><text:note-citation>1</text:note-citation><text:note-body>
<text:p>A note below.</text:p></text:note-body></text:note>"""
BODIES = {
    "text": f"""<text:h text:outline-level="1">The heading</text:h>{MARKED}<text:p>It has a note{NOTE} in it.</text:p>
<text:p>Write <text:span text:style-name="Source_20_Text">make all</text:span> here,<text:line-break/>then go
 on.</text:p><text:list><text:list-item><text:p>An item</text:p></text:list-item></text:list>{TABLE}""",
    "presentation": f"""<draw:page draw:master-page-name="M">
{FRAME.format(1, f"<draw:text-box>{MARKED}{LINKED}<text:p>Two<text:line-break/>lines</text:p></draw:text-box>")}
{FRAME.format(9, TABLE)}<presentation:notes>
{FRAME.format(9, "<draw:text-box><text:p>Say this slowly.</text:p></draw:text-box>")}
</presentation:notes></draw:page>""",
    "spreadsheet": f"""<table:table table:name="Sheet"><table:table-row>{CELL.format("", "<text:p>The header</text:p>")}
{CELL.format("", MARKED)}</table:table-row><table:table-row><table:table-cell office:value-type="float"
 office:value="3"><text:p>3</text:p></table:table-cell>
{CELL.format(' table:formula="of:=IF([.A2]=3;&quot;yes it is&quot;;&quot;no&quot;)"', "<text:p>yes it is</text:p>")}
</table:table-row></table:table>""",
}
KEPT = ("make all", "yes it is")


def convert(data: bytes, name: str, ending: str, folder: Path) -> bytes:
    """A file of another format, by LibreOffice."""
    (folder / name).write_bytes(data)
    command = [str(SOFFICE), "--headless", f"-env:UserInstallation=file://{folder}/profile", "--convert-to", ending]
    environment = {**os.environ, "HOME": str(folder)}
    subprocess.run([*command, name], cwd=folder, env=environment, check=True, capture_output=True, timeout=300)
    return (folder / name).with_suffix(f".{ending}").read_bytes()


def texts(flat: bytes) -> list[str]:
    """What the paragraphs of the body of flat OpenDocument show."""
    body = next(etree.fromstring(flat).iter("{*}body"))
    for space in body.iter("{*}s", "{*}line-break"):
        space.text = " "
    found = ("".join(paragraph.itertext()) for paragraph in body.iter("{*}p", "{*}h"))
    return [shown for text in found if (shown := " ".join(text.split()))]


def capitals(segment: Segment) -> str:
    return "".join(piece if piece.startswith("⟨") else piece.upper() for piece in re.split("(⟨.⟩)", segment.text))


@pytest.mark.parametrize(
    ("kind", "flat", "ending"),
    [
        ("text", "fodt", "odt"),
        ("text", "fodt", "docx"),
        ("presentation", "fodp", "odp"),
        ("presentation", "fodp", "pptx"),
        ("spreadsheet", "fods", "ods"),
        ("spreadsheet", "fods", "xlsx"),
    ],
)
def test_its_files(kind: str, flat: str, ending: str, tmp_path: Path) -> None:
    made = convert(FLAT.format(kind, kind, BODIES[kind], kind).encode(), f"a.{flat}", ending, tmp_path)
    format = recognise(made[: 1 << 16], "")
    assert format.name == (ending if ending.endswith("x") else "odf")
    file = load(FORMATS[format.name].prose)(made, f"a.{ending}")
    assert unchanged(file) == made
    translated, counts = translate(file, capitals)
    assert not counts
    before = texts(convert(made, f"before.{ending}", flat, tmp_path))
    after = texts(convert(translated, f"after.{ending}", flat, tmp_path))
    assert "Press the green button and read more & wait." in before
    wanted = [text.upper() for text in before]
    for kept in KEPT:
        wanted = [text.replace(kept.upper(), kept) for text in wanted]
    assert after == wanted
