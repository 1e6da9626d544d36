"""Figures and the page from the files of runs: complete, in a single file, with faults reported."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from scaleformer.evaluation.attention_maps import AttentionMaps
from scaleformer.report.attention import plot_attention
from scaleformer.report.context import plot_context
from scaleformer.report.extrapolation import plot_extrapolation
from scaleformer.report.page import write_report
from scaleformer.report.samples import mark_differences
from scaleformer.report.style import COLORS, line_styles
from scaleformer.system.html import page, table
from tests.results import bleu, context, extrapolation, make_results


def test_one_page_with_everything_inside(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name, record in (
        ("bleu-test", bleu()),
        ("context-test", context()),
        ("extrapolation", extrapolation(("ours",))),
        ("data", {}),
    ):
        make_results(run, name, record)
    report = write_report([run], tmp_path / "out")
    text = report.page.read_text(encoding="utf-8")
    assert len(report.figures) == 6
    assert text.count("data:image/png;base64,") == len(report.figures)
    assert not re.search(r"(src|href)=\"(?!data:|#)", text)  # needs no external files
    assert "://" not in text
    assert "<script" not in text
    for heading in ("Scores", "Learning curves", "Length", "Context", "Samples", "Conditions"):
        assert f">{heading}</h2>" in text
    assert "python evaluate" in text
    assert "a &lt;b&gt;" in text
    assert [title for title, _, _ in report.tables] == [
        "test split", "By length (run)", "Right answers by distance (context-test)",
    ]  # fmt: skip
    assert not (run / "plots").exists()


def test_runs_side_by_side(tmp_path: Path) -> None:
    runs = [
        make_results(tmp_path / "a" / "x", "bleu-test", bleu(30.0)),
        make_results(tmp_path / "b" / "x", "bleu-test", bleu(20.0, "nrefs:1|tok:none")),
    ]
    compared = {"system": "b/x", "metric": "BLEU", "score": 20.0, "interval": 1.5, "difference": -10.0}
    record = {"rows": [{**compared, "bootstrap_p": 0.004, "randomization_p": None}], "baseline": "a/x", "lines": 2}
    make_results(runs[0], "compare-test", record)
    make_results(runs[0], "comet-test", {"score": 0.81, "segments": [0.8, 0.82], "signatures": {"COMET": "model:x"}})
    counted = {"kind": "name", "words": 3, "mentions": 8, "as_reference": 0.5, "consistent": 0.25}
    make_results(runs[1], "consistency-test", {"scores": [counted]})
    report = write_report(runs, tmp_path / "out")
    text = report.page.read_text(encoding="utf-8")
    assert '<h1 dir="auto">a/x, b/x</h1>' in text
    assert set(report.figures) == {f"Learning curves of {name}" for name in ("all runs", "a/x", "b/x")}
    assert "d-BLEU of b/x (test), not comparable with the others: nrefs:1|tok:none" in text
    assert "".join(f'<th dir="auto">{name}</th>' for name in ("source", "reference", "a/x", "b/x")) in text
    assert "0.0040" in text
    assert '<td dir="auto">model:x</td>' in text
    assert '<td class="number">50.00</td><td class="number">25.00</td>' in text


@pytest.mark.parametrize("other", ["a" * 64, "b" * 64])
def test_results_of_several_checkpoints_are_reported(tmp_path: Path, other: str) -> None:
    for name, record, path, sha in (
        ("bleu-test", bleu(), "best.ckpt", "a" * 64),
        ("context-test", context(), "last.ckpt", other),
    ):
        make_results(tmp_path / "run", name, {**record, "checkpoint": {"path": f"checkpoints/{path}", "sha256": sha}})
    text = write_report([tmp_path / "run"], tmp_path / "out").page.read_text(encoding="utf-8")
    told = "has results of several checkpoints: best.ckpt (aaaaaaaa): bleu-test; last.ckpt (bbbbbbbb): context-test"
    assert (told in text) == (other[0] == "b")
    assert ("several checkpoints" in text) == (other[0] == "b")


def test_samples_of_a_corpus_with_uneven_sides(tmp_path: Path) -> None:
    run = make_results(tmp_path / "run", "bleu-test", bleu())
    record = {"id": "uneven", "source": ["one", "two", "three"], "target": ["eins"], "hypothesis": ["eins"]}
    (run / "results" / "bleu-test.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    text = write_report([run], tmp_path / "out").page.read_text(encoding="utf-8")
    assert '<td dir="auto">three</td><td dir="auto"></td><td dir="auto"></td>' in text


def test_a_run_without_results_has_curves(tmp_path: Path) -> None:
    run = make_results(tmp_path / "run", "other", {})
    report = write_report([run], tmp_path / "out")
    assert list(report.figures) == ["Learning curves of run"]


def test_a_folder_without_a_run_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not a run: wanted a directory with"):
        write_report([tmp_path], tmp_path)
    run = make_results(tmp_path / "run", "extrapolation", {"lengths": []})
    with pytest.raises(ValueError, match="extrapolation: no result of an evaluation by length"):
        write_report([run], tmp_path)
    make_results(run, "extrapolation", extrapolation(("ours",)))
    make_results(run, "bleu-test", {})
    with pytest.raises(ValueError, match=r"results: a result file of an unknown format \(KeyError: 'count"):
        write_report([run], tmp_path)
    (run / "results" / "extrapolation.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"extrapolation\.json: not a result file"):
        write_report([run], tmp_path)


@pytest.mark.parametrize("times", [2, 3])
def test_a_run_given_twice_is_reported(tmp_path: Path, times: int) -> None:
    run = make_results(tmp_path / "run", "bleu-test", bleu())
    other = make_results(tmp_path / "other", "bleu-test", bleu())
    with pytest.raises(ValueError, match=f"^{run}: given {times} times: give each run once$"):
        write_report([other, run, tmp_path / "other" / ".." / "run", *[run] * (times - 2)], tmp_path / "out")


def test_a_path_that_ends_in_another_is_distinguished(tmp_path: Path) -> None:
    runs = [tmp_path / "run", tmp_path / "x" / Path(*tmp_path.parts[1:]) / "run"]
    for run in runs:
        make_results(run, "bleu-test", bleu())
    report = write_report(runs, tmp_path / "out")
    assert f'<h1 dir="auto">{runs[0]}, x{runs[0]}</h1>' in report.page.read_text(encoding="utf-8")


def test_dollars_are_not_formulas(tmp_path: Path) -> None:
    name = "$$ \\frac $"
    assert plot_extrapolation(extrapolation((name, "$$")), tmp_path)
    assert plot_context({name: context(), "$$": context()}, tmp_path / "c.png")
    runs = [make_results(tmp_path / place / "$$", "bleu-test", bleu()) for place in "ab"]
    assert write_report(runs, tmp_path / "out").figures
    maps = AttentionMaps(("$$", "a"), (name, "$x$"), {"cross": np.full((1, 1, 2, 2), 0.5)}, {"cross": "softmax"})
    assert plot_attention(maps, tmp_path)


def test_figures_by_length(tmp_path: Path) -> None:
    losses = extrapolation(("ours",))
    for row in losses["results"]:
        row["decode"] = None
    figures = plot_extrapolation(losses, tmp_path, "x")
    assert [path.name for path in figures.values()] == [f"x-{part}.png" for part in ("quality", "position", "cost")]
    assert matplotlib.image.imread(tmp_path / "x-cost.png").shape[1] == 2 * 576  # time and memory


def test_figures_by_distance(tmp_path: Path) -> None:
    path = plot_context({"a": context(), "b": context(0.5)}, tmp_path / "c.png")
    assert path is not None
    assert matplotlib.image.imread(path).shape[1] == 2 * 576  # pronoun and term; contrastive above generative
    nothing = context()
    for row in nothing["scores"]:
        row["contrastive"] = row["generative"] = None
    assert plot_context({"a": nothing}, tmp_path / "d.png") is None
    with pytest.raises(ValueError, match="a: not the result of an evaluation of context"):
        plot_context({"a": {"scores": [{}]}}, tmp_path / "d.png")


def test_lines_are_distinct_without_colour() -> None:
    styles = line_styles(["a", "b", "c"], ["x", "y"])
    drawn = {(s["marker"], s["linestyle"], s["markerfacecolor"] == "white") for s in styles.values()}
    assert len(drawn) == 6
    many = line_styles([f"system {number}" for number in range(21)])
    assert len({(s["marker"], s["color"]) for s in many.values()}) == 21

    def grey(color: str) -> float:
        red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    levels = [grey(color) for color in COLORS[:3]]
    assert all(b - a > 30 for a, b in pairwise(levels))


@pytest.mark.parametrize(
    ("reference", "hypothesis", "expected"),
    [
        ("a b c", "a b c", "a b c"),
        ("a b c", "a x c", "a <mark>x</mark> c"),
        ("a b c", "a c", 'a <span class="gap" title="missing: b">&#8248;</span> c'),
        ("a", "a <b", "a <mark>&lt;b</mark>"),
        ("a", "", '<span class="gap" title="missing: a">&#8248;</span>'),
        ("", "", ""),
        ("我喜欢他们的书。", "我喜欢你们的书。", "我喜欢<mark>你</mark>们的书。"),
        ("今天天气很好", "今天天气好", '今天天气<span class="gap" title="missing: 很">&#8248;</span>好'),
        ("用 Python 编程", "用Python编程", "用Python编程"),
    ],
    ids=["equal", "replaced", "missing", "more", "nothing", "empty", "character", "missing character", "spaces"],
)
def test_differences_are_marked(reference: str, hypothesis: str, expected: str) -> None:
    assert mark_differences(reference, hypothesis) == expected


def test_results_of_another_corpus_are_separate(tmp_path: Path) -> None:
    """A run is not compared with itself, and each table names its corpus."""
    run = make_results(tmp_path / "run", "bleu-test", {**bleu(30.0), "corpus": {"where": "own.jsonl"}})
    make_results(run, "bleu-manuals-test", {**bleu(20.0, "nrefs:1|tok:zh"), "corpus": {"where": "manuals.jsonl"}})
    text = write_report([run], tmp_path / "out").page.read_text(encoding="utf-8")
    assert '<h3 dir="auto">test split</h3>' in text
    assert '<h3 dir="auto">manuals-test split</h3>' in text
    assert "; own.jsonl" in text
    assert "; manuals.jsonl" in text
    assert "d-BLEU of run (manuals-test): nrefs:1|tok:zh" in text
    assert "not comparable" not in text


def test_tables_and_sections() -> None:
    found = table(["a", "<b>"], [["x & y", 1234], [None, 0.5]])
    assert '<th dir="auto">&lt;b&gt;</th>' in found
    assert '<td dir="auto">x &amp; y</td><td class="number">1,234</td>' in found
    assert '<td></td><td class="number">0.50</td>' in found
    text = page("t", [("One", "<p>1</p>"), ("Two", "")])
    assert "One" in text
    assert "Two" not in text
