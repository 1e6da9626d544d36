"""The tables of formats in docs/ have the formats that the program reads."""

from __future__ import annotations

import re
from pathlib import Path

from scaleformer.data.prepare_config import CORPORA, FORMATS
from scaleformer.formats import recognition

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def first_cells(page: str, heading: str) -> list[str]:
    """The names in the first column of a table."""
    table = (DOCS / page).read_text(encoding="utf-8").split(heading)[1].split("\n\n")[0]
    cells = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([\w.]+)`", re.sub(r"\(.*\)", "", cell))]


def test_what_prepare_reads() -> None:
    found = first_cells("data-formats.md", "| `format=` |")
    assert sorted(found) == sorted(set(CORPORA) - {"jsonl", "translations"})


def test_what_translate_takes() -> None:
    endings = first_cells("own-documents.md", "| file | what is translated |")
    named = {name for name in recognition.TRANSLATED if recognition.FORMATS[name].endings}  # others show their content
    assert {format.name for ending in endings if (format := recognition.by_name(f"a{ending}"))} == named


def test_the_settings_name_every_format() -> None:
    text = (ROOT / "conf/commands/prepare.yaml").read_text(encoding="utf-8").split("format: ???")[1].split("input:")[0]
    assert set(FORMATS) <= set(re.findall(r"\w+", text))
