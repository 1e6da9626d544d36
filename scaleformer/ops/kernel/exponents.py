"""Linear attention with exponential features, given as exponents: exact for exponents of any size.

    out_i = sum_c a_ic sum_{j seen by i} exp(k_jc - g_ic) v_j          g_ic = log sum_{j seen by i} exp(k_jc)

Each feature c has a mean of the values, and each query mixes these means. With a = softmax_c(q + g), the weights are
the scores sum_c exp(q_ic) exp(k_jc) over their sum [Choromanski 2021]; with a = softmax_c(q) it is efficient attention
[Shen 2020]. Every weight is at most one, and no sum can overflow or vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.kernel.attention import relative_kernel_attention, smaller_algorithm
from scaleformer.ops.kernel.decoding import without_pads

CHUNK = 64
PAD = -1e30  # finite, so that a source of pads alone does not give NaN


def exponent_attention(
    q: Tensor, k: Tensor, v: Tensor, *, joint: bool, causal: bool = False, key_mask: Tensor | None = None,
    algorithm: str = "auto",
) -> Tensor:  # fmt: skip
    """The attention above.

    q, k       (B, H, L_Q, m) and (B, H, L_K, m) exponents; v (B, H, L_K, e) values
    joint      True: a = softmax_c(q + g); False: a = softmax_c(q)
    causal     drop the keys j > i; L_Q = L_K, and pads are at the end: `key_mask` is not read
    key_mask   (B, L_K) bool, True for a real token; zeros in a row without one
    algorithm  as in `relative_kernel_attention`; if causal, `auto` is `linear`

    Returns (B, H, L_Q, e) in the dtype of v; sums run in float32 at least.
    """
    if 0 in (q.shape[0], q.shape[2], k.shape[2]):
        return v.new_zeros(*q.shape[:3], v.shape[3])
    dtype = torch.promote_types(k.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        q, k = q.to(dtype), k.to(dtype)
        if causal:
            total = k.logcumsumexp(2)  # (B, H, L, m)
            weights = (q + total if joint else q).softmax(-1)  # (B, H, L, m)
            return _causal(weights, k, total, v.to(dtype), algorithm).to(v.dtype)
        k = _without_pads(k, key_mask)
        weights = (q + k.logsumexp(2, keepdim=True) if joint else q).softmax(-1)  # (B, H, L_Q, m)
        options: dict[str, Any] = {"key_mask": key_mask, "feature_map": "mapped", "algorithm": algorithm}
        return relative_kernel_attention(weights, k.softmax(2), v, **options)  # the denominator is one


def _without_pads(k: Tensor, key_mask: Tensor | None) -> Tensor:
    """Exponents (B, H, L, m), so low at pads that pads have no weight."""
    return k if key_mask is None else k.masked_fill(~key_mask[:, None, :, None], PAD)


def _causal(weights: Tensor, k: Tensor, total: Tensor, v: Tensor, algorithm: str) -> Tensor:
    """Causal attention by chunks, each of which reads the sums of the earlier chunks. Sums and keys are relative to the
    last `total` before the reader. That is at most the reader's own `total` and at least every earlier key, so that no
    exponent is above zero."""
    batch, heads, length, m = k.shape
    if algorithm == "memory":
        algorithm = smaller_algorithm(length, length, m, causal=True)
    chunk = length if algorithm == "quadratic" else min(CHUNK, length)
    chunk = 1 << (chunk - 1).bit_length()  # a power of two, for halving
    missing = -length % chunk
    # Padding has no weight; it repeats the last exponents, since others might overflow.
    k, total = (torch.cat([x, x[:, :, -1:].expand(-1, -1, missing, -1)], dim=2) for x in (k, total))
    weights, v = (functional.pad(x, (0, 0, 0, missing)) for x in (weights, v))
    weights, k, total, v = (x.flatten(0, 1).unflatten(1, (-1, chunk)) for x in (weights, k, total, v))  # (X, N, C, ...)
    out = _within(*(x.flatten(0, 1) for x in (weights, k, total, v))).unflatten(0, k.shape[:2])  # (X, N, C, e)
    if k.shape[1] > 1:
        ends = total[:, :-1, -1:]  # (X, N-1, 1, m), never of a chunk with pads
        own = (k[:, :-1] - ends).exp().transpose(2, 3) @ v[:, :-1]  # (X, N-1, m, e)
        decay = (ends[:, :-1] - ends[:, 1:]).exp().transpose(2, 3)  # (X, N-2, m, 1)
        # Split by one operation: an index in each round would make a gradient of full size, in quadratic time.
        first, *later = own.unbind(1)
        states = [first]
        for part, left in zip(later, decay.unbind(1), strict=True):
            states.append(torch.addcmul(part, left, states[-1]))
        queries = weights[:, 1:] * (ends - total[:, 1:]).exp()  # (X, N-1, C, m)
        out = torch.cat([out[:, :1], out[:, 1:] + queries @ torch.stack(states, dim=1)], dim=1)
    return out.flatten(1, 2)[:, :length].unflatten(0, (batch, heads))


def _within(weights: Tensor, k: Tensor, total: Tensor, v: Tensor) -> Tensor:
    """Causal attention within chunks (Y, C, ...), C a power of two: each half, then the second half to the first."""
    size = k.shape[1]
    if size == 1:
        return (weights * (k - total).exp()).sum(-1, keepdim=True) * v
    parts = [x.unflatten(1, (2, -1)) for x in (weights, k, total, v)]  # (Y, 2, C/2, ...)
    first, second = _within(*(x.flatten(0, 1) for x in parts)).unflatten(0, (-1, 2)).unbind(1)  # (Y, C/2, e)
    weights, k, total, v = parts
    end = total[:, 0, -1:]  # (Y, 1, m)
    queries = weights[:, 1] * (end - total[:, 1]).exp()  # (Y, C/2, m)
    scores = queries @ (k[:, 0] - end).exp().transpose(1, 2)  # (Y, C/2, C/2)
    return torch.cat([first, second + scores @ v[:, 0]], dim=1)


@dataclass
class ExponentState:
    """Decoding state: for each feature the mean of the values, and the logarithm of the sum of its weights.

    mean   (B, H, m, e)
    total  (B, H, m)
    """

    mean: Tensor
    total: Tensor

    def add(self, k: Tensor, v: Tensor) -> ExponentState:
        """The state with one more token: k (B, H, m), v (B, H, e)."""
        k = k.to(self.total.dtype)
        total = torch.logaddexp(self.total, k)  # (B, H, m)
        old, new = ((x - total).exp()[..., None] for x in (self.total, k))  # (B, H, m, 1)
        return ExponentState(old * self.mean + new * v.to(old.dtype)[:, :, None], total)

    def read(self, q: Tensor, joint: bool) -> Tensor:
        """The output for queries (B, H, K, m): (B, H, K, e)."""
        with torch.autocast(q.device.type, enabled=False):
            q = q.to(self.total.dtype)
            return (q + self.total[:, :, None] if joint else q).softmax(-1) @ self.mean

    def reorder(self, index: Tensor) -> ExponentState:
        """The state whose row b is this one's row index[b]; index (B',) long."""
        return ExponentState(self.mean.index_select(0, index), self.total.index_select(0, index))


def exponent_state(rows: int, heads: int, m: int, e: int, device: torch.device, dtype: torch.dtype) -> ExponentState:
    """The state before the first token."""
    total = torch.full((rows, heads, m), float("-inf"), device=device, dtype=dtype)
    return ExponentState(total.new_zeros(rows, heads, m, e), total)


def exponent_memory(k: Tensor, v: Tensor, key_mask: Tensor | None = None) -> ExponentState:
    """The state of a source: k (B, H, S, m), v (B, H, S, e), key_mask (B, S) bool; zero means without keys."""
    dtype = torch.promote_types(k.dtype, torch.float32)
    with torch.autocast(k.device.type, enabled=False):
        k = _without_pads(k.to(dtype), key_mask)
        return ExponentState(k.softmax(2).mT @ without_pads(v.to(dtype), key_mask), k.logsumexp(2))
