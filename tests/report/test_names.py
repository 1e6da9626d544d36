"""Names of runs and of their results in figures and tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scaleformer.evaluation.positions import quality_by_position
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.report.names import corpus_names, run_names
from scaleformer.report.page import write_report
from tests.results import bleu, make_results

SHARED = ["model.width=32", "experiment='smoke'"]


def job(folder: Path, *overrides: str) -> Path:
    """A job of a sweep with what Hydra records of it."""
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text(json.dumps([*SHARED, *overrides]), encoding="utf-8")
    return folder


def test_jobs_of_a_sweep_are_named_by_what_differs(tmp_path: Path) -> None:
    jobs = [
        job(tmp_path / "0", "model/attention='softmax'", "seed=1"),
        job(tmp_path / "1", "model/attention='softmax'", "seed=2"),
        job(tmp_path / "2", "model/attention='scaleformer'", "seed=1"),
    ]
    assert run_names(jobs) == [
        "model/attention=softmax seed=1",
        "model/attention=softmax seed=2",
        "model/attention=scaleformer seed=1",
    ]
    assert run_names(jobs[:2]) == ["seed=1", "seed=2"]
    assert run_names(jobs[:1]) == ["0"]
    assert run_names([jobs[0], tmp_path / "run"]) == ["0", "run"]
    equal = [job(tmp_path / "a" / "0"), job(tmp_path / "b" / "0")]
    assert run_names(equal) == ["a/0", "b/0"]
    with pytest.raises(ValueError, match=f"^{jobs[0]}: given 2 times: give each run once$"):
        run_names([jobs[0], jobs[1], jobs[0]])


def corpus(sha: str, called: str, name: str = "", split: str = "test") -> dict[str, Any]:
    return {"corpus": {"name": name, "called": called, "split": split, "sha256": sha}}


def test_results_on_the_same_documents_have_one_name() -> None:
    of_x = {"bleu-test": corpus("1", "x"), "bleu-y-test": corpus("2", "y", "y"), "extrapolation": corpus("1", "x")}
    of_y = {"bleu-test": corpus("2", "y"), "extrapolation-x-test": corpus("1", "other", "x"), "comet-test": {}}
    assert corpus_names([of_x, of_y]) == [
        {"bleu-test": "bleu-x-test", "bleu-y-test": "bleu-y-test", "extrapolation": "extrapolation-x-test"},
        {"bleu-test": "bleu-y-test", "extrapolation-x-test": "extrapolation-x-test", "comet-test": "comet-test"},
    ]
    assert corpus_names([of_x]) == [{name: name for name in of_x}]
    part = {"bleu-test-first-5": corpus("1", "x")}  # other documents than all
    assert corpus_names([of_x, part])[1] == {"bleu-test-first-5": "bleu-x-test-first-5"}
    twice = {"bleu-test": corpus("1", "x"), "bleu-x-test": corpus("1", "x", "x")}
    assert corpus_names([of_x, twice])[1] == {name: name for name in twice}
    older = [{"bleu-test": {"corpus": {"name": "", "split": "test", "sha256": sha}}} for sha in "12"]
    assert corpus_names(older) == [{"bleu-test": "bleu-test"}, {"bleu-test": "bleu-test-1"}]


def test_models_of_different_corpora_meet_in_one_figure(tmp_path: Path) -> None:
    words = [f"w{i} x{i} y{i} z{i}" for i in range(12)]
    documents = [TranslatedDocument(name, (), words, words[:count]) for name, count in (("a", 11), ("b", 12))]
    result = {**bleu(), "positions": quality_by_position(documents)}
    first = make_results(tmp_path / "a", "bleu-test", {**result, **corpus("1", "x")})
    second = make_results(tmp_path / "b", "bleu-x-test", {**result, **corpus("1", "x", "x")})
    make_results(tmp_path / "b", "bleu-test", {**result, **corpus("2", "y")})
    report = write_report([first, second], tmp_path / "out")
    assert [path.name for title, path in report.figures.items() if title.startswith("Quality")] == [
        "positions-x-test.png",
        "positions-y-test.png",
    ]
    rows = {title: [row[0] for row in rows] for title, _, rows in report.tables}
    assert rows == {"x-test split": ["a", "a", "b", "b"], "y-test split": ["b", "b"]}
    for ending in (".png", ".pdf", ".svg"):
        assert (tmp_path / "out" / f"positions-x-test{ending}").stat().st_size > 5000
