"""Softmax attention whose scores depend on the distance between query and key, without a tensor (L, S, d)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from scaleformer.ops.common.checks import check_qkv, check_rel
from scaleformer.ops.common.relative_positions import relative_scores
from scaleformer.ops.softmax.windowed import chunks, strips

#: the most scores kept for the backward pass; beyond it they are recomputed, one block of queries after another
SCORES = 1 << 24


def relative_softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None = None, bias: Tensor | None = None, *, causal: bool = False,
    key_mask: Tensor | None = None, first: int = 0, most_scores: int = SCORES,
) -> Tensor:  # fmt: skip
    """Softmax attention with clipped relative positions ([Shaw 2018] equation 4) or a bias by distance.

        s_ij = q_i . (k_j + rel_clip(j - i, -R, R)) / sqrt(d) + bias_clip(j - i, -M, M)
        out_i = sum_j softmax_j(s_ij) v_j

    q         (B, H, L, d), the queries of positions first .. first + L - 1
    k, v      (B, H, S, d) keys and (B, H, S, e) values, of positions 0 .. S - 1
    rel       (2R+1, d) or (H, 2R+1, d), row R + t for the distance j - i = t; or None
    bias      (H, 2M+1), or (B, H, L, 2M+1) for each query, column M + t for the distance t, -inf for hidden keys; or
              None
    causal    drop the keys j > i
    key_mask  (B, S) bool, True for a real token

    The products of queries and rel are skewed into place ([Huang 2019], Music Transformer, section 3.4.1): L (S + L)
    numbers a head. If there are more than `most_scores` in all, queries are taken in blocks, which the backward pass
    recomputes: memory linear in length, time quadratic.
    Returns (B, H, L, e) in the dtype of v; zeros in a row that has no key. Softmax runs in float32 at least. Raises
    ValueError if the arguments do not fit together.
    """
    check_qkv(q, k, v, key_mask)
    if rel is not None:
        check_rel(rel, q.shape[1], q.shape[3])
    batch, heads, length, _ = q.shape
    if 0 in (batch, length, k.shape[2]):
        return v.new_zeros(batch, heads, length, v.shape[3])
    block = max(1, most_scores // max(1, batch * heads * k.shape[2]))
    if block >= length:
        return _all_scores(q, k, v, rel, bias, causal, key_mask, first)
    parts = []
    for start in range(0, length, block):
        seen = min(first + start + block, k.shape[2]) if causal else k.shape[2]
        mask = None if key_mask is None else key_mask[:, :seen]
        rows = (q[:, :, start : start + block], k[:, :, :seen], v[:, :, :seen])
        by_row = bias[:, :, start : start + block] if bias is not None and bias.dim() == 4 else bias
        arguments = (*rows, rel, by_row, causal, mask, first + start)
        if torch.is_grad_enabled():
            parts.append(checkpoint(_all_scores, *arguments, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(_all_scores(*arguments))
    return torch.cat(parts, dim=2)  # (B, H, L, e)


def near_softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None, bias: Tensor, *, causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`relative_softmax_attention` of a text whose bias (..., 2M+1) is -inf at the distances -M and M, so that no query
    reads a key farther away: each chunk of M queries reads 2 M keys, 3 M unless causal. O(L M d) time, O(L M) memory;
    pads are at the end of a row. Arguments, result and errors are those of `relative_softmax_attention`."""
    length, reach = q.shape[2], bias.shape[-1] // 2
    after = 0 if causal else reach
    if 2 * reach + after >= length:
        real = None if causal else key_mask  # no real query sees a pad
        return relative_softmax_attention(q, k, v, rel, bias, causal=causal, key_mask=real)

    def rows(x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(0, 1)  # (B, H, N, C, n) -> (B N, H, C, n)

    exists = q.new_ones(len(q), length, dtype=torch.bool) if key_mask is None else key_mask
    keys, values = (rows(strips(x, reach, reach, after)) for x in (k, v))  # (B N, H, W, d)
    seen = strips(exists[:, :, None], reach, reach, after)[..., 0].flatten(0, 1)  # (B N, W)
    bias = bias if bias.dim() == 2 else rows(chunks(bias, reach))  # (H, 2M+1) or (B N, H, C, 2M+1)
    queries = rows(chunks(q, reach))  # (B N, H, C, d)
    out = relative_softmax_attention(queries, keys, values, rel, bias, causal=causal, key_mask=seen, first=reach)
    return out.unflatten(0, (len(q), -1)).transpose(1, 2).flatten(2, 3)[:, :, :length]  # (B, H, L, e)


def _all_scores(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None, bias: Tensor | None, causal: bool, key_mask: Tensor | None,
    first: int,
) -> Tensor:  # fmt: skip
    queries, keys = q.shape[2], k.shape[2]
    if key_mask is not None:
        pads = ~key_mask[:, None, :, None]  # (B, 1, S, 1): pads may hold NaN
        k, v = k.masked_fill(pads, 0.0), v.masked_fill(pads, 0.0)
    q = q * q.shape[3] ** -0.5
    scores = q @ k.transpose(-1, -2)  # (B, H, L, S)
    if rel is not None:
        scores = scores + relative_scores(q @ rel.to(q.dtype).transpose(-1, -2), keys, first)  # (B, H, L, S)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if bias is not None:
        by_distance = bias.to(scores.dtype)
        if bias.dim() == 2:
            by_distance = by_distance[:, None].expand(-1, queries, -1)  # (H, L, 2M+1)
        scores = scores + relative_scores(by_distance, keys, first)  # (B, H, L, S)
    hidden = None
    if causal:
        hidden = torch.ones(queries, keys, dtype=torch.bool, device=q.device).triu(first + 1)  # (L, S)
    if key_mask is not None:
        pads = pads.transpose(-1, -2)  # (B, 1, 1, S)
        hidden = pads if hidden is None else hidden | pads
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    if key_mask is None and bias is None:  # each query sees a key
        weights = scores.softmax(-1)
    else:
        unseen = scores.amax(-1, keepdim=True) == float("-inf")  # (B, H, L, 1)
        weights = scores.masked_fill(unseen, 0.0).softmax(-1).masked_fill(unseen, 0.0)
    return weights.to(v.dtype) @ v  # (B, H, L, e)
