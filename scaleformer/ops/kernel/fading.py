"""Causal sums over features of any sign, with gates that let the past fade: in linear time, by chunks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

CHUNK = 64


def fading_sums(q: Tensor, k: Tensor, u: Tensor, log_gate: Tensor, chunk: int = CHUNK) -> Tensor:
    """sum_{j<=i} f_(j+1) ... f_i (q_i . k_j) u_j, in linear time by chunks: (B, H, L, e).

    q, k (B, H, L, n), u (B, H, L, e), log_gate (B, H, L) the logarithm of f, at most zero: no weight exceeds 1.
    """
    length = q.shape[2]
    chunk = min(chunk, length)
    q, k, u, log_gate = (  # (B, H, N, C, n | n | e | 1)
        functional.pad(x, (0, 0, 0, -length % chunk)).unflatten(2, (-1, chunk)) for x in (q, k, u, log_gate[..., None])
    )
    since = log_gate.cumsum(3)  # (B, H, N, C, 1), since the start of the chunk
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=q.device).triu(1)
    fading = (since - since.mT).masked_fill(later, float("-inf")).exp()  # (B, H, N, C, C)
    out = (q @ k.mT * fading) @ u  # (B, H, N, C, e)
    if out.shape[2] > 1:
        end = since[..., -1:, :]  # (B, H, N, 1, 1)
        own = (k * (end - since).exp()).mT @ u  # (B, H, N, n, e), of each chunk at its end
        states = [torch.zeros_like(own[:, :, 0])]  # (B, H, n, e), before each chunk
        # One unbind: indexing in each iteration would make a full-size gradient.
        for left, part in zip(end.exp().unbind(2)[:-1], own.unbind(2)[:-1], strict=True):
            states.append(torch.addcmul(part, left, states[-1]))
        out = out + q * since.exp() @ torch.stack(states, 2)
    return out.flatten(2, 3)[:, :, :length]
