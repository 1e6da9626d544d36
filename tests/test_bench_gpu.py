"""The program of `make bench-gpu` on a CPU, in tiny sizes: its rows, and that it continues where it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from scripts import bench_gpu
from scripts.gpu import checked
from scripts.gpu.rows import CUDNN, FLASH
from scripts.gpu.timed import flex


def test_rows_are_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.jsonl"
    given = ["--small", "--device", "cpu", "--parts", "attention", "--output", str(path), "--budget-seconds", "0.01"]
    bench_gpu.main([*given, "--lengths", "32"])
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    timed = {(row["case"], row["system"]) for row in rows if "ms" in row}
    cases = ["32 tokens, forward", "32 tokens, forward+backward"]
    assert timed >= {(case, name) for case in cases for name in ("segment_recall", "scaleformer", FLASH)}
    assert all("error" in row for row in rows if row["system"] == CUDNN)
    bench_gpu.main([*given, "--lengths", "32"])
    bench_gpu.main([*given, "--lengths", "32", "48", "--minutes", "-1"])
    again = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [row for row in again if row["part"] != "machine"] == rows[1:]
    assert "not measured: attention, 48 tokens, forward: segment_recall, scaleformer" in capsys.readouterr().out


def test_the_blocks_of_flex_attention_are_causal() -> None:
    q, k, v = torch.randn(3, 1, 2, 300, 16, generator=torch.Generator().manual_seed(0))
    found = flex(q, k, v)()
    torch.testing.assert_close(found, scaled_dot_product_attention(q, k, v, is_causal=True))


def test_a_wrong_gradient_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = checked.outcome

    def outcome(x: object, dtype: torch.dtype, algorithm: str, cross: bool, how: object) -> object:
        found = honest(x, dtype, algorithm, cross, how)  # type: ignore[arg-type]
        return found | {"k": found["k"] * 1.1} if algorithm == "linear" else found

    monkeypatch.setattr(checked, "outcome", outcome)
    monkeypatch.setattr(checked, "CASES", checked.CASES[:1])
    monkeypatch.setattr(checked, "synchronisations", lambda bench: None)
    path = tmp_path / "rows.jsonl"
    bench_gpu.main(["--small", "--device", "cpu", "--parts", "check", "--output", str(path)])
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert {(row["system"], *row["wrong"]) for row in rows[1:] if "wrong" in row} >= {("linear", "k"), ("quadratic",)}
