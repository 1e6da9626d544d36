"""The tables of docs/results are made from saved scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.pages.results import PAGES, drawn, filled, main


def result(bleu: float, **more: Any) -> dict[str, Any]:
    scores = [{"metric": metric, "score": bleu + n} for n, metric in enumerate(("d-BLEU", "s-BLEU", "chrF++"))]
    tenths = [{"from": n / 10, "to": (n + 1) / 10, "s_bleu": bleu + n, "chrf": 50.0} for n in range(10)]
    lengths = [{"from": 10, "to": 29, "s_bleu": 8.0, "chrf": 9.0}, {"from": 30, "to": None, "s_bleu": 7.0, "chrf": 6.0}]
    return {"scores": scores, "positions": {"tenths": tenths, "lengths": lengths}, "translation_seconds": 90.0, **more}


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """A folder of one page with a table, and two saved rows."""
    (tmp_path / "results").mkdir()
    for name, bleu in (("by sentence", 20.25), ("documents", 30.5)):
        file = tmp_path / "bleu-test.json"
        file.write_text(json.dumps(result(bleu, command="from /home/me", checkpoint={"path": "/home/me"})))
        assert main(["add", "two", name, str(file)], tmp_path / "results") == 0
    (tmp_path / "results" / "page.md").write_text("Before.\n\n<!-- scores two -->\n<!-- end -->\n\nAfter.\n")
    return tmp_path / "results"


def test_a_page_gets_its_table(pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"], pages) == 1
    assert "page.md: has other tables" in capsys.readouterr().out
    assert main([], pages) == 0
    text = (pages / "page.md").read_text()
    assert text.startswith("Before.\n\n<!-- scores two -->\n\n|")
    assert text.endswith("|\n\n<!-- end -->\n\nAfter.\n")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == ["", "d-BLEU", "s-BLEU", "chrF++"]
    assert rows[2:] == [
        ["by sentence", "20.25", "21.25", "22.25"],
        ["documents", "**30.50**", "**31.50**", "**32.50**"],
    ]
    assert main(["--check"], pages) == 0


def test_unseen_segments_get_a_column_where_all_rows_have_them(pages: Path, tmp_path: Path) -> None:
    rows = {name: result(9.0, leaks={"unseen": {"s_bleu": b, "segments": 3}}) for name, b in (("a", 7.125), ("b", 6.0))}
    (tmp_path / "u.json").write_text(json.dumps(rows))
    lines = filled("<!-- scores u -->\n<!-- end -->", tmp_path).splitlines()
    cells = [line.replace("|", " ").split() for line in lines if line.startswith("|")]
    assert (cells[0], cells[2][-1], cells[3][-1]) == (["d-BLEU", "s-BLEU", "chrF++", "unseen"], "**7.12**", "6.00")
    rows["a"]["leaks"] = None
    (tmp_path / "u.json").write_text(json.dumps(rows))
    assert "unseen" not in filled("<!-- scores u -->\n<!-- end -->", tmp_path)


def test_no_folder_of_a_machine_is_kept(pages: Path) -> None:
    assert "/home/me" not in (pages / "saved" / "two.json").read_text()


def test_a_row_of_the_same_name_is_replaced(pages: Path, tmp_path: Path) -> None:
    file = tmp_path / "again.json"
    file.write_text(json.dumps(result(1.0)))
    main(["add", "two", "by sentence", str(file)], pages)
    rows = json.loads((pages / "saved" / "two.json").read_text())
    assert list(rows) == ["by sentence", "documents"]
    assert rows["by sentence"]["scores"][0]["score"] == 1.0


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        ("tenths", "1 2 3 4 5 6 7 8 9 10", "documents 30.5 31.5 32.5 33.5 34.5 35.5 36.5 37.5 38.5 39.5"),
        ("lengths", "10-29 30+", "documents 8.0 7.0"),
    ],
)
def test_quality_by_place(pages: Path, kind: str, first: str, last: str) -> None:
    table = filled(f"<!-- {kind} two -->\n<!-- end -->", pages / "saved").splitlines()
    assert table[2].replace("|", " ").split() == first.split()
    assert table[-3].replace("|", " ").split() == last.split()


def test_phenomena_and_programs(tmp_path: Path) -> None:
    score = {"kind": "term", "distance": "2", "count": 40, "generative": 0.755}
    every = {"kind": "all", "distance": "all", "count": 40, "generative": 0.755}
    (tmp_path / "c.json").write_text(json.dumps({"one pass": {"scores": [every, score]}}))
    assert "| term |        2 |    40 |      76% |" in filled("<!-- phenomena c -->\n<!-- end -->", tmp_path)
    row = result(9.0, updates=1200, parameters=2_379_184, difference={"omitted": 0.0125, "added": 0.5})
    (tmp_path / "p.json").write_text(json.dumps({"eole": row}))
    line = filled("<!-- programs p -->\n<!-- end -->", tmp_path).splitlines()[-3]
    assert line.replace("|", " ").split() == ["eole", "1,200", "2,379,184", "9.00", "10.00", "11.00", "1.2%", "50.0%"]
    with_leaks = {"eole": row, "ours": {**row, "leaks": {"unseen": {"segments": 3, "s_bleu": 8.254}}}}
    (tmp_path / "q.json").write_text(json.dumps(with_leaks))
    lines = filled("<!-- programs q -->\n<!-- end -->", tmp_path).splitlines()[-4:-2]
    assert [line.replace("|", " ").split()[-3] for line in lines] == ["-", "8.25"]


def test_the_pages_have_the_tables_of_the_saved_scores() -> None:
    assert main(["--check"]) == 0


def test_the_figure_of_readme_shows_both_states_of_training() -> None:
    lines = dict(drawn(PAGES / "saved"))
    times = "2,000 updates, rate 0.002", "40 minutes, rate 0.01"
    assert list(lines) == [f"{level}, {time}" for time in times for level in ("sentences", "documents")]
    early, late = (lines[f"documents, {time}"]["scores"][0]["score"] for time in times)
    assert early < late
    assert all(line["positions"]["tenths"] for line in lines.values())
