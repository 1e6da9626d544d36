"""The plan of segment-gated attention by states, and steps that hand on to each other."""

from __future__ import annotations

import pytest
import torch

from scaleformer.ops import get_feature_map, segment_gated_attention
from scaleformer.ops.gated import state_attention as segment_state_attention
from scaleformer.ops.gated.linear import Path, linear_segment_attention
from scaleformer.ops.gated.state_plan import cut_pieces, make_slots, plan_states
from tests.ops.inputs import gradients
from tests.ops.segments.inputs import make_segment_inputs, make_segments

LENGTHS = [(1, 1), (63, 63), (64, 64), (65, 65), (130, 67), (67, 130)]


def test_slots_keep_the_distances_that_the_gate_tells_apart() -> None:
    queries, keys = torch.tensor([3, 4, 1000, 1002]), torch.tensor([0, 3, 998, 10**12])
    slots, key_slots = make_slots(queries, keys, reach=4)
    distance = (keys[None] - queries[:, None]).clamp(-4, 4)
    assert torch.equal((key_slots[None] - slots[:, None]).clamp(-4, 4), distance)
    assert key_slots.max() < 30


def test_pieces_do_not_cross_borders() -> None:
    pieces = cut_pieces(torch.tensor([0, 0, 0, 0, 1, 1, 2, 5]), 3, real=None)
    assert pieces.starts == [0, 3, 4, 6, 7, 8]
    assert pieces.slots == [0, 0, 1, 2, 5]
    assert pieces.valid.sum(1).tolist() == [3, 1, 2, 1, 1]
    assert pieces.place.tolist() == [0, 1, 2, 3, 6, 7, 9, 12]
    assert pieces.continues(0, 3) == [False, True, False, False]
    assert pieces.rising(1, 4)
    assert not pieces.rising(0, 2)
    assert not pieces.rising(3, 5)
    assert not pieces.even(0, 3)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("kind", ["one-token", "single", "short", "with-gaps"])
def test_each_position_is_in_one_step(kind: str, causal: bool) -> None:
    segments = make_segments(kind, 1, 200)
    plan = plan_states(segments, segments, None, 3, causal, 20, (8, 8), 2, 64, torch.float64)
    (row,) = plan.rows
    assert len(row.steps) > 1
    assert [step.first for step in row.steps] == [0, *(step.last for step in row.steps[:-1])]
    blocks = [block for step in row.steps for block in step.keys] + row.rest
    assert [first for first, _ in blocks] == [0, *(last for _, last in blocks[:-1])]
    assert row.steps[-1].last == blocks[-1][1] == len(row.queries.slots)


@pytest.mark.parametrize("numbers", [16, 1 << 12], ids=["one-piece-steps", "one-step"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=lambda n: f"LQ{n[0]}-LK{n[1]}")
@pytest.mark.parametrize("kind", ["short", "with-gaps"])
def test_cross_attention_by_states(
    monkeypatch: pytest.MonkeyPatch, kind: str, lengths: tuple[int, int], numbers: int
) -> None:
    """Other segments on each side: keys before the first step, and after the last one."""
    monkeypatch.setitem(segment_state_attention.BLOCK_NUMBERS, "cpu", numbers)
    x = make_segment_inputs(*lengths, kind, reach=2, masked=lengths[0] > 1)
    tokens, queries = x.tokens, x.query_segments + 7
    out = linear_segment_attention(
        tokens.q, tokens.k, tokens.v, None, x.log_gate, queries, x.key_segments, False, tokens.key_mask, 3,
        get_feature_map("elu1"), torch.float64, Path("states", 8),
    )  # fmt: skip
    expected = segment_gated_attention(
        tokens.q, tokens.k, tokens.v, None, x.log_gate, queries, x.key_segments,
        key_mask=tokens.key_mask, far_tokens=3, algorithm="quadratic",
    )  # fmt: skip
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-11)
    for got, want in zip(gradients(out, x.leaves), gradients(expected, x.leaves), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-11)
