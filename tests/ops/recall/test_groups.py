"""How `segment_recall_attention` groups its tiles: no group changes the result, and what a call costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from scaleformer.ops import SegmentLayout, segment_recall_attention
from scaleformer.ops.recall import linear, quadratic, selection
from scaleformer.ops.recall.plan import plan_recall
from scaleformer.ops.segments import tiles
from tests.ops.inputs import gradients
from tests.ops.kernel.test_attention import LargestTensor
from tests.ops.recall.inputs import call, make
from tests.ops.recall.test_attention import BOTH, assert_forms_agree, each_direction
from tests.ops.segments.inputs import SEGMENTS
from tests.pairwise import pairwise


@pytest.mark.parametrize(
    ("causal", "kind", "lengths"), pairwise(BOTH, SEGMENTS, ((90, 90), (30, 90), (90, 30))), ids=str
)
def test_several_groups(monkeypatch: pytest.MonkeyPatch, causal: bool, kind: str, lengths: tuple[int, int]) -> None:
    """A few tiles at a time, with many keys outside their windows."""
    monkeypatch.setitem(tiles.SCORE_NUMBERS, "cpu", 1 << 9)
    assert_forms_agree(make(*lengths, kind, causal=causal, masked=True, horizon=3), kept=7, causal=causal)


@each_direction
def test_recomputed_weights(monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    """With more scores than are kept for the backward pass, it computes them again: the same gradients."""
    case = make(90, 90, causal=causal, masked=True, horizon=3)

    def found() -> list[Tensor]:
        return list(gradients(call(case, kept=7, causal=causal, algorithm="linear"), case.leaves))

    kept = found()
    monkeypatch.setitem(linear.KEPT_SCORES, "cpu", 0)
    torch.testing.assert_close(found(), kept, rtol=1e-11, atol=1e-13)
    assert_forms_agree(case, kept=7, causal=causal)


@each_direction
def test_fewer_groups_on_a_gpu(monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    """Its settings join tiles with windows of different widths, whose spare columns change nothing."""
    case = make(600, 600, causal=causal, horizon=3)
    lengths = torch.randint(3, 60, (2, 200), generator=torch.Generator().manual_seed(0))
    segments = torch.stack([torch.arange(200).repeat_interleave(row)[:600] for row in lengths])
    case = replace(case, x=replace(case.x, query_segments=segments, key_segments=segments))
    monkeypatch.setitem(tiles.SCORE_NUMBERS, "cpu", tiles.SCORE_NUMBERS["cuda"])

    def groups() -> int:
        layout = SegmentLayout(segments, segments)
        return len(plan_recall(layout, 1, causal, 3, 9, 2, torch.float64).tiles.groups)

    many = groups()
    monkeypatch.setitem(tiles.ALIKE, "cpu", tiles.ALIKE["cuda"])
    assert groups() < many
    assert_forms_agree(case, kept=9, causal=causal)


@each_direction
@pytest.mark.parametrize("relative", [{}, {"horizon": 40}], ids=["no-rel", "R40"])
def test_a_short_row_beside_a_long_one(monkeypatch: pytest.MonkeyPatch, causal: bool, relative: dict[str, int]) -> None:
    """Tiles of pads far after the last key: none reads the pads between, and scores do not change."""
    monkeypatch.setitem(tiles.SCORE_NUMBERS, "cpu", 1 << 12)
    case = make(500, 500, "long", causal=causal, **relative)
    key_mask = torch.arange(500) < torch.tensor([[500], [45]])
    assert_forms_agree(case, kept=9, causal=causal, key_mask=key_mask)


@each_direction
@pytest.mark.parametrize("kind", ["one-token", "single"])
def test_memory_is_linear(monkeypatch: pytest.MonkeyPatch, causal: bool, kind: str) -> None:
    """Neither (L, L) nor (L, d, d) nor segments squared, forward or backward; a key has a number for each segment that
    a tile of 64 queries may lie in, beside its own 2d and a few."""
    monkeypatch.setitem(tiles.SCORE_NUMBERS, "cpu", 1 << 16)
    length, d = 1024, 16
    case = make(length, length, kind, near=3, horizon=3, batch=1, heads=1, d=d, e=d, causal=causal)
    with LargestTensor() as largest:
        gradients(call(case, kept=16, causal=causal, algorithm="linear"), case.leaves)
    assert largest.numel <= (10 if kind == "single" else 14) * d * length


@each_direction
@pytest.mark.parametrize("short", [300, 0])
def test_pads_cost_no_more_than_keys(causal: bool, short: int) -> None:
    """In products of matrices, counted."""
    case = make(2048, 2048, near=3, causal=causal, horizon=16)
    segments = (torch.arange(2048) // 25).expand(2, -1)
    case = replace(case, x=replace(case.x, query_segments=segments, key_segments=segments))

    def cost(length: int) -> int:
        key_mask = torch.arange(2048) < torch.tensor([[2048], [length]])
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            call(case, kept=64, causal=causal, key_mask=key_mask, algorithm="linear")
        return counter.get_total_flops()

    assert 0 < cost(short) <= 1.02 * cost(2048)


class OperatorCalls(TorchDispatchMode):
    """Counts the calls of operators that compute: all but those that return views."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("algorithm", "length", "causal", "most"),
    [
        ("linear", 1024, True, 240),
        ("linear", 1024, False, 325),
        ("quadratic", 512, True, 105),
        ("quadratic", 512, False, 145),
    ],
)
def test_few_operator_calls_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, length: int, causal: bool, most: int
) -> None:
    """By its settings: up to some 16,384 tokens the time there depends little on the length (docs/log/047)."""
    for settings in (tiles.SCORE_NUMBERS, tiles.ALIKE, quadratic.FEWEST_ROWS, linear.KEPT_SCORES):
        monkeypatch.setitem(settings, "cpu", settings["cuda"])
    monkeypatch.setattr(selection, "running_tops", selection.scan_tops)
    case = make(length, length, near=3, causal=causal, horizon=16, batch=1)
    segments = (torch.arange(length) // 25)[None]
    case = replace(case, x=replace(case.x, query_segments=segments, key_segments=segments))
    layout = SegmentLayout(segments, segments)
    x, given = case.x.tokens, {"causal": causal, "algorithm": algorithm, "layout": layout}

    def attend() -> Tensor:
        return segment_recall_attention(x.q, x.k, x.v, x.rel, case.x.log_gate, case.salience, case.recency, **given)

    attend()  # makes the plan, which all layers share
    with OperatorCalls() as calls:
        gradients(attend(), case.leaves)
    assert calls.count <= most
