"""Decoding token by token with recall gives the results of the whole sequence."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.ops.recall.decoding import RecallCausalState, recall_causal_init, recall_causal_step
from scaleformer.ops.recall.decoding_cross import recall_cross_state, recall_cross_step
from scaleformer.ops.recall.decoding_text import recall_causal_states
from scripts.bench_decoding.state import tensors
from tests.ops.recall.inputs import Case, call, make
from tests.ops.segments.inputs import SEGMENTS, SegmentInputs, make_segments
from tests.pairwise import pairwise

RELATIVE: tuple[dict[str, Any], ...] = ({}, {"horizon": 1}, {"horizon": 9, "per_head": True})
RANGES = (0, 1), (0, 8), (1, 5), (3, 64)  # near, kept
BOTH = False, True


def empty_state(case: Case, kept: int) -> RecallCausalState:
    x = case.x
    batch, heads, _, d = x.tokens.q.shape
    e = x.tokens.v.shape[3]
    return recall_causal_init(batch, heads, d, e, x.log_gate, case.recency, kept, dtype=torch.float64)


@torch.no_grad()
def decode(case: Case, state: RecallCausalState, first: int, last: int) -> tuple[Tensor, RecallCausalState]:
    outputs, x = [], case.x
    q, k, v = x.tokens.q, x.tokens.k, x.tokens.v
    for i in range(first, last):
        token = q[:, :, i], k[:, :, i], v[:, :, i]
        out, state = recall_causal_step(*token, x.tokens.rel, case.salience[:, :, i], x.key_segments[:, i], state)
        outputs.append(out)
    return torch.stack(outputs, dim=2), state


@torch.no_grad()
def whole(case: Case, **options: Any) -> Tensor:
    return call(case, **{"algorithm": "quadratic", **options})


@pytest.mark.parametrize(("relative", "kind", "ranges", "alike"), pairwise(RELATIVE, SEGMENTS, RANGES, BOTH), ids=str)
def test_steps_equal_the_whole(relative: dict[str, Any], kind: str, ranges: tuple[int, int], alike: bool) -> None:
    """Rows whose segments end at different times; more near tokens than there is room for at first."""
    near, kept = ranges
    case = make(50, 50, kind, causal=True, near=near, alike=alike, **relative)
    out, _ = decode(case, empty_state(case, kept), 0, 50)
    torch.testing.assert_close(out, whole(case, kept=kept, causal=True))


def test_reorder() -> None:
    """Rows that continue other rows: their states move along."""
    case = make(24, 24, causal=True, batch=3, horizon=4)
    index = torch.tensor([2, 0, 0, 1])
    _, state = decode(case, empty_state(case, 4), 0, 11)
    state = state.reorder(index)
    new = make(24, 24, causal=True, batch=4, seed=5, horizon=4)

    def continued(old: Tensor, later: Tensor, dim: int) -> Tensor:
        return torch.cat([old[index].narrow(dim, 0, 11), later.narrow(dim, 11, 13)], dim=dim)

    x, y = case.x, new.x
    parts = {name: continued(getattr(x.tokens, name), getattr(y.tokens, name), 2) for name in ("q", "k", "v")}
    segments = continued(x.key_segments, y.key_segments + x.key_segments.max(), 1)
    mixed = SegmentInputs(replace(x.tokens, **parts), x.log_gate, segments, segments)
    both = Case(mixed, continued(case.salience.detach(), new.salience.detach(), 2), case.recency)
    out, _ = decode(both, state, 11, 24)
    torch.testing.assert_close(out, whole(both, kept=4, causal=True)[:, :, 11:])


@pytest.mark.parametrize(("relative", "kind", "ranges", "alike"), pairwise(RELATIVE, SEGMENTS, RANGES, BOTH), ids=str)
def test_states_of_a_text_are_those_that_steps_leave(
    relative: dict[str, Any], kind: str, ranges: tuple[int, int], alike: bool
) -> None:
    """Rows that begin at several places of one text, each at a new segment, and write its next tokens once more."""
    near, kept = ranges
    case = make(60, 60, kind, causal=True, near=near, alike=alike, batch=1, **relative)
    x = case.x
    segments = x.key_segments[0]
    new = torch.cat([torch.tensor([True]), segments[1:] != segments[:-1]])
    starts = new.nonzero()[:, 0]
    starts = starts[starts <= 52]
    rows = torch.zeros_like(starts)
    text = x.tokens.k, x.tokens.v, case.salience, segments[None], rows, starts
    state = recall_causal_states(*text, x.log_gate, case.recency, kept)
    expected = whole(case, kept=kept, causal=True)[0]
    for i in range(8):
        at = starts + i
        token = (t[0, :, at].transpose(0, 1).detach() for t in (x.tokens.q, x.tokens.k, x.tokens.v))
        out, state = recall_causal_step(*token, x.tokens.rel, case.salience[0, :, at].T.detach(), segments[at], state)
        torch.testing.assert_close(out, expected[:, at].transpose(0, 1))


def test_the_state_does_not_grow_with_the_document() -> None:
    """Segments of six tokens: two of them and no more are kept whole."""
    case = make(200, 200, causal=True, horizon=3)
    segments = (torch.arange(200) // 6).expand(2, -1)
    case = replace(case, x=replace(case.x, query_segments=segments, key_segments=segments))
    state, lengths = empty_state(case, 8), []
    shapes = [t.shape for t in tensors(state)]
    for i in range(200):
        _, state = decode(case, state, i, i + 1)
        lengths.append(state.position - int(state.start.min()))
    assert max(lengths) == 12
    assert [t.shape for t in tensors(state)] == shapes


@pytest.mark.parametrize(("kind", "ranges", "alike", "masked"), pairwise(SEGMENTS, RANGES, BOTH, BOTH), ids=str)
def test_cross_steps_equal_the_whole(kind: str, ranges: tuple[int, int], alike: bool, masked: bool) -> None:
    """Every hypothesis in a different segment, some past the source's last."""
    near, kept = ranges
    case = make(9, 40, kind, near=near, alike=alike, masked=masked)
    x, tokens = case.x, case.x.tokens
    asking = torch.cat([x.query_segments, x.key_segments.amax(1, keepdim=True) + 7], dim=1)[:, 1:]
    case = replace(case, x=replace(x, query_segments=asking))
    state = recall_cross_state(
        tokens.k, tokens.v, x.log_gate, case.salience, case.recency, x.key_segments, tokens.key_mask, kept
    )
    expected = whole(case, kept=kept)
    torch.testing.assert_close(recall_cross_step(tokens.q, asking, state), expected)
    chosen = torch.tensor([1, 0, 1])
    again = recall_cross_step(tokens.q[chosen], asking[chosen], state.reorder(chosen))
    torch.testing.assert_close(again, expected[chosen])


@pytest.mark.parametrize("causal", [False, True], ids=["cross", "causal"])
@pytest.mark.parametrize("column", [0, 1, 2], ids=["before", "own", "after"])
def test_a_gate_may_be_shut(causal: bool, column: int) -> None:
    """Steps that see no key give zeros, as the whole sequence does."""
    case = make(20, 20, near=0, causal=causal)
    gate = case.x.log_gate.detach().clone()
    gate[0, column] = -math.inf
    x = replace(case.x, log_gate=gate)
    case = replace(case, x=x)
    if causal:
        out, _ = decode(case, empty_state(case, 8), 0, 20)
    else:
        arguments = x.tokens.k, x.tokens.v, gate, case.salience, case.recency, x.key_segments
        out = recall_cross_step(x.tokens.q, x.query_segments, recall_cross_state(*arguments, kept=16))
    torch.testing.assert_close(out, whole(case, kept=8 if causal else 16, causal=causal))
    if causal and column == 1:
        assert (out[:, 0, 0] == 0).all()  # the first tokens have nothing but their own segment


@pytest.mark.parametrize(("batch", "beams"), [(0, 3), (2, 0)])
def test_no_hypotheses(batch: int, beams: int) -> None:
    case = make(3, 9)
    x = case.x
    state = recall_cross_state(x.tokens.k, x.tokens.v, x.log_gate, case.salience, case.recency, x.key_segments)
    some = torch.arange(batch)
    out = recall_cross_step(x.tokens.q[:batch, :, :beams], x.query_segments[:batch, :beams], state.reorder(some))
    assert out.shape == (batch, 2, beams, 3)


def test_pads_of_the_source_hold_anything() -> None:
    case = make(5, 30, "short")
    key_mask = torch.arange(30) < torch.tensor([30, 17])[:, None]
    tokens, nan = case.x.tokens, float("nan")
    k, v = (t.detach().masked_fill(~key_mask[:, None, :, None], nan) for t in (tokens.k, tokens.v))
    salience = case.salience.detach().masked_fill(~key_mask[:, None], nan)
    segments = torch.where(key_mask, case.x.key_segments, make_segments("with-gaps", 2, 30) - 50)
    state = recall_cross_state(k, v, case.x.log_gate, salience, case.recency, segments, key_mask, 6)
    out = recall_cross_step(tokens.q, case.x.query_segments, state)
    torch.testing.assert_close(out, whole(case, kept=6, key_mask=key_mask))


def test_a_source_without_tokens_gives_zeros() -> None:
    case = make(3, 0)
    x = case.x
    arguments = x.tokens.k, x.tokens.v, x.log_gate, case.salience, case.recency, x.key_segments
    out = recall_cross_step(x.tokens.q, x.query_segments, recall_cross_state(*arguments))
    assert torch.equal(out, torch.zeros(2, 2, 3, 3, dtype=out.dtype))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"salience": torch.zeros(1, 2, 5)}, r"salience has shape \(1, 2, 5\): it must be \(2, 2, 5\)"),
        ({"key_mask": torch.ones(2, 4, dtype=torch.bool)}, "key_mask has shape"),
        ({"key_segments": torch.zeros(2, 4, dtype=torch.long)}, "key_segments has shape"),
        ({"recency": -torch.ones(2)}, "it must be at least 0"),
    ],
)
def test_wrong_arguments_of_a_source(change: dict[str, Tensor], message: str) -> None:
    arguments = {
        "k": torch.zeros(2, 2, 5, 4),
        "v": torch.zeros(2, 2, 5, 3),
        "log_gate": torch.zeros(2, 5),
        "salience": torch.zeros(2, 2, 5),
        "recency": torch.zeros(2),
        "key_segments": torch.zeros(2, 5, dtype=torch.long),
    }
    with pytest.raises(ValueError, match=message):
        recall_cross_state(**{**arguments, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.zeros(3, 2, 4)}, r"q has shape \(3, 2, 4\): it must be \(2, H, d\), as many rows as the state"),
        ({"k": torch.zeros(2, 1, 1)}, r"k has shape \(2, 1, 1\): it must be that of q, \(2, 2, 4\)"),
        ({"v": torch.zeros(2, 3, 5)}, r"v has shape \(2, 3, 5\): with q \(2, 2, 4\) it must be \(2, 2, e\)"),
        ({"rel": torch.zeros(4, 4)}, r"rel has shape \(4, 4\)"),
        ({"salience": torch.zeros(2, 1)}, r"salience has shape \(2, 1\): it must be \(2, 2\)"),
        ({"segments": torch.zeros(3, dtype=torch.long)}, r"segments has shape \(3, 1\)"),
        ({"segments": torch.zeros((), dtype=torch.long)}, r"segments has shape \(\): it must be \(2,\)"),
    ],
    ids=["q", "k", "v", "rel", "salience", "segments", "no-row"],
)
def test_wrong_arguments_of_a_step(change: dict[str, Tensor], message: str) -> None:
    state = recall_causal_init(2, 2, 4, 5, torch.zeros(2, 5), torch.zeros(2), 3)
    token = {"q": torch.zeros(2, 2, 4), "k": torch.zeros(2, 2, 4), "v": torch.zeros(2, 2, 5), "rel": torch.zeros(3, 4)}
    rest = {"salience": torch.zeros(2, 2), "segments": torch.zeros(2, dtype=torch.long)}
    recall_causal_step(**token, **rest, state=state)
    with pytest.raises(ValueError, match=message):
        recall_causal_step(**{**token, **rest, **change}, state=state)
