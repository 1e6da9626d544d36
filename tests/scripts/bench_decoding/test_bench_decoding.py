"""The benchmark of decoding: what it measures, prints and writes, on the smallest sizes and without peers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from scripts.bench_decoding import __main__ as program
from scripts.pages.benchmarks import write_page
from tests.commands.calls import refusal

TINY = "--layers 1 --width 8 --feedforward 8 --heads 2 --vocabulary 30 --threads 1 --source 9"


def run(folder: Path, arguments: str) -> dict[str, Any]:
    program.main([*shlex.split(f"{TINY} {arguments}"), "--output", str(folder)])
    (written,) = folder.glob("*.json")
    result: dict[str, Any] = json.loads(written.read_text())
    assert {"command", "versions", "device", "seed", "settings"} <= result.keys()
    assert written.with_suffix(".png").stat().st_size > 1000
    return result


def test_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(program, "versions", dict)
    sizes = "--positions 12 --batches 1 2 --beams 1 2 --systems segment_recall --texts 3 --segment 4 --rounds 1"
    result = run(tmp_path, sizes)
    assert [(c["batch"], c["beams"]) for c in result["curves"]] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert result["comparisons"] == []
    assert [(r["precision"], r["texts"], r["tokens"], r["beams"]) for r in result["throughput"]] == [
        (precision, *what) for precision in ("fp32", "int8") for what in ((3, 4, 1), (3, 4, 2), (1, 216, 1))
    ]
    assert {r["ratio"] for r in result["throughput"]} == {None}
    said = capsys.readouterr().out
    assert "Marian (transformers) left out: not installed" in said
    assert "CTranslate2 left out: not installed (pip install -e '.[bench]')" in said
    assert "## Decoding" in write_page(tmp_path, tmp_path / "page.md").read_text()


def test_long_decoding(tmp_path: Path) -> None:
    result = run(tmp_path, "--long 20 --systems scaleformer")
    (curve,) = result["curves"]
    assert (curve["batch"], curve["beams"], len(curve["ends"])) == (1, 1, 8)
    assert result["comparisons"] == []
    assert result["settings"]["sizes"] == {"layers": 1, "width": 8, "feedforward": 8, "heads": 2, "vocabulary": 30}
    assert "## Decoding far" in write_page(tmp_path, tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--colour red", "unrecognized arguments: --colour red"),
        ("--beams", "beams is []: it must be a nonempty list of int"),
        ("--systems fairseq", "systems is ['fairseq']: it must be a nonempty list of one of scaleformer"),
        ("--long 4", "long is 4: it must be an int of at least 17"),
        ("--layers x", "argument --layers: invalid int value: 'x'"),
    ],
)
def test_wrong_options(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refusal(capsys, lambda: program.main(shlex.split(arguments)))
