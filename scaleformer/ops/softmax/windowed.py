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
    q: Tensor, k: Tensor, v: Tensor, window: int, global_tokens: int | tuple[Tensor, Tensor] = 0, *,
    causal: bool = False, key_mask: Tensor | None = None, dilation: int = 1,
    everywhere: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """Self-attention to the keys within the window and to global tokens ([Beltagy 2020] section 3.1).

        out_i = sum_j softmax_j(q_i . k_j / sqrt(d)) v_j   over the global j, and j = i + m dilation with |m| <= window;
                                                           all j for a global i; none after i if causal, where a
                                                           global i sees what the others see

    q, k, v        (B, H, L, d), v (B, H, L, e)
    global_tokens  how many of the first positions are global; or distinct positions (B, G) and whether each of them
                   counts (B, G)
    key_mask       (B, L) bool, True for a real token
    everywhere     other q, k and v for what global tokens gather, or None; without effect if causal

    Returns (B, H, L, e) in the dtype of v; zeros in a row that has no key. Raises ValueError if the arguments do not
    fit together.
    """
    check_qkv(q, k, v, key_mask)
    check_positive("window", window)
    check_positive("dilation", dilation)
    length = q.shape[2]
    if k.shape[2] != length:
        raise ValueError(f"k has {k.shape[2]} positions: it must have as many as q, {length}")
    if 0 in (q.shape[0], length):
        return v.new_zeros(*q.shape[:3], v.shape[3])
    real = q.new_ones(1, length, dtype=torch.bool) if key_mask is None else key_mask  # (B or 1, L)
    k, v = (x.masked_fill(~real[:, None, :, None], 0.0) for x in (k, v))  # pads may hold NaN
    if isinstance(global_tokens, int):
        first = torch.arange(min(global_tokens, length), device=q.device)
        chosen, counts = first.expand(len(q), -1), real[:, : len(first)].expand(len(q), -1)  # (B, G)
    else:
        chosen, counts = global_tokens
    queries = chunks(dilated(q, dilation), window)  # (B, H, dilation, N, C, d)
    after = 0 if causal else window
    key_strips, value_strips = (strips(dilated(x, dilation), window, window, after) for x in (k, v))  # (..., N, W, d)
    within = real.expand(len(q), -1).scatter(1, chosen, real.expand(len(q), -1).gather(1, chosen) & ~counts)  # (B, L)
    seen = strips(dilated(within[:, None, :, None], dilation), window, window, after)[..., 0][..., None, :]
    groups = [(key_strips, value_strips, seen & band(window, causal, q.device))]  # (B, 1, dilation, N, C, W)
    if chosen.shape[1]:
        known = counts[:, None, None, None, None]  # (B, 1, 1, 1, 1, G)
        if causal:
            positions = torch.arange(length, device=q.device)[:, None]
            known = known & (chosen[:, None, None, None, None] <= chunks(dilated(positions, dilation), window))
        groups.append((at(k, chosen)[:, :, None, None], at(v, chosen)[:, :, None, None], known))  # (B, H, 1, 1, G, d)
    out = blockwise_softmax(queries, groups).flatten(3, 4)[:, :, :, : -(-length // dilation)]  # (B, H, dilation, M, e)
    out = out.transpose(2, 3).flatten(2, 3)[:, :, :length]  # (B, H, L, e)
    if chosen.shape[1] and not causal:
        q, k, v = (q, k, v) if everywhere is None else everywhere
        if everywhere is not None:
            k, v = (x.masked_fill(~real[:, None, :, None], 0.0) for x in (k, v))
        rows = joint_softmax(at(q, chosen), [(k, v, real[:, None, None])])  # (B, H, G, e)
        rows = torch.where(counts[:, None, :, None], rows, at(out, chosen))
        out = out.scatter(2, chosen[:, None, :, None].expand_as(rows), rows)
    return out


def band(window: int, causal: bool, device: torch.device) -> Tensor:
    """Which keys of its strip each query of a chunk of `window` sees: (C, W) bool, W = 2 C if causal, else 3 C."""
    distance = torch.arange(-window, window if causal else 2 * window, device=device)  # (W,), to the first query
    distance = distance - torch.arange(window, device=device)[:, None]  # (C, W)
    near = distance.abs() <= window
    return near & (distance <= 0) if causal else near


def at(x: Tensor, positions: Tensor) -> Tensor:
    """x (B, H, L, n) at positions (B, G): (B, H, G, n)."""
    return x.gather(2, positions[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))


def dilated(x: Tensor, dilation: int) -> Tensor:
    """(..., L, n) -> (..., dilation, M, n): the positions equal modulo the dilation, each a sequence of its own."""
    return chunks(x, dilation).transpose(-2, -3)


def blockwise_softmax(q: Tensor, groups: Sequence[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """`joint_softmax` of q (..., N, C, d), a few chunks at a time."""
    scores = q.select(-3, 0).numel() // q.shape[-1] * sum(keys.shape[-2] for keys, _, _ in groups)
    size = max(1, BLOCK_SCORES // scores)
    count = -(-q.shape[-3] // size)
    parts = [[split_chunks(x, size, count) for x in group] for group in groups]
    blocks = [
        joint_softmax(block, [(keys[n], values[n], seen[n]) for keys, values, seen in parts])
        for n, block in enumerate(q.split(size, -3))
    ]
    return torch.cat(blocks, dim=-3)  # (..., N, C, e)


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
    weights = joint_weights(scores)
    out = weights[0].to(values[0].dtype) @ values[0]
    for part, rest in zip(weights[1:], values[1:], strict=True):
        out = out + part.to(rest.dtype) @ rest
    return out  # (..., C, e)


def joint_weights(scores: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The weights of one softmax over several groups of scores (..., C, W) each; zeros where all are minus infinity."""
    together = torch.cat(list(scores), dim=-1)
    unseen = together.amax(-1, keepdim=True) == float("-inf")  # (..., C, 1)
    weights = together.masked_fill(unseen, 0.0).softmax(-1).masked_fill(unseen, 0.0)
    return weights.split([s.shape[-1] for s in scores], dim=-1)


def chunks(x: Tensor, chunk: int) -> Tensor:
    """(..., L, n) -> (..., N, C, n), zeros after the end."""
    return functional.pad(x, (0, 0, 0, -x.shape[-2] % chunk)).unflatten(-2, (-1, chunk))


def strips(x: Tensor, chunk: int, before: int, after: int) -> Tensor:
    """For each chunk of x (..., L, n) its rows and those around it: (..., N, before + C + after, n).

    Zeros beyond the ends.
    """
    padded = functional.pad(x, (0, 0, before, -x.shape[-2] % chunk + after))
    return padded.unfold(-2, before + chunk + after, chunk).transpose(-1, -2)  # (..., N, W, n)
