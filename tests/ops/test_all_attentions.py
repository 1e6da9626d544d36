"""Properties of every linear attention: causality, pads, precise gradients, types of segments, autocast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.ops import relative_kernel_attention, segment_recall_attention
from tests.ops.inputs import gradients
from tests.ops.segments.inputs import make_segment_inputs

HEADS, WIDTH, HORIZON, REACH = 2, 16, 4, 2


def kernel(leaves: list[Tensor], segments: Tensor, key_segments: Tensor | None = None, **options: Any) -> Tensor:
    return relative_kernel_attention(*leaves[:4], chunk_size=16, **options)  # several chunks, as others have tiles


def recall(leaves: list[Tensor], segments: Tensor, key_segments: Tensor | None = None, **options: Any) -> Tensor:
    salience, recency = leaves[1].double().sum(-1), torch.tensor([0.0, 0.5])  # the same choice in any precision
    key_segments = segments if key_segments is None else key_segments
    return segment_recall_attention(*leaves, salience, recency, segments, key_segments, kept=8, **options)


Call = Callable[..., Tensor]
each_attention = pytest.mark.parametrize("call", [kernel, recall])
each_direction = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
each_algorithm = pytest.mark.parametrize("algorithm", ["linear", "quadratic"])
each_kind = pytest.mark.parametrize("kind", ["short", "long"])  # by windows and by states, if it has both


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
    """Values far from zero, whose means must cancel in the gradients of the scores: rounded means would be visible."""
    leaves, segments = make(200, kind)
    leaves[2] = leaves[2] + 2
    low = one_leaf_each(call, leaves, torch.bfloat16)
    exact = [x.detach().double().requires_grad_() for x in low]
    out = call(low, segments, causal=causal, algorithm=algorithm)
    expected = call(exact, segments, causal=causal, algorithm="quadratic")
    assert out.dtype is torch.bfloat16
    for found, wanted, leaf in zip(gradients(out, low), gradients(expected, exact), low, strict=True):
        error = (found.double() - wanted).norm() / wanted.norm()
        assert error < (4e-3 if leaf.dtype is torch.bfloat16 else 1e-4)


@each_attention
@each_direction
@each_algorithm
@each_kind
def test_backward_may_run_under_autocast(call: Call, causal: bool, algorithm: str, kind: str) -> None:
    leaves, segments = make(100, kind)
    leaves = one_leaf_each(call, leaves, torch.float32)
    out = call(leaves, segments, causal=causal, algorithm=algorithm)
    expected = gradients(out, leaves)
    out = call(leaves, segments, causal=causal, algorithm=algorithm)
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(out, leaves)
    for one, other in zip(found, expected, strict=True):
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


@each_direction
@each_algorithm
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32], ids=str)
def test_segments_of_any_integer_type(causal: bool, algorithm: str, dtype: torch.dtype) -> None:
    leaves, segments = make(60)
    expected = recall(leaves, segments, causal=causal, algorithm=algorithm)
    assert torch.equal(recall(leaves, segments.to(dtype), causal=causal, algorithm=algorithm), expected)


@each_attention
@each_direction
@pytest.mark.parametrize("algorithm", ["auto", "linear", "quadratic"])
@pytest.mark.parametrize(("batch", "length"), [(0, 300), (2, 0)])
def test_empty_inputs(call: Call, causal: bool, algorithm: str, batch: int, length: int) -> None:
    leaves, segments = make(length, batch=batch)
    assert call(leaves, segments, causal=causal, algorithm=algorithm).shape == (batch, HEADS, length, WIDTH)


@each_attention
@each_algorithm
def test_no_query_sees_later_keys(call: Call, algorithm: str) -> None:
    leaves, segments = make(70)
    before = call(leaves, segments, causal=True, algorithm=algorithm)
    for position in (0, 1, 14, 15, 16, 17, 31, 32, 47, 63, 64, 68):
        q, k, v, *rest = (x.detach().clone() for x in leaves)
        k[:, :, position + 1 :] += 10.0
        v[:, :, position + 1 :] -= 10.0
        later = segments.clone()
        later[:, position + 1 :] += 1
        after = call([q, k, v, *rest], later, causal=True, algorithm=algorithm)
        torch.testing.assert_close(after[:, :, : position + 1], before[:, :, : position + 1], rtol=0, atol=1e-11)
        assert not torch.allclose(after[:, :, position + 1 :], before[:, :, position + 1 :])


@each_attention
@each_direction
@each_algorithm
@pytest.mark.parametrize("content", [1e30, float("inf"), float("nan")])
def test_pads_hold_anything(call: Call, causal: bool, algorithm: str, content: float) -> None:
    """In keys and values, and in the segment numbers of both sides: between keys, and after the last."""
    leaves, segments = make(50)
    used = leaves[:4] if call is kernel else leaves
    real = torch.arange(50) < torch.tensor([[50], [31]])
    mask = real & (torch.rand(2, 50, generator=torch.Generator().manual_seed(2)) > 0.3)
    options: dict[str, Any] = {"causal": causal, "key_mask": mask, "algorithm": algorithm}
    out = call(leaves, segments, **options).transpose(1, 2)[real]  # (n, H, e)
    pads = ~mask[:, None, :, None]
    noisy = [x.detach().clone().requires_grad_() for x in leaves]
    noisy[1:3] = (x.detach().masked_fill(pads, content).requires_grad_() for x in leaves[1:3])
    garbage = torch.randint(-5, 99, mask.shape, generator=torch.Generator().manual_seed(0))
    noise = [torch.where(x, segments, garbage) for x in (real, mask)]
    changed = call(noisy, *noise, **options).transpose(1, 2)[real]
    torch.testing.assert_close(changed, out, rtol=1e-12, atol=1e-12)
    for found, wanted in zip(gradients(changed, noisy[: len(used)]), gradients(out, used), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10)


@each_attention
@each_direction
@each_algorithm
def test_alone_as_in_a_batch(call: Call, causal: bool, algorithm: str) -> None:
    """A row cut to its real tokens gives the same result as among longer rows, whatever its pads hold."""
    leaves, segments = make(40)
    segments[1, 25:] = 0
    key_mask = torch.arange(40) < torch.tensor([[40], [25]])
    together = call(leaves, segments, causal=causal, algorithm=algorithm, key_mask=key_mask)
    row = [*(x[1:, :, :25] for x in leaves[:3]), *leaves[3:]]
    alone = call(row, segments[1:, :25], causal=causal, algorithm=algorithm)
    torch.testing.assert_close(together[1:, :, :25], alone)


@each_attention
@each_direction
@each_algorithm
def test_no_key_gives_zeros(call: Call, causal: bool, algorithm: str) -> None:
    leaves, segments = make(9)
    key_mask = torch.ones(2, 9, dtype=torch.bool)
    key_mask[0] = False
    key_mask[1, :4] = False
    out = call(leaves, segments, causal=causal, algorithm=algorithm, key_mask=key_mask)
    assert (out[0] == 0).all()
    assert (out[1, :, :4] == 0).all() == causal
    for gradient in gradients(out, leaves[:4] if call is kernel else leaves):
        assert gradient.isfinite().all()
