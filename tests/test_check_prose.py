"""The check of the pages counts words, sentences and numbers where people read them, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_prose import PAGES, ROOT, faults, main, paragraphs


def test_paragraphs_leave_out_code_tables_and_headings() -> None:
    page = "# A\n\nOne\ntwo.\n\n    code\n\n- item\n  more\n- next\n\n| a |\n\n```\ncode\n```\n"
    page += "[^n]: Note\n    on.\n![x](y)\n"
    assert list(paragraphs(page)) == [(3, "One two."), (8, "item more"), (10, "next"), (17, "Note on.")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("word " * 30 + "end. " + "Word " * 30 + "end.", []),
        ("word " * 41, ["sentence of 41 words"]),
        ("Word and so on. " * 23, ["paragraph of 92 words"]),
        ("1 2.5 3,000 4% " * 4, ["paragraph of 16 numbers"]),
        ("`a 1 2 3 4 5 6 7 8 9 10 11 12 13` [b](c 1 2 3 4 5 6 7 8 9 10 11 12 13)", []),
        ("He wrote (0.79 so far). Word " + "word " * 37 + "`code` 1.5 is one word", ["sentence of 43 words"]),
    ],
)
def test_faults(text: str, found: list[str]) -> None:
    assert faults(text) == found


def test_timings_and_entries_of_the_log_are_left_out() -> None:
    assert {"README.md", "data/README.md", "docs/mechanisms.md", "docs/results/quality.md"} <= set(PAGES)
    assert "docs/benchmarks.md" not in PAGES
    assert not [page for page in PAGES if page.startswith("docs/log/0")]
    assert all((ROOT / page).exists() for page in PAGES)


def test_the_exit_code_says_whether_a_page_is_hard_to_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("Short.\n\n    " + "code " * 50 + "\n")
    assert main([str(page)]) == 0
    page.write_text("Short.\n\n" + "word " * 50 + "\n")
    assert main([str(page)]) == 1
    assert capsys.readouterr().out.startswith(f"{page}:3: sentence of 50 words: word word")


def test_sizes_of_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Title\n\nOne 2 3.\n\n- an item of 5 words\n\n| 1 | 2 |\n")
    empty = tmp_path / "empty.md"
    empty.write_text("# Title\n")
    assert main(["--sizes", str(page), str(empty)]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[2:] == [f"| {page} | 16 | 5 | 2 |", f"| {empty} | 2 | 0 | 0 |"]
