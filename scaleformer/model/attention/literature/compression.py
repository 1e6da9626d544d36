"""How the compressive transformer compresses the states that leave its memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

COMPRESSIONS = ("mean", "max", "convolution", "dilated", "most_used")


class Compression(nn.Module):
    """f_c [Rae 2020, section 3.1], by rates of r: states (..., n, D) that leave the memory together -> (..., n / r, D).

    mean         the mean of each group of r states
    max          its largest number, for each of the width
    convolution  sum_t A_t h_t over the group, kernel and stride r
    dilated      convolutions of two states 1, 2, 4, ... apart, up to r or more, with zeros before the first state; read
                 at the last state of each group, they see the group before it, too. The paper leaves their shape open

    Convolutions have no bias, and begin as means. What is most used does not depend on the states: `most_used`.
    """

    def __init__(self, kind: str, width: int, rate: int) -> None:
        super().__init__()
        self.kind, self.rate = kind, rate
        shapes: list[tuple[int, int, int]] = []  # kernel, stride, dilation
        if kind == "convolution":
            shapes = [(rate, rate, 1)]
        elif kind == "dilated":
            shapes = [(2, 1, 2**n) for n in range(math.ceil(math.log2(rate)) + 1)]
        self.layers = nn.ModuleList()
        for kernel, stride, dilation in shapes:
            layer = nn.Conv1d(width, width, kernel, stride, dilation=dilation, bias=False)
            layer.weight = nn.Parameter(torch.eye(width)[..., None].repeat(1, 1, kernel) / kernel)
            self.layers.append(layer)

    def forward(self, states: Tensor) -> Tensor:
        r, n = self.rate, states.shape[-2]
        groups = states.unflatten(-2, (n // r, r))  # (..., n / r, r, D)
        if self.kind == "mean":
            return groups.mean(-2)
        if self.kind == "max":
            return groups.amax(-2)
        out = states.flatten(0, -3).transpose(1, 2)  # (N, D, n)
        for level, layer in enumerate(self.layers):
            out = layer(functional.pad(out, (2**level, 0)) if self.kind == "dilated" else out)
        if self.kind == "dilated":
            out = out[..., r - 1 :: r]  # (N, D, n / r)
        return out.transpose(1, 2).unflatten(0, states.shape[:-2])


def most_used(usage: Tensor, memory: int, rate: int) -> Tensor:
    """Which of n tokens that leave a memory of M are kept, in their order: (rows, n / rate).

    usage (rows, n), the attention that each got in total; they are ranked by the mean over the queries that saw them:
    for the i-th all from itself to the last one before the next piece, M + n - i.
    """
    n = usage.shape[1]
    mean = usage / torch.arange(memory + n, memory, -1, device=usage.device)  # (rows, n)
    return mean.argsort(dim=1, descending=True, stable=True)[:, : n // rate].sort(1).values


def keep_most_used(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    weights: Callable[[int, Tensor, Tensor], Tensor],
    memory: int,
    compressed: int,
    rate: int,
) -> Tensor:
    """Attention piece by piece, since what is kept of one depends on the attention that it got: (B, H, N, C, d).

    query         (B, H, N, C, d)
    keys, values  (B, H, N, C + M + C, d): of each piece, then of what it sees: the memory of M tokens and itself
    weights       of piece n by its queries (B, H, C, d) and keys (B, H, W, d), those kept first: (B, H, C, W)
    compressed    K, how many of the tokens kept are seen
    """
    C, M, K = query.shape[3], memory, compressed
    tokens = [x[..., :C, :].flatten(2, 3) for x in (keys, values)]  # (B, H, N C, d)
    kept = [x.new_zeros(*x.shape[:2], K, x.shape[3]) for x in tokens]  # (B, H, K, d)
    usage = torch.zeros(len(query), tokens[0].shape[2], dtype=full(query.dtype), device=query.device)  # (B, N C)
    outputs = []
    for n, (q, *own) in enumerate(zip(*(x.unbind(2) for x in (query, keys, values)), strict=True)):
        start = C * n
        first, end = max(0, start - M - C), max(0, start - M)
        chosen = first + most_used(usage[:, first:end], M, rate)  # (B, C / r or less)
        kept = [torch.cat([k, rows_of(x, chosen)], dim=2)[:, :, -K:] for k, x in zip(kept, tokens, strict=True)]
        k, v = (torch.cat([old, x[:, :, C:]], dim=2) for old, x in zip(kept, own, strict=True))  # (B, H, W, d)
        shares = weights(n, q, k)  # (B, H, C, W)
        outputs.append(shares.to(v.dtype) @ v)
        usage[:, end : start + C] += shares.detach().sum((1, 2))[:, end - start - C :]
    return torch.stack(outputs, dim=2)


def rows_of(x: Tensor, chosen: Tensor) -> Tensor:
    """x (B, H, T, d) at the positions chosen (B, n), the same for all heads: (B, H, n, d)."""
    return x.gather(2, chosen[:, None, :, None].expand(-1, x.shape[1], -1, x.shape[3]))


def full(dtype: torch.dtype) -> torch.dtype:
    """The dtype for sums of numbers of `dtype`."""
    return torch.promote_types(dtype, torch.float32)
