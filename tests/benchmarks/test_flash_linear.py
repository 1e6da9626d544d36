"""The peer on a GPU: its layout and its feature map, by a loop under the name of its function."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor

from scaleformer.benchmarks.flash_linear import flash_linear_attention, flash_linear_systems
from scaleformer.ops import relative_kernel_attention


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


def test_theirs_is_ours_without_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("fla.ops.linear_attn")
    vars(module)["chunk_linear_attn"] = looped
    monkeypatch.setitem(sys.modules, module.__name__, module)
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 2, 3, 9, 4, dtype=torch.float64).unbind(0)
    ours = relative_kernel_attention(q, k, v, causal=True, algorithm="linear")
    torch.testing.assert_close(flash_linear_attention(q, k, v), ours)


def test_a_cpu_has_no_such_peer() -> None:
    x = torch.zeros(1, 1, 1, 1)
    assert flash_linear_systems(x, x, x) == {}
