"""The benchmark of training as a command, on the smallest sizes and without peers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from scripts.pages.benchmarks import write_page
from tests.commands.calls import Benchmark

TINY = ["sizes.layers=1", "sizes.width=8", "sizes.feedforward=8", "sizes.heads=2", "sizes.vocabulary=30", "threads=1"]


@pytest.fixture(scope="module")
def training() -> Benchmark:
    return Benchmark("benchmark training")


@pytest.mark.usefixtures("small_products")
def test_training(
    training: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(training.module, "peer_versions", dict)
    sizes = ["lengths=[8,16]", "batch_tokens=16", "repeats=1", "seconds=0", "systems=[scaleformer,softmax,JoeyNMT]"]
    training.main([*TINY, *sizes, f"output={tmp_path}"])
    result = json.loads((tmp_path / "training.json").read_text())
    assert {"command", "versions", "device", "settings", "peaks", "rows", "notes"} <= result.keys()
    assert [(r["precision"], r["length"], r["system"]) for r in result["rows"]] == [
        (precision, length, system)
        for precision in ("float32", "bfloat16")
        for length in (8, 16)
        for system in ("scaleformer", "softmax")
    ]
    assert all(r["ratio"] is None and not r["skipped"] for r in result["rows"])
    assert "JoeyNMT left out: not installed." in capsys.readouterr().out
    assert "A training step" in write_page(tmp_path, tmp_path / "page.md").read_text()


@pytest.mark.usefixtures("small_products")
def test_what_is_measured_stays_where_the_benchmark_is_stopped(
    training: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = training.module.measure_steps

    def stopped(*arguments: object) -> object:
        return itertools.chain(itertools.islice(whole(*arguments), 1), map(interrupt, [0]))

    def interrupt(_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(training.module, "measure_steps", stopped)
    sizes = [*TINY, "precisions=[float32]", "batch_tokens=16", "lengths=[8,16]", "repeats=1", "seconds=0"]
    with pytest.raises(SystemExit):
        training.main([*sizes, f"output={tmp_path}"])
    rows = json.loads((tmp_path / "training.json").read_text())["rows"]
    assert rows
    assert {row["length"] for row in rows} == {8}


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("colour=red", "colour"),
        ("systems=[fairseq]", "systems is ['fairseq']: it must be a nonempty list of one of scaleformer"),
        ("precisions=[]", "precisions is []: it must be a nonempty list of one of float32, bfloat16"),
        ("lengths=[4]", "lengths is [4]: it must be a nonempty list of int of at least 8"),
        ("repeats=0", "repeats is 0: it must be an int of at least 1"),
    ],
    ids=lambda value: value if "=" in value and ":" not in value else "",
)
def test_wrong_options(training: Benchmark, argument: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        training.main(argument.split())
    assert message in capsys.readouterr().err
