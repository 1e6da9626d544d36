"""The scores of all pairs: quadratic in length, and the fastest for short sequences.

Both passes are written by hand to save passes over the scores: they are computed once and then updated in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.bands import add_band, read_band
from scaleformer.ops.common.blocks import spread, table_gradient
from scaleformer.ops.common.feature_maps import FeatureMap
from scaleformer.ops.common.relative_positions import bidirectional_table, causal_tables
from scaleformer.ops.common.sums import inverse_denominator


def quadratic_attention(
    q: Tensor, k: Tensor, v: Tensor, frel: Tensor | None, causal: bool, key_mask: Tensor | None, phi: FeatureMap,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """Kernelized attention of all pairs, (B, H, L_Q, e) in the dtype of v; frel = phi(rel), (1 or H, 2R+1, d)."""
    far = near = None
    if frel is not None and causal:
        far, near = causal_tables(frel)
    elif frel is not None:
        near = bidirectional_table(frel)
    out: Tensor = _QuadraticAttention.apply(q, k, v, far, near, causal, key_mask, phi, dtype)
    return out


class _QuadraticAttention(torch.autograd.Function):
    """Scores, then the relative terms beyond and within the horizon, then the weighted means of the values."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, far: Tensor | None, near: Tensor | None, causal: bool,
        key_mask: Tensor | None, phi: FeatureMap, dtype: torch.dtype,
    ) -> Tensor:  # fmt: skip
        """q (B, H, L, d), k (B, H, S, d), v (B, H, S, e). Causal: far (1 or H, 1, d) and near (1 or H, R, d) of
        `causal_tables`; else near (1 or H, 2R+1, d) of `bidirectional_table`; or None."""
        batch, heads, length, _ = q.shape
        fq = phi(q.to(dtype)).flatten(0, 1)  # (X, L, d)
        fk = phi(k.to(dtype))  # (B, H, S, d)
        values = v.to(dtype)
        real = None
        if key_mask is not None:  # masking the scores is not enough: pads may hold NaN
            pads = ~key_mask[:, None, :, None]  # (B, 1, S, 1)
            fk, values = fk.masked_fill_(pads, 0.0), values.masked_fill(pads, 0.0)
            real = key_mask.to(dtype).repeat_interleave(heads, 0)[:, None]  # (X, 1, S)
        fk, values = fk.flatten(0, 1), values.flatten(0, 1)
        scores = fq @ _with_far(fk, far, batch, heads).transpose(1, 2)  # (X, L, S)
        if near is not None:
            by_distance = fq @ spread(near, batch, heads).transpose(1, 2)  # (X, L, R or 2R+1)
            if causal:
                add_band(scores, by_distance, near.shape[1] - 1, 0)
            else:
                reach = near.shape[1] // 2 - 1
                past = scores.new_ones(scores.shape[1:]).tril()
                scores.addcmul_(by_distance[..., -2:-1], past).addcmul_(by_distance[..., -1:], 1 - past)
                add_band(scores, by_distance[..., :-2], reach, reach)
        if causal:
            scores.tril_()
        if real is not None:
            scores.mul_(real)
        inverse = inverse_denominator(scores.sum(-1, keepdim=True))  # (X, L, 1)
        out = (scores @ values).mul_(inverse)  # (X, L, e)
        ctx.save_for_backward(far, near, key_mask, real, fq, fk, values, scores, out, inverse)
        ctx.options = causal, phi
        return out.to(v.dtype).view(batch, heads, length, -1)

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        far, near, key_mask, real, fq, fk, values, scores, out, inverse = ctx.saved_tensors
        causal, phi = ctx.options
        batch, heads = grad.shape[:2]
        d_sums = grad.flatten(0, 1) * inverse  # (X, L, e)
        d_total = (d_sums * out).sum(-1, keepdim=True)  # (X, L, 1), to be subtracted
        d_v = (scores.transpose(1, 2) @ d_sums).unflatten(0, (batch, heads))  # (B, H, S, e)
        d_scores = (d_sums @ values.transpose(1, 2)).sub_(d_total)  # (X, L, S)
        if real is not None:
            d_scores.mul_(real)
        if causal:
            d_scores.tril_()
        d_fq = d_scores @ _with_far(fk, far, batch, heads)  # (X, L, d)
        d_fk = d_scores.transpose(1, 2) @ fq  # (X, S, d)
        d_far = d_near = None
        if near is not None:
            if causal:
                d_far = table_gradient(torch.ones_like(d_fk[..., :1]), d_fk, near)
                d_by_distance = read_band(d_scores, near.shape[1] - 1, 0)  # (X, L, R)
            else:
                reach = near.shape[1] // 2 - 1
                band, every = read_band(d_scores, reach, reach), d_scores.sum(-1, keepdim=True)
                past = d_scores.tril_().sum(-1, keepdim=True)  # the last use of these scores
                d_by_distance = torch.cat([band, past, every - past], dim=-1)  # (X, L, 2R+1)
            d_fq.baddbmm_(d_by_distance, spread(near, batch, heads))
            d_near = table_gradient(d_by_distance, fq, near)
        d_q = d_fq.mul_(phi.slope_of_value(fq)).unflatten(0, (batch, heads))
        d_k = d_fk.mul_(phi.slope_of_value(fk)).unflatten(0, (batch, heads))
        if key_mask is not None:
            d_v.masked_fill_(~key_mask[:, None, :, None], 0.0)
        return d_q, d_k, d_v, d_far, d_near, None, None, None, None


def _with_far(fk: Tensor, far: Tensor | None, batch: int, heads: int) -> Tensor:
    """phi(k) + b (X, S, d), if b is given: all keys get the relative term of keys beyond the horizon."""
    return fk if far is None else fk + spread(far, batch, heads)
