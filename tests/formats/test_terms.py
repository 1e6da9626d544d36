"""Files of terms: what is read, and the one line for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaleformer.formats.terms import read_terms
from scaleformer.system.errors import DataError


def test_terms_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("kernel\tnúcleo\n\n source  file \t fichero fuente\nkernel\tnúcleo\n", encoding="utf-8")
    assert read_terms(str(path)) == {"kernel": "núcleo", "source file": "fichero fuente"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nkernel\n", "terms.tsv:2: 0 tabs, wanted a source form, a tab and its target form"),
        ("a\tb\tc\n", "terms.tsv:1: 2 tabs"),
        ("a\t\n", "terms.tsv:1: the target form '' of a term is not text"),
        ("a\tb\na\tc\n", "terms.tsv:2: 'a' has the target form 'b' on an earlier line"),
        ("\n", "no terms: write a source form"),
    ],
)
def test_an_invalid_terms_file_gives_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "terms.tsv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_terms(str(tmp_path / "terms.tsv"))


BASIC = """<?xml version="1.0"?>
<!DOCTYPE martif SYSTEM "TBXBasiccoreStructV02.dtd">
<martif type="TBX-Basic" xml:lang="en"><martifHeader><fileDesc/></martifHeader><text><body>
<termEntry id="1"><descrip type="subjectField">computing</descrip>
  <langSet xml:lang="en-US"><tig><term>kernel</term></tig><tig><term>core  of
   the system</term><termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig></langSet>
  <langSet xml:lang="es"><ntig><termGrp><term>centro</term></termGrp></ntig>
    <ntig><termGrp><term>n\u00fa<hi>cleo</hi></term><termNote type="partOfSpeech">noun</termNote>
    <termNote type="administrativeStatus">preferredTerm-admn-sts</termNote></termGrp></ntig></langSet>
  <langSet xml:lang="fr"><tig><term>noyau</term></tig></langSet></termEntry>
<termEntry id="2"><langSet xml:lang="en-GB"><tig><term>kernel</term></tig></langSet>
  <langSet xml:lang="es"><tig><term>almendra</term></tig></langSet></termEntry>
<termEntry id="3"><langSet xml:lang="en"><tig><term>shell &amp; prompt</term></tig></langSet>
  <langSet xml:lang="es"><tig><term>concha</term>
  <termNote type="administrativeStatus">supersededTerm-admn-sts</termNote></tig></langSet></termEntry>
</body></text></martif>"""
CORE = """<tbx xmlns="urn:iso:std:iso:30042:ed-2" xmlns:min="http://www.tbxinfo.net/ns/min" style="dct" type="TBX-Min" \
xml:lang="en"><text><body><conceptEntry id="1"><langSec xml:lang="en"><termSec><term>disk</term></termSec></langSec>
<langSec xml:lang="es"><termSec><term>placa</term><min:administrativeStatus>deprecatedTerm-admn-sts\
</min:administrativeStatus></termSec><termSec><term>disco</term></termSec></langSec></conceptEntry></body></text></tbx>"""


def read(tmp_path: Path, name: str, text: str, *languages: str | None) -> dict[str, str]:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_terms(str(tmp_path / name), languages or (None, None))  # type: ignore[arg-type]


def test_every_form_of_a_concept_gets_the_preferred_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = read(tmp_path, "terms.tbx", BASIC, "en", "es-MX")
    assert found == {"kernel": "núcleo", "core of the system": "núcleo"}
    told = capsys.readouterr().err
    assert told.endswith(
        "left out: 1 source forms that an earlier concept has, 1 concepts without a form in both languages\n"
    )
    assert read(tmp_path, "terms.xml", BASIC, "fr", "en") == {"noyau": "kernel"}


def test_the_third_version_is_read_and_two_languages_need_one_name(tmp_path: Path) -> None:
    assert read(tmp_path, "terms.tbx", CORE, None, "es") == {"disk": "disco"}
    assert read(tmp_path, "terms.tbx", CORE, "es", None) == {"placa": "disk", "disco": "disk"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "kernel,núcleo\n\n\"file, open\",'fichero abierto'\n",
            {"kernel": "núcleo", "file, open": "'fichero abierto'"},
        ),
        ("Note,EN-gb,es\nx,kernel,núcleo\n", {"kernel": "núcleo"}),
        ("\ufefftarget,source\nnúcleo,kernel\n", {"kernel": "núcleo"}),
        ("es,en\nnúcleo,kernel\n", {"kernel": "núcleo"}),
    ],
)
def test_tables_may_name_their_columns(tmp_path: Path, text: str, found: dict[str, str]) -> None:
    assert read(tmp_path, "terms.csv", text, "en", "es") == found
    if '"' not in text:
        assert read(tmp_path, "terms.tsv", text.replace(",", "\t"), "en", "es") == found


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.tbx", BASIC, "terms=.*a.tbx: in en-US, es, fr, en-GB, en; wanted en and de"),
        (
            "a.tbx",
            BASIC.replace("<term>kernel", "<term>/(/").replace('"fr"', '"de"'),
            r"a.tbx:4: the source form '/\(/' of a term is not a valid",
        ),
        ("a.tbx", "<tbx><text/></tbx>", "a.tbx: no terms"),
        ("a.tbx", BASIC[:400], "a.tbx:6: malformed XML"),
        ("a.tbx", '<!DOCTYPE tbx [<!ENTITY a "x">]><tbx>&a;</tbx>', "declares the entity 'a'"),
        ("a.tbx", "<tbx>" * 300, "a.tbx:1: more than 256 nested elements"),
        ("a.csv", "en,fr\nkernel,noyau\n", "a.csv: in en, fr; wanted en and de"),
        ("a.csv", "a,b\nc\n", "a.csv:2: 0 commas, wanted a source form, a comma and its target form"),
        ("a.csv", "en,de,note\na,b\n", "a.csv:2: 1 commas, wanted 2, as in the first line"),
        ("a.csv", 'a,"b\n', "a.csv:1: malformed CSV"),
    ],
)
def test_term_bases_and_tables_that_are_wrong_give_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, name, text, "en", "de")


def test_languages_that_nobody_names_are_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="in en, es; wanted one that the model does not name and one that"):
        read(tmp_path, "terms.tbx", CORE)
