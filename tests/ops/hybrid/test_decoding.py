"""Decoding token by token with hybrid attention gives what the whole sequence gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.benchmarks.models import tensors
from scaleformer.ops.hybrid.attention import segment_hybrid_attention
from scaleformer.ops.hybrid.decoding import HybridCausalState, hybrid_causal_init, hybrid_causal_step
from scaleformer.ops.hybrid.decoding_cross import hybrid_cross_state, hybrid_cross_step
from tests.ops.segments.inputs import SEGMENTS, SegmentInputs, make_segment_inputs, make_segments

FAR_TOKENS = 3
RELATIVE: dict[str, dict[str, Any]] = {"no-rel": {}, "shared-R1": {"horizon": 1}, "per-head-R4": {"horizon": 4}}
each_relative = pytest.mark.parametrize("relative", RELATIVE.values(), ids=RELATIVE.keys())
each_kind = pytest.mark.parametrize("kind", SEGMENTS)
each_range = pytest.mark.parametrize(("near", "reach"), [(0, 1), (0, 3), (1, 4), (2, 3)])


def empty_state(x: SegmentInputs, near: int) -> HybridCausalState:
    batch, heads, _, d = x.tokens.q.shape
    e = x.tokens.v.shape[3]
    return hybrid_causal_init(batch, heads, d, e, x.log_gate, near, far_tokens=FAR_TOKENS, dtype=torch.float64)


def decode(x: SegmentInputs, state: HybridCausalState, first: int, last: int) -> tuple[Tensor, HybridCausalState]:
    outputs = []
    q, k, v = x.tokens.q, x.tokens.k, x.tokens.v
    for i in range(first, last):
        out, state = hybrid_causal_step(q[:, :, i], k[:, :, i], v[:, :, i], x.tokens.rel, x.key_segments[:, i], state)
        outputs.append(out)
    return torch.stack(outputs, dim=2), state


@torch.no_grad()
def whole(x: SegmentInputs, near: int, **options: Any) -> Tensor:
    options = {"near": near, "far_tokens": FAR_TOKENS, "algorithm": "quadratic", **options}
    return segment_hybrid_attention(*x.arguments, **options)  # type: ignore[arg-type]


@each_relative
@each_kind
@each_range
def test_steps_equal_the_whole(relative: dict[str, Any], kind: str, near: int, reach: int) -> None:
    x = make_segment_inputs(50, 50, kind, causal=True, reach=reach, **relative)
    out, _ = decode(x, empty_state(x, near), 0, 50)
    torch.testing.assert_close(out, whole(x, near, causal=True))


def test_reorder() -> None:
    """Rows that go on from other rows: the segments they have read move along."""
    x = make_segment_inputs(24, 24, causal=True, batch=3, horizon=4)
    index = torch.tensor([2, 0, 0, 1])
    _, state = decode(x, empty_state(x, 1), 0, 11)
    state = state.reorder(index)
    new = make_segment_inputs(24, 24, causal=True, batch=4, seed=5, horizon=4)

    def continued(old: Tensor, later: Tensor, dim: int) -> Tensor:
        return torch.cat([old[index].narrow(dim, 0, 11), later.narrow(dim, 11, 13)], dim=dim)

    names = ("q", "k", "v")
    parts = {name: continued(getattr(x.tokens, name), getattr(new.tokens, name), 2) for name in names}
    segments = continued(x.key_segments, new.key_segments + x.key_segments.max(), 1)
    mixed = SegmentInputs(replace(x.tokens, **parts), x.log_gate, segments, segments)
    out, _ = decode(mixed, state, 11, 24)
    torch.testing.assert_close(out, whole(mixed, 1, causal=True)[:, :, 11:])


def test_the_state_does_not_grow_with_the_document() -> None:
    """Segments of six tokens: two of them and no more are kept token by token."""
    x = make_segment_inputs(200, 200, causal=True, horizon=3)
    segments = (torch.arange(200) // 6).expand(2, -1)
    x = replace(x, query_segments=segments, key_segments=segments)
    state, kept = empty_state(x, 1), []
    shapes = [t.shape for t in tensors(state)]
    for i in range(200):
        _, state = decode(x, state, i, i + 1)
        kept.append(int(state.recent.length.max()))
    assert max(kept) == 12
    assert [t.shape for t in tensors(state)] == shapes


@each_kind
@each_range
@pytest.mark.parametrize("masked", [False, True], ids=["all-keys", "masked"])
def test_cross_steps_equal_the_whole(kind: str, near: int, reach: int, masked: bool) -> None:
    """Every hypothesis in a segment of its own, those past the last one of the source among them."""
    x = make_segment_inputs(9, 40, kind, reach=reach, masked=masked)
    asking = torch.cat([x.query_segments, x.key_segments.amax(1, keepdim=True) + 7], dim=1)[:, 1:]
    x = replace(x, query_segments=asking)
    tokens = x.tokens
    state = hybrid_cross_state(tokens.k, tokens.v, x.log_gate, x.key_segments, tokens.key_mask, near, FAR_TOKENS)
    expected = whole(x, near, key_mask=tokens.key_mask)
    torch.testing.assert_close(hybrid_cross_step(tokens.q, asking, state), expected)
    chosen = torch.tensor([1, 0, 1])
    again = hybrid_cross_step(tokens.q[chosen], asking[chosen], state.select(chosen))
    torch.testing.assert_close(again, expected[chosen])


def test_pads_of_the_source_hold_anything() -> None:
    x = make_segment_inputs(5, 30, "short")
    key_mask = torch.arange(30) < torch.tensor([30, 17])[:, None]
    k, v = (t.detach().masked_fill(~key_mask[:, None, :, None], float("nan")) for t in (x.tokens.k, x.tokens.v))
    segments = torch.where(key_mask, x.key_segments, make_segments("with-gaps", 2, 30) - 50)
    state = hybrid_cross_state(k, v, x.log_gate, segments, key_mask, 1, FAR_TOKENS)
    out = hybrid_cross_step(x.tokens.q, x.query_segments, state)
    torch.testing.assert_close(out, whole(x, 1, key_mask=key_mask))
