"""What no package has: torch's `scaled_dot_product_attention`, handed the mask or the weight of every pair.

It takes the softmax and the sums over keys from somebody else, and says nothing about how the pairs' weights are meant.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tests.model.attention.oracles.comparison import additive, heads_of, output_of

Module = Any  # an attention: each case knows which


def by_bias(attention: Module, heads: tuple[Tensor, Tensor, Tensor], seen: Tensor, bias: Tensor) -> Tensor:
    """Softmax attention with a bias and a mask (B, H, L, S)."""
    bias = (bias + additive(seen)).expand(-1, attention.heads, -1, -1)
    return output_of(attention, functional.scaled_dot_product_attention(*heads, bias))


def by_weights(attention: Module, value: Tensor, seen: Tensor, weights: Tensor) -> Tensor:
    """The mean of value (B, H, S, d) by positive weights (B, H, L, S): softmax of their logarithms."""
    query, key = (torch.zeros(*value.shape[:2], n, 1, dtype=value.dtype) for n in weights.shape[2:])
    return by_bias(attention, (query, key, value), seen, weights.log())


def distances(x: Tensor, memory: Tensor) -> Tensor:
    """j - i, (L, S)"""
    return torch.arange(memory.shape[1]) - torch.arange(x.shape[1])[:, None]


def embedded(table: Tensor, x: Tensor, memory: Tensor) -> Tensor:
    """The rows of table (H, 2R+1, d) for all pairs: (H, L, S, d)."""
    horizon = table.shape[1] // 2
    return table[:, distances(x, memory).clamp(-horizon, horizon) + horizon]


def by_mask(attention: Module, x: Tensor, memory: Tensor, seen: Tensor) -> Tensor:
    """Softmax attention with a mask (B, H, L, S)."""
    return by_bias(attention, heads_of(attention, x, memory), seen, x.new_zeros(()))


def relative_scores(attention: Module, query: Tensor, x: Tensor, memory: Tensor) -> Tensor:
    """Q_i . P_clip(j-i) / sqrt(d), (B, H, L, S); none in cross-attention."""
    if not hasattr(attention, "relative_embedding"):
        return query.new_zeros(())
    table = embedded(attention.relative_embedding, x, memory)
    return torch.einsum("bhid,hijd->bhij", query, table) / math.sqrt(attention.head_width)
