"""The benchmark of training: what it measures, prints and writes, on the smallest sizes and without peers."""

from __future__ import annotations

import itertools
import json
import shlex
from functools import partial
from pathlib import Path

import pytest

from scripts.bench_training import __main__ as program
from scripts.bench_training.steps import product_rates
from scripts.pages.benchmarks import write_page
from tests.commands.calls import refusal

TINY = "--layers 1 --width 8 --feedforward 8 --heads 2 --vocabulary 30 --threads 1 --repeats 1 --seconds 0"


@pytest.fixture(autouse=True)
def small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rates of the machine taken of small products: large ones in bfloat16 last minutes on many a CPU."""
    monkeypatch.setattr(program, "product_rates", partial(product_rates, size=64, repeats=1))


def run(folder: Path, arguments: str) -> None:
    program.main([*shlex.split(f"{TINY} {arguments}"), "--output", str(folder)])


def test_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(program, "peer_versions", dict)
    run(tmp_path, "--lengths 8 16 --batch-tokens 16 --systems scaleformer softmax JoeyNMT")
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


def test_what_is_measured_stays_where_the_benchmark_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = program.measure_steps

    def stopped(*arguments: object) -> object:
        return itertools.chain(itertools.islice(whole(*arguments), 1), map(interrupt, [0]))

    def interrupt(_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "measure_steps", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "--precisions float32 --batch-tokens 16 --lengths 8 16 --systems scaleformer softmax")
    rows = json.loads((tmp_path / "training.json").read_text())["rows"]
    assert rows
    assert {row["length"] for row in rows} == {8}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--colour red", "unrecognized arguments: --colour red"),
        ("--systems fairseq", "systems is ['fairseq']: it must be a nonempty list of one of scaleformer"),
        ("--precisions", "precisions is []: it must be a nonempty list of one of float32, bfloat16"),
        ("--lengths 4", "lengths is [4]: it must be a nonempty list of int of at least 8"),
        ("--repeats 0", "repeats is 0: it must be an int of at least 1"),
    ],
)
def test_wrong_options(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refusal(capsys, lambda: program.main(shlex.split(arguments)))
