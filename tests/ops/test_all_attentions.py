"""What must hold of every linear attention alike: precise gradients, types of segments, empty batches, autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.ops import (
    relative_kernel_attention,
    segment_gated_attention,
    segment_hybrid_attention,
    segment_recall_attention,
)
from tests.ops.inputs import gradients
from tests.ops.segments.inputs import make_segment_inputs

HEADS, WIDTH, HORIZON, REACH = 2, 16, 4, 2


def kernel(leaves: list[Tensor], segments: Tensor, **options: Any) -> Tensor:
    return relative_kernel_attention(*leaves[:4], **options)


def gated(leaves: list[Tensor], segments: Tensor, **options: Any) -> Tensor:
    return segment_gated_attention(*leaves, segments, segments, **options)


def hybrid(leaves: list[Tensor], segments: Tensor, **options: Any) -> Tensor:
    return segment_hybrid_attention(*leaves, segments, segments, **options)


def recall(leaves: list[Tensor], segments: Tensor, **options: Any) -> Tensor:
    salience, recency = leaves[1].double().sum(-1), torch.tensor([0.0, 0.5])  # the same choice in any precision
    return segment_recall_attention(*leaves, salience, recency, segments, segments, kept=8, **options)


Call = Callable[..., Tensor]
each_attention = pytest.mark.parametrize("call", [kernel, gated, hybrid, recall])
each_direction = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
each_algorithm = pytest.mark.parametrize("algorithm", ["linear", "quadratic"])
each_kind = pytest.mark.parametrize("kind", ["short", "long"])  # by windows and by states, where there are both


def make(length: int, kind: str = "short", batch: int = 2) -> tuple[list[Tensor], Tensor]:
    """q, k, v, rel and log_gate, and segments."""
    options: dict[str, Any] = {"horizon": HORIZON, "batch": batch, "heads": HEADS, "d": WIDTH, "e": WIDTH}
    x = make_segment_inputs(length, length, kind, reach=REACH, causal=True, **options)
    return x.leaves, x.query_segments


def one_leaf_each(call: Call, leaves: list[Tensor], low: torch.dtype) -> list[Tensor]:
    """q, k and v in a low precision, the parameters in fp32, as under autocast."""
    leaves = leaves[:4] if call is kernel else leaves
    return [x.detach().to(low if n < 3 else torch.float32).requires_grad_() for n, x in enumerate(leaves)]


@each_attention
@each_direction
@each_algorithm
@each_kind
def test_bfloat16_costs_gradients_no_more_than_rounding(call: Call, causal: bool, algorithm: str, kind: str) -> None:
    """Values far from zero, whose means must cancel in the gradients of the scores: rounded means would show."""
    leaves, segments = make(200, kind)
    leaves[2] = leaves[2] + 2
    low = one_leaf_each(call, leaves, torch.bfloat16)
    exact = [x.detach().double().requires_grad_() for x in low]
    out = call(low, segments, causal=causal, algorithm=algorithm)
    expected = call(exact, segments, causal=causal, algorithm="quadratic")
    assert out.dtype is torch.bfloat16
    for got, want, leaf in zip(gradients(out, low), gradients(expected, exact), low, strict=True):
        error = (got.double() - want).norm() / want.norm()
        assert error < (4e-3 if leaf.dtype is torch.bfloat16 else 1e-4)


@each_attention
@each_direction
@each_algorithm
@each_kind
def test_backward_may_stand_under_autocast(call: Call, causal: bool, algorithm: str, kind: str) -> None:
    leaves, segments = make(100, kind)
    leaves = one_leaf_each(call, leaves, torch.float32)
    out = call(leaves, segments, causal=causal, algorithm=algorithm)
    expected = gradients(out, leaves)
    out = call(leaves, segments, causal=causal, algorithm=algorithm)
    with torch.autocast("cpu", torch.bfloat16):
        got = gradients(out, leaves)
    for one, other in zip(got, expected, strict=True):
        if algorithm == "linear":
            assert torch.equal(one, other)
        else:  # torch's own products are in bfloat16 then
            assert (one - other).norm() < 0.05 * other.norm()


@each_attention
@each_direction
def test_a_gradient_of_the_gradient_is_refused(call: Call, causal: bool) -> None:
    leaves, segments = make(100)
    leaves = one_leaf_each(call, leaves, torch.float32)
    out = call(leaves, segments, causal=causal, algorithm="linear")
    (first,) = torch.autograd.grad(out.square().sum(), leaves[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.parametrize("call", [gated, hybrid, recall])
@each_direction
@each_algorithm
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32], ids=str)
def test_segments_of_any_integer_type(call: Call, causal: bool, algorithm: str, dtype: torch.dtype) -> None:
    leaves, segments = make(60)
    expected = call(leaves, segments, causal=causal, algorithm=algorithm)
    assert torch.equal(call(leaves, segments.to(dtype), causal=causal, algorithm=algorithm), expected)


@each_attention
@each_direction
@pytest.mark.parametrize("algorithm", ["auto", "linear", "quadratic"])
@pytest.mark.parametrize(("batch", "length"), [(0, 300), (2, 0)])
def test_nothing_at_all(call: Call, causal: bool, algorithm: str, batch: int, length: int) -> None:
    leaves, segments = make(length, batch=batch)
    assert call(leaves, segments, causal=causal, algorithm=algorithm).shape == (batch, HEADS, length, WIDTH)
