"""Learning curves from the metrics of a run."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib.image
import pytest
from matplotlib.figure import Figure

from scaleformer.report import style as plot_style
from scaleformer.report.curves import compare_learning_curves, plot_learning_curves, read_curves, running_mean

HEADER = "step,train/loss,train/learning_rate,train/tokens_per_second,val/bleu,val/loss\n"


def write(run: Path, *rows: str, header: str = HEADER) -> Path:
    (run / "metrics.csv").write_text(header + "".join(f"{row}\n" for row in rows), encoding="utf-8")
    return run


def test_gaps_are_left_out(tmp_path: Path) -> None:
    write(tmp_path, "10,5.0,0.1,100,,", "20,4.5,0.2,130,2.5,3.8", "40,2.0,0.3,140,,")
    curves = read_curves(tmp_path / "metrics.csv")
    assert curves["train/loss"] == ([10, 20, 40], [5.0, 4.5, 2.0])
    assert curves["val/bleu"] == ([20], [2.5])
    assert curves["val/loss"] == ([20], [3.8])


def test_a_panel_for_each_quantity(tmp_path: Path) -> None:
    rows = [f"{step},{5 - step / 50},0.1,{1000 + step},{step if step % 20 == 0 else ''}," for step in range(1, 61)]
    path = plot_learning_curves(write(tmp_path, *rows))
    assert path == tmp_path / "plots" / "learning_curves.png"
    height, width = matplotlib.image.imread(path).shape[:2]
    assert (width, height) == (2 * 576, 2 * 372)  # four panels: only the training loss has a panel of its own
    path = plot_learning_curves(write(tmp_path, "10,5.0", header="step,train/loss\n"))
    assert path is not None
    assert matplotlib.image.imread(path).shape[:2] == (372, 576)


def test_nothing_to_draw(tmp_path: Path) -> None:
    assert plot_learning_curves(tmp_path) is None
    assert plot_learning_curves(write(tmp_path)) is None
    assert plot_learning_curves(write(tmp_path, "10,1.5", header="step,other\n")) is None
    assert not (tmp_path / "plots").exists()


@pytest.mark.parametrize(
    ("header", "row"),
    [("a,b\n", "1,2"), (HEADER, "ten,1,1,1,,"), (HEADER, "10,high,1,1,,")],
    ids=["columns", "step", "value"],
)
def test_a_file_of_the_wrong_kind_is_reported(tmp_path: Path, header: str, row: str) -> None:
    with pytest.raises(ValueError, match=r"metrics\.csv: not the metrics of a run"):
        plot_learning_curves(write(tmp_path, row, header=header))


def test_the_running_mean_looks_back() -> None:
    assert running_mean([1.0, 3.0, 5.0, 9.0], 2) == [1.0, 2.0, 4.0, 7.0]
    assert running_mean([1.0, 3.0], 1) == [1.0, 3.0]
    assert running_mean([1.0, math.nan, 5.0, 9.0], 2) == pytest.approx([1.0, math.nan, 5.0, 7.0], nan_ok=True)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The saved figures."""
    saved: list[Figure] = []
    save = plot_style.save
    monkeypatch.setattr(plot_style, "save", lambda figure, path: (saved.append(figure), save(figure, path))[1])
    return saved


@pytest.mark.parametrize(
    ("losses", "marked"),
    [
        (["5.0"], [0]),
        (["5.0", "4.0"], []),
        (["nan", "5.0", "inf", "4.0", "3.0"], [1]),
        (["5.0", "nan"] * 12, list(range(0, 24, 2))),
    ],
    ids=["one", "line", "gaps", "mean"],
)
def test_single_points_between_gaps_are_marked(
    tmp_path: Path, figures: list[Figure], losses: list[str], marked: list[int]
) -> None:
    write(tmp_path, *(f"{10 * step},{loss}" for step, loss in enumerate(losses)), header="step,train/loss\n")
    plot_learning_curves(tmp_path)
    line = figures[0].axes[0].lines[-1]
    assert (line.get_markevery() if line.get_marker() == "o" else []) == marked
    compare_learning_curves({"a": tmp_path, "b": tmp_path}, tmp_path / "both.png")
    assert set(marked) <= set(figures[1].axes[0].lines[0].get_markevery())


def test_the_best_is_among_finite_values(tmp_path: Path, figures: list[Figure]) -> None:
    rows = ["10,nan,nan,nan", "20,inf,3.0,nan", "30,nan,2.0,nan", "40,nan,-inf,nan"]
    plot_learning_curves(write(tmp_path, *rows, header="step,train/loss,val/loss,val/bleu\n"))
    (axis,) = figures[0].axes  # BLEU has no points
    assert axis.get_title() == "loss, nats per token"
    assert len(axis.lines) == 1
    assert [(text.get_text(), text.xy) for text in axis.texts] == [("2.00", (30, 2.0))]
    write(tmp_path, "10,nan", "20,inf", header="step,train/loss\n")
    assert plot_learning_curves(tmp_path) is None
    assert compare_learning_curves({"a": tmp_path, "b": tmp_path}, tmp_path / "both.png") is None


@pytest.mark.parametrize("steps", [[2], [1, 2], [1, 2, 3], [998, 1000]])
def test_steps_are_whole_numbers_each_once(tmp_path: Path, figures: list[Figure], steps: list[int]) -> None:
    write(tmp_path, *(f"{step},{step}.0" for step in steps), header="step,train/loss\n")
    plot_learning_curves(tmp_path)
    compare_learning_curves({"a": tmp_path, "b": tmp_path}, tmp_path / "both.png")
    for figure in figures:
        (axis,) = figure.axes
        low, high = axis.get_xlim()
        ticks = [float(tick) for tick in axis.get_xticks() if low <= tick <= high]
        assert ticks
        assert all(tick.is_integer() for tick in ticks)
        assert len(set(ticks)) == len(ticks)
