"""The program that shows the choice of `algorithm=auto` beside every algorithm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.algorithm_choice import choice_tables, main
from tests.scripts.bench_training.test_report import cells


def test_tables() -> None:
    row = {"mechanism": "ours", "case": "causal", "passes": "forward", "length": 16, "reason": "it is short"}
    row |= {"seconds": {"all scores": 0.002, "linear": 0.001}, "choice": "all scores", "excess": 1.0}
    other = row | {"length": 32, "seconds": {"linear": 0.003}, "choice": "linear", "excess": 0.0}
    table, words = choice_tables({"rows": [other, row], "worst": {"ours": 1.0}})
    assert cells(table)[0] == ["ours: ms", "16", "32"]
    assert cells(table)[2:] == [
        ["causal, forward: linear", "1", "3"],
        ["causal, forward: all scores", "2", ""],
        ["causal, forward: auto", "all scores +100%", "linear +0%"],
    ]
    assert words == "Largest excess of `auto` over the best: ours 100%."


def test_what_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--heads 2 --width 4 --horizon 2 --repeats 1 --seconds 0 --threads 1 --lengths 8 20 --segments 5"
    main([*sizes.split(), "--output", str(tmp_path)])
    result = json.loads((tmp_path / "attention_auto.json").read_text(encoding="utf-8"))
    assert (tmp_path / "attention_auto.png").stat().st_size > 10_000
    rows = result["rows"]
    assert len(rows) == 2 * 3 * 2 * 2
    assert {name for row in rows for name in row["seconds"]} == {"all scores", "linear"}
    for row in rows:
        assert row["reason"]
        if row["choice"] in row["seconds"]:
            best = min(row["seconds"].values())
            assert row["excess"] == pytest.approx(row["seconds"][row["choice"]] / best - 1)
    assert result["worst"].keys() == {"scaleformer", "segment-recall"}
    assert "causal, forward: auto" in capsys.readouterr().out


def test_a_segment_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"segments is \[\]: it must have one"):
        main(["--segments", "--output", str(tmp_path)])
