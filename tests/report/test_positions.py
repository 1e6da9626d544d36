"""Figures of quality by position in the document, for one or several runs."""

from __future__ import annotations

from pathlib import Path

import matplotlib.image
import pytest

from scaleformer.evaluation.positions import quality_by_position
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.report.page import write_report
from scaleformer.report.positions import plot_positions
from tests.results import bleu, make_results

WORDS = [f"w{i} x{i} y{i} z{i}" for i in range(12)]
POSITIONS = quality_by_position(
    [TranslatedDocument("a", (), WORDS, WORDS[:11]), TranslatedDocument("b", (), ["a b c d"], ["a b c d"])]
)


def test_panels(tmp_path: Path) -> None:
    path = plot_positions({"a": {"positions": POSITIONS}, "b": {"positions": POSITIONS}}, tmp_path / "p.png")
    assert path is not None
    assert matplotlib.image.imread(path).shape[:2] == (2 * 396, 2 * 576)  # two scores by tenth, and by length
    few = {**POSITIONS, "tenths": []}
    alone = plot_positions({"a": {"positions": few}, "older": {}}, tmp_path / "p.png")
    assert alone is not None
    assert matplotlib.image.imread(alone).shape[:2] == (396, 2 * 576)
    assert plot_positions({"older": {}}, tmp_path / "none.png") is None
    with pytest.raises(ValueError, match="a: not the quality by position of an evaluation"):
        plot_positions({"a": {"positions": {"tenths": 3, "lengths": []}}}, tmp_path / "p.png")


def test_the_page_has_them(tmp_path: Path) -> None:
    runs = [make_results(tmp_path / name, "bleu-test", {**bleu(), "positions": POSITIONS}) for name in "ab"]
    report = write_report(runs, tmp_path / "out")
    title = "Quality by position in the document and by its length (test)"
    assert report.figures[title].name == "positions-test.png"
    assert title in report.page.read_text(encoding="utf-8")
