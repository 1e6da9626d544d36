"""Decoding token by token with segment gates gives the results of the whole sequence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.ops import (
    SegmentCausalState,
    get_feature_map,
    segment_causal_init,
    segment_causal_step,
    segment_cross_state,
    segment_cross_step,
    segment_gated_attention,
)
from tests.ops.segments.inputs import SEGMENTS, SegmentInputs, make_segment_inputs, make_segments
from tests.pairwise import covering

FAR_TOKENS = 3
RELATIVE: dict[str, dict[str, Any]] = {
    "no-rel": {},
    "shared-R1": {"horizon": 1},
    "per-head-R4": {"horizon": 4, "per_head": True},
}
each_relative = pytest.mark.parametrize("relative", RELATIVE.values(), ids=RELATIVE.keys())


def empty_state(x: SegmentInputs) -> SegmentCausalState:
    batch, heads, _, d = x.tokens.q.shape
    e = x.tokens.v.shape[3]
    return segment_causal_init(batch, heads, d, e, x.tokens.rel, x.log_gate, far_tokens=FAR_TOKENS, dtype=torch.float64)


def decode(x: SegmentInputs, state: SegmentCausalState, first: int, last: int) -> tuple[Tensor, SegmentCausalState]:
    outputs = []
    q, k, v = x.tokens.q, x.tokens.k, x.tokens.v
    for i in range(first, last):
        out, state = segment_causal_step(q[:, :, i], k[:, :, i], v[:, :, i], x.tokens.rel, x.key_segments[:, i], state)
        outputs.append(out)
    return torch.stack(outputs, dim=2), state


def whole(x: SegmentInputs) -> Tensor:
    with torch.no_grad():
        return segment_gated_attention(
            *x.arguments,
            causal=True,
            far_tokens=FAR_TOKENS,
            algorithm="quadratic",  # type: ignore[arg-type]
        )


@each_relative
@pytest.mark.parametrize(("kind", "reach"), list(zip(SEGMENTS, (1, 2, 4, 1, 4), strict=True)))
def test_steps_equal_the_whole(relative: dict[str, Any], kind: str, reach: int) -> None:
    x = make_segment_inputs(30, 30, kind, causal=True, reach=reach, **relative)
    out, _ = decode(x, empty_state(x), 0, 30)
    torch.testing.assert_close(out, whole(x))


@covering(relative=RELATIVE, kind=SEGMENTS, length=[1, 5, 17])
def test_the_state_is_sums_of_segments(relative: dict[str, Any], kind: str, length: int) -> None:
    x = make_segment_inputs(length, length, kind, causal=True, **relative)
    _, state = decode(x, empty_state(x), 0, length)
    tokens, phi = x.tokens.detached(), get_feature_map("elu1")
    features = phi(tokens.k)
    if tokens.rel is not None:
        features = features + phi(tokens.rel)[..., :1, :]
    u = torch.cat([tokens.v, torch.ones_like(tokens.v[..., :1])], dim=-1)
    reach = state.recent.shape[1]
    distance = (x.key_segments[:, -1:] - x.key_segments).clamp(max=reach)  # (B, L)
    at = torch.nn.functional.one_hot(distance, reach + 1).double()  # (B, L, G+1)
    sums = torch.einsum("bjx,bhjd,bhje->bxhde", at, features, u)
    far = (FAR_TOKENS / at.sum(1)[:, -1].clamp(min=FAR_TOKENS))[:, None, None, None]  # (B, 1, 1, 1)
    seen = sums * state.gate[:, : reach + 1].flip(1).t()[..., None, None]
    past = seen[:, 1:-1].sum(1) + seen[:, -1] * far
    torch.testing.assert_close(state.recent[state.held], sums[:, 1:])
    torch.testing.assert_close(state.counts, at.sum(1))
    torch.testing.assert_close(state.past[state.held], past)
    torch.testing.assert_close(state.tokens.memory, past + seen[:, 0])
    assert torch.equal(state.segment, x.key_segments[:, -1])


@each_relative
def test_reorder(relative: dict[str, Any]) -> None:
    """Rows that continue other rows: the segments they have read move along."""
    x = make_segment_inputs(24, 24, causal=True, batch=3, **relative)
    index = torch.tensor([2, 0, 0, 1])
    _, state = decode(x, empty_state(x), 0, 11)
    state = state.reorder(index)
    new = make_segment_inputs(24, 24, causal=True, batch=4, seed=5, **relative)

    def continued(old: Tensor, later: Tensor, dim: int) -> Tensor:
        return torch.cat([old[index].narrow(dim, 0, 11), later.narrow(dim, 11, 13)], dim=dim)

    tokens = type(x.tokens)(
        *(continued(getattr(x.tokens, name), getattr(new.tokens, name), 2) for name in ("q", "k", "v")),
        rel=x.tokens.rel,
        key_mask=None,
    )
    segments = continued(x.key_segments, new.key_segments + x.key_segments.max(), 1)
    mixed = SegmentInputs(tokens, x.log_gate, segments, segments)
    out, _ = decode(mixed, state, 11, 24)
    torch.testing.assert_close(out, whole(mixed)[:, :, 11:])


@each_relative
def test_reorder_before_every_step(relative: dict[str, Any]) -> None:
    """As in beam search: rows share their ancestors, and begin their segments at different times."""
    x = make_segment_inputs(40, 40, causal=True, batch=4, reach=2, **relative)
    generator = torch.Generator().manual_seed(3)
    state, rows, segments = empty_state(x), torch.zeros(4, 0, dtype=torch.long), torch.zeros(4, 1, dtype=torch.long)
    place = state.recent.data_ptr()
    for i in range(40):
        index = torch.randint(0, 4, (4,), generator=generator)
        state, rows, segments = state.reorder(index), rows[index], segments[index]
        rows = torch.cat([rows, torch.arange(4)[:, None]], dim=1)  # (4, i+1), the row of x that each token came from
        begin = torch.randint(0, 6, (4, 1), generator=generator).clamp(min=3) - 3  # 0, 0, 0, 0, 1, 2 segments further
        segments = torch.cat([segments, segments[:, -1:] + begin], dim=1)
        written = [t[rows, :, torch.arange(i + 1)].transpose(1, 2) for t in (x.tokens.q, x.tokens.k, x.tokens.v)]
        out, state = segment_causal_step(*(t[:, :, i] for t in written), x.tokens.rel, segments[:, -1], state)
        expected = segment_gated_attention(
            *written, x.tokens.rel, x.log_gate, segments[:, 1:], segments[:, 1:],
            causal=True, far_tokens=FAR_TOKENS, algorithm="quadratic",
        )  # fmt: skip
        torch.testing.assert_close(out, expected[:, :, i].detach())
    assert state.recent.data_ptr() == place, "the state of earlier segments is not copied with every token"


def test_single_precision_holds_over_many_segments() -> None:
    x = make_segment_inputs(400, 400, "long", horizon=4, causal=True, batch=1)
    exact = whole(x)
    tokens = x.tokens
    low = SegmentInputs(
        type(tokens)(*(t.detach().float() for t in (tokens.q, tokens.k, tokens.v, tokens.rel)), key_mask=None),
        x.log_gate.detach().float(),
        x.query_segments,
        x.key_segments,
    )
    d, e = tokens.q.shape[3], tokens.v.shape[3]
    state = segment_causal_init(1, 2, d, e, low.tokens.rel, low.log_gate, far_tokens=FAR_TOKENS)
    out, _ = decode(low, state, 0, 400)
    torch.testing.assert_close(out.double(), exact, rtol=1e-4, atol=1e-5)


def test_the_state_does_not_grow() -> None:
    x = make_segment_inputs(60, 60, causal=True, horizon=3)

    def sizes(state: SegmentCausalState) -> list[torch.Size]:
        tensors = [state.tokens.memory, state.tokens.ring, state.past, state.recent, state.counts, state.ring_gate]
        return [t.shape for t in tensors if t is not None]

    _, early = decode(x, empty_state(x), 0, 2)
    before = sizes(early)
    _, late = decode(x, early, 2, 60)
    assert sizes(late) == before


@pytest.mark.parametrize("kind", SEGMENTS)
@pytest.mark.parametrize("reach", [1, 3])
def test_cross_steps_equal_the_whole(kind: str, reach: int) -> None:
    """Hypotheses of one document are in different segments, some before the source's first or after its last."""
    x = make_segment_inputs(4, 70, kind, reach=reach, masked=True, batch=3)
    tokens = x.tokens
    state = segment_cross_state(tokens.k, tokens.v, x.log_gate, x.key_segments, tokens.key_mask, FAR_TOKENS)
    assert state.documents == 3
    for seed in range(12):
        segments = torch.randint(-6, 80, (3, 4), generator=torch.Generator().manual_seed(seed)).sort(1).values
        expected = segment_gated_attention(
            tokens.q, tokens.k, tokens.v, None, x.log_gate, segments, x.key_segments,
            key_mask=tokens.key_mask, far_tokens=FAR_TOKENS, algorithm="quadratic",
        )  # fmt: skip
        torch.testing.assert_close(segment_cross_step(tokens.q, segments, state), expected.detach())


def test_select_documents() -> None:
    x = make_segment_inputs(4, 20, batch=3)
    tokens, documents = x.tokens, torch.tensor([2, 0])
    state = segment_cross_state(tokens.k, tokens.v, x.log_gate, x.key_segments, far_tokens=FAR_TOKENS).select(documents)
    expected = segment_gated_attention(
        *(t[documents] for t in (tokens.q, tokens.k, tokens.v)),
        None,
        x.log_gate,
        x.query_segments[documents],
        x.key_segments[documents],
        far_tokens=FAR_TOKENS,
    )
    out = segment_cross_step(tokens.q[documents], x.query_segments[documents], state)
    torch.testing.assert_close(out, expected.detach())


def test_a_source_of_pads() -> None:
    x = make_segment_inputs(4, 5)
    key_mask = torch.zeros(2, 5, dtype=torch.bool)
    state = segment_cross_state(x.tokens.k, x.tokens.v, x.log_gate, x.key_segments, key_mask)
    assert (segment_cross_step(x.tokens.q, x.query_segments, state) == 0).all()


def test_half_precision_arguments() -> None:
    x = make_segment_inputs(300, 300, "long", horizon=4, batch=1, causal=True, d=16, e=4)
    low = [t.detach().bfloat16() for t in x.leaves]
    low[2] = low[2] + 1
    state = segment_causal_init(1, 2, 16, 4, low[3], low[4])
    source = segment_cross_state(low[1], low[2], low[4], x.key_segments)
    assert state.past.dtype == source.table.dtype == torch.float32
    exact = [t.double() for t in low]
    expected = segment_gated_attention(*exact, x.query_segments, x.key_segments, causal=True)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        for i in range(300):
            token = low[0][:, :, i], low[1][:, :, i], low[2][:, :, i]
            out, state = segment_causal_step(*token, low[3], x.key_segments[:, i], state)
            assert out.dtype == torch.bfloat16
            torch.testing.assert_close(out.double(), expected[:, :, i], rtol=2**-6, atol=2**-6)


def test_wrong_arguments() -> None:
    x = make_segment_inputs(4, 4, horizon=2, causal=True)
    q, k, v = (t.detach() for t in (x.tokens.q, x.tokens.k, x.tokens.v))
    token = q[:, :, 0], k[:, :, 0], v[:, :, 0]
    with pytest.raises(ValueError, match="rel is None: the state was made with a table of horizon 2"):
        segment_causal_step(*token, None, x.key_segments[:, 0], empty_state(x))
    with pytest.raises(ValueError, match=r"segments has shape \(3, 1\): it must be \(2, 1\)"):
        segment_causal_step(*token, x.tokens.rel, torch.zeros(3, dtype=torch.long), empty_state(x))
    with pytest.raises(ValueError, match=r"segments has shape \(2, 4\): it must be \(2,\)"):
        segment_causal_step(*token, x.tokens.rel, x.key_segments, empty_state(x))
    with pytest.raises(ValueError, match=r"v has shape \(1, 2, 3\): the state was made for \(2, 2, 3\)"):
        segment_causal_step(*token[:2], v[:1, :, 0], x.tokens.rel, x.key_segments[:, 0], empty_state(x))
    with pytest.raises(ValueError, match=r"log_gate has shape \(3, 5\)"):
        segment_causal_init(2, 2, 4, 3, None, torch.zeros(3, 5))
    with pytest.raises(ValueError, match=r"key_segments has shape \(2, 3\)"):
        segment_cross_state(k, v, x.log_gate, make_segments("short", 2, 3))
    with pytest.raises(ValueError, match=r"segments has shape \(2, 3\): it must be \(2, 4\)"):
        segment_cross_step(q, x.key_segments[:, :3], segment_cross_state(k, v, x.log_gate, x.key_segments))
