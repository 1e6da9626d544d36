"""Hybrid attention by all scores of all pairs: quadratic in length, and the fastest for short sequences."""

from __future__ import annotations

import torch
from torch import Tensor

from scaleformer.ops.common.feature_maps import FeatureMap
from scaleformer.ops.common.relative_positions import relative_scores
from scaleformer.ops.segments.gate import far_scale, look_up

HIDDEN = -1e30  # the logit of a key that a query does not see: finite, so that a row of them is no NaN


def dense_hybrid(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    rel: Tensor | None,
    log_gate: Tensor,
    query_segments: Tensor,
    key_segments: Tensor,
    near: int,
    causal: bool,
    key_mask: Tensor | None,
    far_tokens: float,
    phi: FeatureMap,
    dtype: torch.dtype,
) -> Tensor:
    """Arguments and result as in `segment_hybrid_attention`; rel (1 or H, 2R+1, d); rel and log_gate in `dtype`.

    The logarithm of every score goes into one softmax, which brings near and far under one denominator.
    """
    width, keys = q.shape[3], k.shape[2]
    if key_mask is not None:  # not only the scores: a pad may hold what is no number
        pads = ~key_mask[:, None, :, None]  # (B, 1, L_K, 1)
        k, v = k.masked_fill(pads, 0.0), v.masked_fill(pads, 0.0)
    q, k = q.to(dtype), k.to(dtype)
    scaled = q * width**-0.5
    logits = scaled @ k.transpose(-1, -2)  # (B, H, L_Q, L_K)
    if rel is not None:
        logits = logits + relative_scores(scaled @ rel.transpose(-1, -2), keys)  # (B, H, L_Q, L_K)

    reach = log_gate.shape[1] // 2
    distance = key_segments.long()[:, None, :] - query_segments.long()[:, :, None]  # (B, L_Q, L_K)
    visible = torch.ones_like(distance, dtype=torch.bool) if key_mask is None else key_mask[:, None, :]
    visible = visible.expand_as(distance).tril() if causal else visible.expand_as(distance)  # (B, L_Q, L_K)
    gate = look_up(log_gate.clamp(min=HIDDEN), distance.clamp(-reach, reach) + reach)  # (B, H, L_Q, L_K)
    is_near = distance.abs() <= near  # (B, L_Q, L_K)
    if q.device.type == "cpu" and not (visible & ~is_near).any():  # to ask a GPU would be to wait for it
        scores = logits + gate.masked_fill(~visible[:, None], HIDDEN)
        is_open = key_mask is None and bool((log_gate > HIDDEN / 2).all())
        blind = None if is_open else scores.amax(-1, keepdim=True) < HIDDEN / 2  # (B, H, L_Q, 1)
    else:
        far = visible & (distance.abs() >= reach)  # (B, L_Q, L_K)
        scale = far_scale(far.sum(-1, keepdim=True), far_tokens, dtype).log()  # (B, L_Q, 1)
        bias = torch.where(far, scale, 0.0)[:, None]  # (B, 1, L_Q, L_K)
        kernel = (phi(q) / width) @ phi(k).transpose(-1, -2)  # (B, H, L_Q, L_K)
        hidden = ~visible[:, None] | ((kernel <= 0) & ~is_near[:, None])  # (B, H, L_Q, L_K)
        far_logits = kernel.masked_fill(hidden | is_near[:, None], 1.0).log()  # (B, H, L_Q, L_K)
        scores = (torch.where(is_near[:, None], logits, far_logits) + gate + bias).masked_fill(hidden, HIDDEN)
        blind = scores.amax(-1, keepdim=True) < HIDDEN / 2  # (B, H, L_Q, 1)
    out = scores.softmax(-1) @ v.to(dtype)  # (B, H, L_Q, e)
    return (out if blind is None else out.masked_fill(blind, 0.0)).to(v.dtype)
