"""The page of the benchmarks, from their results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.bench_training.report import draw_training
from scripts.pages.benchmarks import write_page as write
from tests.scripts.bench_attention.test_report import ATTENTION
from tests.scripts.bench_training.test_report import row

CONDITIONS = {
    "command": "python -m scripts.bench_attention",
    "time": "2026-01-01T00:00:00+00:00",
    "device": {"type": "cpu", "name": "a processor", "threads": 2},
    "versions": {"python": "3.11", "torch": "2.13", "rich": "15"},
    "settings": {"repeats": 5, "threads": None, "output": "somewhere"},
}


def test_the_page_shows_existing_results(tmp_path: Path) -> None:
    (tmp_path / "attention.json").write_text(json.dumps({**CONDITIONS, **ATTENTION}))
    training = {
        **CONDITIONS,
        "rows": [row()],
        "peaks": {"float32": 1e12},
        "notes": ["JoeyNMT left out: not installed."],
    }
    (tmp_path / "training.json").write_text(json.dumps(training))
    draw_training([row(), row(length=512, skipped="no")], tmp_path / "training.png")
    text = write(tmp_path, tmp_path / "docs" / "benchmarks.md").read_text()
    for words in (
        "## Attention alone",
        "## A training step",
        "JoeyNMT left out",
        "![A training step](benchmarks-training.png)",
        "```text\npython -m scripts.bench_attention\n",
        "; a processor, threads 2; python 3.11, torch 2.13",
        "Settings: repeats 5\n```",
    ):
        assert words in text
    assert "Decoding" not in text
    assert (tmp_path / "docs" / "benchmarks-training.png").stat().st_size > 1000


def test_a_folder_without_results(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no benchmark results"):
        write(tmp_path, tmp_path / "page.md")
