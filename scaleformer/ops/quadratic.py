"""All scores of all pairs: quadratic in length, and the fastest for short sequences."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.feature_maps import FeatureMap
from scaleformer.ops.relative_position import relative_scores


def quadratic_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    frel: Tensor | None,
    weights: Tensor | None,
    causal: bool,
    key_mask: Tensor | None,
    phi: FeatureMap,
    dtype: torch.dtype,
) -> Tensor:
    """Kernelized attention of all pairs; frel = phi(rel), (1 or H, 2R+1, d).

    weights, if any, broadcast to (B, H, L_Q, L_K) and multiply the scores. Returns (B, H, L_Q, e) in the dtype of v.
    """
    if key_mask is not None:  # not only the scores: a pad may hold what is no number
        pads = ~key_mask[:, None, :, None]  # (B, 1, L_K, 1)
        k, v = k.masked_fill(pads, 0.0), v.masked_fill(pads, 0.0)
    fq, fk, values = phi(q.to(dtype)), phi(k.to(dtype)), v.to(dtype)
    scores = fq @ fk.transpose(-1, -2)  # (B, H, L_Q, L_K)
    if frel is not None:
        scores = scores + relative_scores(fq @ frel.transpose(-1, -2), k.shape[2])  # (B, H, L_Q, L_K)
    if weights is not None:
        scores = scores * weights
    if causal:
        scores = scores.tril()
    if key_mask is not None:
        scores = scores.masked_fill(~key_mask[:, None, None, :], 0.0)
    total = scores.sum(-1, keepdim=True)  # (B, H, L_Q, 1)
    return (scores @ values / total.masked_fill(total == 0, 1.0)).to(v.dtype)  # (B, H, L_Q, e)
