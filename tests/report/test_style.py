"""Properties of all figures: scripts, legends, ticks, distinct lines."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.font_manager import FontProperties, findfont

from scaleformer.evaluation.attention_maps import AttentionMaps
from scaleformer.report import attention, fonts, style
from scaleformer.report.samples import samples_table
from scaleformer.system.html import page, table


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures stay open after saving."""
    monkeypatch.setattr(pyplot, "close", lambda figure: None)
    monkeypatch.setattr(fonts, "_told", set())


def test_characters_without_a_font_are_reported_once(
    tmp_path: Path, drawn: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fonts, "_others", list)
    weights = {"cross": np.full((1, 1, 3, 3), 0.3)}
    maps = AttentionMaps(("猫", "读", "。"), ("<s>", "가", "กา"), weights, {"cross": "softmax"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention.plot_attention(maps, tmp_path)
    (line,) = capsys.readouterr().err.splitlines()
    assert "(กา。猫读가)" in line
    assert "fonts-noto-cjk" in line


def test_fonts_are_chosen_by_their_characters(tmp_path: Path, drawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = findfont(FontProperties())
    has = {"latin.ttf": "x", "cjk.ttf": "猫读"}
    monkeypatch.setattr(fonts, "_without", lambda c, path: set(c) & set("猫读") if path == usual else c - {*has[path]})
    monkeypatch.setattr(fonts, "_others", lambda: [("Latin", "latin.ttf"), ("CJK", "cjk.ttf")])
    figure, (axis,) = style.panels(1)
    axis.set_title("猫 x 读")
    fonts.choose_fonts(figure)
    assert axis.title.get_fontfamily()[-1] == "CJK"
    assert "Latin" not in axis.title.get_fontfamily()


@pytest.mark.parametrize("pieces", [60, 300])
def test_segments_of_long_documents_are_at_the_axes(tmp_path: Path, drawn: None, pieces: int) -> None:
    names = tuple(f"p{i}" for i in range(pieces))
    weights = {"cross": np.full((1, 2, pieces, pieces), 1 / pieces)}
    attention.plot_attention(AttentionMaps(names, names, weights, {"cross": "softmax"}), tmp_path)
    mean, _ = (pyplot.figure(number) for number in pyplot.get_fignums()[-2:])
    for side in (mean.axes[0].xaxis, mean.axes[0].yaxis):
        shown = [text.get_text() for text in side.get_ticklabels()]
        if pieces == 60:
            assert shown == list(names)
        else:
            assert shown[1].split(" ") == [shown[1][1 + shown[1].index("p") :], names[int(shown[1].split(" ")[0])]]
            assert 40 < len(shown) <= 110


def test_the_legend_has_all_lines_inside_the_figure(tmp_path: Path, drawn: None) -> None:
    figure, (first, second) = style.panels(2)
    names = ["a-run-of-a-very-long-name-with-many-settings-" * 4, "ДЖ" * 60, "short"]
    for axis, some in ((first, names[:1]), (second, names)):
        for name in some:
            axis.plot([1, 2], [1, 2], label=name)
    style.legend_below(figure)
    style.save(figure, tmp_path / "x.png")
    (legend,) = figure.legends
    assert [text.get_text().replace("\n", "") for text in legend.get_texts()] == names
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert box.y1 <= first.get_window_extent().y0


@pytest.mark.parametrize(("low", "high"), [(0.14, 0.9), (17, 21), (3, 11.4), (2, 900)])
def test_a_logarithmic_axis_has_several_ticks(low: float, high: float) -> None:
    _, (axis,) = style.panels(1)
    axis.plot([1, 2], [low, high])
    style.log_axis(axis)
    bottom, top = axis.get_ylim()
    assert sum(bottom <= tick <= top for tick in axis.get_yticks()) >= 3


def test_the_longest_length_has_a_tick_and_nothing_is_below_zero() -> None:
    _, (axis,) = style.panels(1)
    axis.plot([1, 8, 16, 32, 64, 100], [0] * 6)
    style.length_axis(axis, [1, 8, 16, 32, 64, 100])
    style.floor_at_zero(axis)
    assert axis.get_xticks().max() == 100
    assert axis.get_ylim() == (-0.04, 1.0)


@pytest.mark.parametrize("count", [8, 21, 40])
def test_more_lines_than_colours_differ_in_colour_and_neighbours_in_dashes(count: int) -> None:
    styles = list(style.line_styles([f"system {i}" for i in range(count)]).values())
    assert len({s["color"] for s in styles}) == count
    for one, other in pairwise(styles):
        assert one["linestyle"] != other["linestyle"]
        assert one["marker"] != other["marker"]


def test_each_text_of_a_page_has_its_own_direction() -> None:
    text = page("تقرير", [("Samples", samples_table(["source", "reference", "run"], [["Hi.", "يقرأ القط.", "يقرأ."]]))])
    assert text.count('<td dir="auto">') == 3
    assert '<h1 dir="auto">تقرير</h1>' in text
    assert table(["a"], [["يقرأ."]]).count('dir="auto"') == 2
