"""Tables and bars at 80 columns and in files: nothing is truncated."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaleformer.system import bars
from scaleformer.system.tables import plain_table, print_rows, print_table

NAME = "a-run-of-a-very-long-name-with-many-settings-lr3e-4-layers6-seed1234"
COLUMNS = ("count", "chance", "contrastive", "generative", "wrong", "unclear")


def made(name: str) -> Table:
    table = plain_table("3 documents [/x]", ("kind", "distance"), COLUMNS)
    table.add_row(Text(name), "9-16", "123,456", *["100.0%"] * 5)
    return table


def printed(table: Table, width: int, terminal: bool = True) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, legacy_windows=False)
    print_table(table, console)
    assert console.width == width
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_short_rows_fit_into_80_columns() -> None:
    title, _, head, _, row, *_ = printed(made("pronoun"), 80)
    assert title.strip() == "3 documents [/x]"
    assert head.split() == ["kind", "distance", *COLUMNS]
    assert row.split() == ["pronoun", "9-16", "123,456", *["100.0%"] * 5]


@pytest.mark.parametrize("width", [40, 80])
def test_a_long_name_wraps_and_nothing_is_lost(width: int) -> None:
    lines = printed(made(NAME), width)
    assert max(map(len, lines)) <= width
    assert "…" not in "".join(lines)
    shown = "".join(lines).replace(" ", "").replace("─", "")
    assert sorted(shown) == sorted(f"3documents[/x]kinddistance{''.join(COLUMNS)}{NAME}9-16123,456" + "100.0%" * 5)
    if width == 80:
        row, *rest = lines[4:]
        assert row.split()[1:] == ["9-16", "123,456", *["100.0%"] * 5]
        assert "".join([row.split()[0], *map(str.strip, rest)]) == NAME


def test_rows_in_a_file_are_single_lines() -> None:
    assert printed(made(NAME), 80, terminal=False)[4].split()[:2] == [NAME, "9-16"]


def test_a_long_name_leaves_a_bars_numbers_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(bars, "Console", lambda stderr: Console(file=out, width=80))
    with bars.translation_bar(f"{NAME}, in one [/x] pass") as progress:
        progress(0.31, 1_234_567)
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].rstrip().endswith("31% 1,234,567 tokens 0:00:00 left -:--:--")
    assert "".join(line.split(" ━")[0].strip() for line in lines).replace(" ", "") == f"{NAME},inone[/x]pass"


def test_rows_and_no_rows(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("3 documents", [{"kind": "name", "as_reference": 0.5, "mentions": 1200, "interval": (0, 1)}], 1)
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("3 documents", "as reference", "50.0%", "1,200"))
    assert "interval" not in shown
    print_rows("3 documents", [], 1)
    assert capsys.readouterr().out == "3 documents: nothing to count\n"
