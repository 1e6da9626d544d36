"""Softmax attention to one block of tokens, which each head permutes in its own way."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor

from scaleformer.model.attention.literature.bigbird import pick
from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.windowed import blockwise_softmax, chunks
from scaleformer.system.schema import Positive, Share


class BlockBertAttention(SoftmaxAttention):
    """out_i = sum_j softmax_j(Q_i . K_j / sqrt(d)) V_j over the keys j of one block of `block` tokens:

    that with the number (n + s_h) mod N, where n is the number of i's own block, N the number of blocks of the text and
    s_h the shift of the head: 0 for the first heads, then 1, -1, 2, -2 ... for a share `shifted` of them, rounded up.
    Cost O(L block d) time and memory.
    Source: [Qiu 2019, section 3.2], the masks of the identity and of permutations by shifts. There all texts have one
    length and two or three blocks, so that cost is quadratic with a small factor. Here the length of a block is fixed,
    and cost is linear; with two or three blocks the shifts are those of the paper. Positions are added to the
    embeddings. Left out: other permutations, and BERT's training.

    block    tokens in a block; the last one of a text may have fewer
    shifted  share of the heads that see another block than their own
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder",)

    def __init__(self, site: str, width: int, heads: int, block: Positive = 64, shifted: Share = 0.5) -> None:
        super().__init__(site, width, heads)
        self.block = block
        moved = math.ceil(shifted * heads)
        self.shifts = [0] * (heads - moved) + [(n // 2 + 1) * (-1) ** n for n in range(moved)]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        size, length = self.block, query.shape[2]
        key, value = (x.masked_fill(~layout.mask[:, None, :, None], 0.0) for x in (key, value))
        queries, keys, values = (chunks(x, size) for x in (query, key, value))  # (B, H, N, C, d)
        real = chunks(layout.mask[:, :, None], size)  # (B, N, C, 1)
        blocks = real.any(2).sum(1).clamp(min=1)[:, :, None, None]  # (B, 1, 1, 1)
        number = torch.arange(queries.shape[2], device=query.device)  # (N,)
        shifts = torch.tensor(self.shifts, device=query.device)
        chosen = (number + shifts[:, None])[..., None] % blocks  # (B, H, N, 1)
        seen = pick(real[:, None].expand(-1, self.heads, -1, -1, -1), chosen)[..., 0]  # (B, H, N, C)
        group = (pick(keys, chosen), pick(values, chosen), seen[:, :, :, None])
        return blockwise_softmax(queries, [group]).flatten(2, 3)[:, :, :length]  # (B, H, L, d)
