"""Softmax attention to a sliding window and a few global tokens, in linear time.

C chunk length, N chunks. Queries are taken chunk by chunk. The window of a chunk is a strip of keys around it, so that
scores are N matrices (C, W) instead of one (L, S).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.checks import check_positive, check_qkv

#: the most scores computed together, so that intermediate results stay in the cache
BLOCK_SCORES = 1 << 19


def windowed_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int,
    global_tokens: int = 0,
    *,
    causal: bool = False,
    key_mask: Tensor | None = None,
) -> Tensor:
    """Self-attention to the keys within the window and to the first ones ([Beltagy 2020] section 3.1).

        out_i = sum_j softmax_j(q_i . k_j / sqrt(d)) v_j   over j with |j - i| <= window, or j < global_tokens;
                                                           all j for i < global_tokens; none after i if causal

    q, k, v   (B, H, L, d), v (B, H, L, e)
    key_mask  (B, L) bool, True for a real token

    Returns (B, H, L, e) in the dtype of v; zeros in a row that has no key. Raises ValueError if the arguments do not
    fit together.
    """
    check_qkv(q, k, v, key_mask)
    check_positive("window", window)
    length = q.shape[2]
    if k.shape[2] != length:
        raise ValueError(f"k has {k.shape[2]} positions: it must have as many as q, {length}")
    if 0 in (q.shape[0], length):
        return v.new_zeros(*q.shape[:3], v.shape[3])
    real = q.new_ones(1, length, dtype=torch.bool) if key_mask is None else key_mask  # (B or 1, L)
    k, v = (x.masked_fill(~real[:, None, :, None], 0.0) for x in (k, v))  # pads may hold NaN
    few = min(global_tokens, length)
    asked = chunks(q, window)  # (B, H, N, C, d)
    after = 0 if causal else window
    key_strips, value_strips = (strips(x, window, window, after) for x in (k, v))  # (B, H, N, W, d)
    within = real.clone()
    within[:, :few] = False  # these are seen as global tokens
    seen = strips(within[:, None, :, None], window, window, after)[..., 0][:, :, :, None]  # (B, 1, N, 1, W)
    distance = torch.arange(-window, window + after, device=q.device)
    distance = distance - torch.arange(window, device=q.device)[:, None]  # (C, W)
    band = distance.abs() <= window if not causal else (distance <= 0) & (distance >= -window)
    groups = [(key_strips, value_strips, seen & band)]
    if few:
        positions = torch.arange(asked.shape[2] * window, device=q.device).view(-1, window, 1)  # (N, C, 1)
        earlier = torch.arange(few, device=q.device) <= positions if causal else positions >= 0  # (N, C, few or 1)
        known = real[:, None, None, None, :few] & earlier  # (B, 1, N, C, few)
        groups.append((k[:, :, None, :few], v[:, :, None, :few], known))
    out = blockwise_softmax(asked, groups).flatten(2, 3)[:, :, :length]  # (B, H, L, e)
    if few and not causal:
        everywhere = joint_softmax(q[:, :, :few], [(k, v, real[:, None, None])])  # (B, H, few, e)
        out = torch.cat([everywhere, out[:, :, few:]], dim=2)
    return out


def blockwise_softmax(q: Tensor, groups: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """`joint_softmax` of q (B, H, N, C, d), a few chunks at a time."""
    scores = q[:, :, 0].numel() // q.shape[-1] * sum(keys.shape[-2] for keys, _, _ in groups)
    size = max(1, BLOCK_SCORES // scores)
    count = -(-q.shape[2] // size)
    parts = [[split_chunks(x, size, count) for x in group] for group in groups]
    blocks = [
        joint_softmax(block, [(keys[n], values[n], seen[n]) for keys, values, seen in parts])
        for n, block in enumerate(q.split(size, 2))
    ]
    return torch.cat(blocks, dim=2)  # (B, H, N, C, e)


def split_chunks(x: Tensor, size: int, count: int) -> Sequence[Tensor]:
    """x (..., N or 1, W, n) in `count` parts of up to `size` chunks; if all chunks share x, x itself for each part.

    It splits once, since the backward pass of a split is one concatenation; each slice would need a full-size gradient.
    """
    return [x] * count if x.shape[-3] == 1 else x.split(size, -3)


def joint_softmax(q: Tensor, groups: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """One softmax over the keys of several groups.

    q (..., C, d); for each group keys (..., W, d), values (..., W, e) and a bool mask (..., C, W), True = seen. Leading
    dimensions broadcast. Returns (..., C, e); zeros where nothing is seen.
    """
    q = q * q.shape[-1] ** -0.5
    scores = [hide(q @ keys.transpose(-1, -2), seen) for keys, _, seen in groups]  # (..., C, W) each
    return mix(scores, [values for _, values, _ in groups])


def hide(scores: Tensor, seen: Tensor) -> Tensor:
    """Scores, at least in float32, that are minus infinity where not `seen`."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~seen, float("-inf"))


def mix(scores: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
    """The means of several groups of values (..., W, e) by one softmax over all scores (..., C, W): (..., C, e); zeros
    where every score is minus infinity."""
    together = torch.cat(list(scores), dim=-1)
    unseen = together.amax(-1, keepdim=True) == float("-inf")  # (..., C, 1)
    weights = together.masked_fill(unseen, 0.0).softmax(-1).masked_fill(unseen, 0.0)
    parts = weights.split([s.shape[-1] for s in scores], dim=-1)
    out = parts[0].to(values[0].dtype) @ values[0]
    for part, rest in zip(parts[1:], values[1:], strict=True):
        out = out + part.to(rest.dtype) @ rest
    return out  # (..., C, e)


def chunks(x: Tensor, chunk: int) -> Tensor:
    """(..., L, n) -> (..., N, C, n), zeros after the end."""
    return functional.pad(x, (0, 0, 0, -x.shape[-2] % chunk)).unflatten(-2, (-1, chunk))


def strips(x: Tensor, chunk: int, before: int, after: int) -> Tensor:
    """For each chunk of x (..., L, n) its rows and those around it: (..., N, before + C + after, n).

    Zeros beyond the ends.
    """
    padded = functional.pad(x, (0, 0, before, -x.shape[-2] % chunk + after))
    return padded.unfold(-2, before + chunk + after, chunk).transpose(-1, -2)  # (..., N, W, n)
