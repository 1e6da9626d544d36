"""What windows of attention with recall hold: their memory, and pads."""

from __future__ import annotations

import pytest
import torch

from scaleformer.ops.recall.plan import plan_recall
from scaleformer.ops.segments import tiles as hybrid_plan
from tests.ops.inputs import gradients
from tests.ops.kernel.test_attention import LargestTensor
from tests.ops.recall.test_attention import assert_same, call, each_direction, make


@each_direction
@pytest.mark.parametrize("kind", ["one-token", "single"])
def test_memory_is_linear(monkeypatch: pytest.MonkeyPatch, causal: bool, kind: str) -> None:
    """Neither (L, L) nor (L, d, d) nor segments squared, forward or backward; a key has a number for each segment that
    a tile of 64 queries may lie in, beside its own 2d and a few."""
    monkeypatch.setitem(hybrid_plan.SCORE_NUMBERS, "cpu", 1 << 16)
    length, d = 1024, 16
    case = make(length, length, kind, near=3, horizon=3, batch=1, heads=1, d=d, e=d, causal=causal)
    with LargestTensor() as largest:
        gradients(call(case, kept=16, causal=causal, algorithm="linear"), case.leaves)
    assert largest.numel <= (10 if kind == "single" else 14) * d * length


@each_direction
@pytest.mark.parametrize("relative", [{}, {"horizon": 40}], ids=["no-rel", "R40"])
def test_a_short_row_beside_a_long_one(monkeypatch: pytest.MonkeyPatch, causal: bool, relative: dict[str, int]) -> None:
    """Tiles of pads far behind the last key: none reads the pads between, and scores are what they were."""
    monkeypatch.setitem(hybrid_plan.SCORE_NUMBERS, "cpu", 1 << 12)
    case = make(500, 500, "long", causal=causal, **relative)
    key_mask = torch.arange(500) < torch.tensor([[500], [45]])
    out = call(case, kept=9, causal=causal, algorithm="linear", key_mask=key_mask)
    assert_same(case, out, call(case, kept=9, causal=causal, algorithm="quadratic", key_mask=key_mask))


@each_direction
@pytest.mark.parametrize("short", [4096, 512, 0])
def test_pads_cost_no_more_than_keys(causal: bool, short: int) -> None:
    segments = (torch.arange(4096) // 25).expand(2, -1)

    def widest(length: int) -> int:
        key_mask = torch.arange(4096) < torch.tensor([[4096], [length]])
        plan = plan_recall(segments, segments, key_mask, 3, causal, 16, 64, 8, torch.float32)
        return max(step.width for step in plan.windows.steps)

    assert widest(short) <= widest(4096) + 2 * hybrid_plan.BLOCK
