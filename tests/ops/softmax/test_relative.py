"""Blocks of queries give the same results as all scores at once; rows without keys, pads and empty sequences."""

from __future__ import annotations

import math

import pytest
import torch

from scaleformer.ops.softmax.relative import relative_softmax_attention


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("terms", ["rel", "bias", "both", "by row", "none"])
def test_blocks_change_no_number_and_no_gradient(causal: bool, terms: str) -> None:
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 3, 11, 4, dtype=torch.double, requires_grad=True) for _ in range(3))
    rel = torch.randn(3, 7, 4, dtype=torch.double, requires_grad=True)
    bias = torch.randn(3, 9, dtype=torch.double, requires_grad=True)
    rows = torch.randn(2, 3, 11, 9, dtype=torch.double, requires_grad=True)
    given = {"rel": {"rel": rel}, "bias": {"bias": bias}, "both": {"rel": rel, "bias": bias}, "by row": {"bias": rows},
             "none": {}}[terms]  # fmt: skip
    mask = torch.arange(11) < torch.tensor([[11], [6]])
    leaves = [q, k, v, *given.values()]

    def run(most_scores: int) -> tuple[torch.Tensor, ...]:
        out = relative_softmax_attention(q, k, v, **given, causal=causal, key_mask=mask, most_scores=most_scores)
        return out, *torch.autograd.grad(out.sin().sum(), leaves)

    expected = run(10_000)
    for whole, blocks in zip(expected, run(2 * 3 * 11 * 4), strict=True):
        torch.testing.assert_close(blocks, whole)
    with torch.no_grad():
        out = relative_softmax_attention(q, k, v, **given, causal=causal, key_mask=mask, most_scores=1)
        torch.testing.assert_close(out, expected[0])


def test_a_bias_by_row_is_that_of_its_query() -> None:
    torch.manual_seed(2)
    q, k, v = (torch.randn(2, 3, 5, 4, dtype=torch.double) for _ in range(3))
    bias = torch.randn(2, 3, 5, 7, dtype=torch.double)
    out = relative_softmax_attention(q, k, v, bias=bias)
    for i in range(5):
        scores = (q[:, :, i, None] * k).sum(-1) / math.sqrt(4)  # (B, H, S)
        scores = scores + torch.stack([bias[:, :, i, max(-3, min(3, j - i)) + 3] for j in range(5)], dim=-1)
        torch.testing.assert_close(out[:, :, i], (scores.softmax(-1)[..., None] * v).sum(2))


def test_queries_may_begin_after_the_first_keys() -> None:
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 2, 9, 4, dtype=torch.double) for _ in range(3))
    rel, bias = torch.randn(2, 5, 4, dtype=torch.double), torch.randn(2, 21, dtype=torch.double)
    whole = relative_softmax_attention(q, k, v, rel, bias, causal=True)
    for first in range(9):
        seen = slice(0, first + 1)
        one = relative_softmax_attention(
            q[:, :, first : first + 1], k[:, :, seen], v[:, :, seen], rel, bias, first=first
        )
        torch.testing.assert_close(one, whole[:, :, first : first + 1])


def test_a_row_without_keys_gives_zeros_and_finite_gradients() -> None:
    q, k, v = (torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(3))
    out = relative_softmax_attention(q, k, v, key_mask=torch.zeros(1, 3, dtype=torch.bool))
    assert torch.equal(out, torch.zeros_like(out))
    assert all(g.isfinite().all() for g in torch.autograd.grad(out.sum(), (q, k, v)))


def test_a_table_that_does_not_fit_is_named() -> None:
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(ValueError, match="rel has shape"):
        relative_softmax_attention(q, q, q, torch.zeros(4, 4))


def test_a_row_that_the_bias_hides_gives_zeros_and_finite_gradients() -> None:
    torch.manual_seed(3)
    q, k, v = (torch.randn(1, 1, 3, 4, requires_grad=True) for _ in range(3))
    bias = torch.tensor([[0.0, 0.0, -math.inf, -math.inf, -math.inf]])  # only keys before the query are seen
    out = relative_softmax_attention(q, k, v, bias=bias)
    assert (out[:, :, 0] == 0).all()
    torch.testing.assert_close(out[:, :, 1], v[:, :, 0])
    assert all(x.isfinite().all() for x in torch.autograd.grad(out.sum(), (q, k, v)))


def test_pads_may_hold_nan() -> None:
    torch.manual_seed(4)
    q, k, v = (torch.randn(1, 2, 5, 4) for _ in range(3))
    mask = torch.arange(5)[None] < 3
    wanted = relative_softmax_attention(q, k[:, :, :3], v[:, :, :3])
    k[:, :, 3:], v[:, :, 3:] = math.nan, math.nan
    q.requires_grad_()
    out = relative_softmax_attention(q, k, v, key_mask=mask)
    torch.testing.assert_close(out, wanted)
    assert torch.autograd.grad(out.sum(), q)[0].isfinite().all()


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 2, 2), (2, 0, 2), (2, 2, 0)])
def test_empty_inputs(batch: int, queries: int, keys: int) -> None:
    q, k = torch.ones(batch, 2, queries, 4), torch.ones(batch, 2, keys, 4)
    mask = torch.ones(batch, keys, dtype=torch.bool)
    out = relative_softmax_attention(q, k, k, torch.ones(5, 4), key_mask=mask)
    assert torch.equal(out, torch.zeros(batch, 2, queries, 4))
