"""The program of `make bench-gpu` on a CPU, in tiny sizes: its rows, and that it continues where it was."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from scaleformer.ops import relative_kernel_attention
from scripts import bench_gpu
from scripts.gpu import checked
from scripts.gpu.rows import CUDNN, FLASH
from scripts.gpu.timed import flash_linear_attention, flex


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


def looped(q: Tensor, k: Tensor, v: Tensor, normalize: bool) -> tuple[Tensor, None]:
    """What `chunk_linear_attn` documents: q, k (B, T, H, K), v (B, T, H, V), normalized by the sum of the weights."""
    assert normalize
    out = torch.empty_like(v)
    for b in range(q.shape[0]):
        for t in range(q.shape[1]):
            for h in range(q.shape[2]):
                weights = k[b, : t + 1, h] @ q[b, t, h]  # (t + 1,)
                out[b, t, h] = weights @ v[b, : t + 1, h] / weights.sum()
    return out, None


def test_flash_linear_attention_is_ours_without_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("fla.ops.linear_attn")
    vars(module)["chunk_linear_attn"] = looped
    monkeypatch.setitem(sys.modules, module.__name__, module)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 9, 4, dtype=torch.float64).unbind(0)
    ours = relative_kernel_attention(q, k, v, causal=True, algorithm="linear")
    torch.testing.assert_close(flash_linear_attention(q, k, v), ours)
