"""Softmax attention to neighbouring, first and random blocks."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.windowed import blockwise_softmax, chunks, joint_softmax, strips
from scaleformer.system.schema import Natural, Positive


class BigBirdAttention(SoftmaxAttention):
    """out_i = sum_j softmax_j(Q_i . K_j / sqrt(d)) V_j over the keys j of certain blocks of `block` tokens:

    i's own block and its two neighbours, the first block, and up to `random_blocks` others drawn at random. The first
    block sees everything. As in the authors' code, each layer and head has its own draw, fixed when the model is made.
    It depends on the number of the block and on how many blocks the text has, not on the other texts of a batch.
    Cost O(L block random_blocks d) time and memory.
    Source: [Zaheer 2020, section 2], the internal construction with one global block; positions are added to the
    embeddings. Left out: the last block as a second global one, extra global tokens.

    block          tokens in a block
    random_blocks  fewer where the draw hits a block that is seen anyway
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder",)

    def __init__(self, site: str, width: int, heads: int, block: Positive = 32, random_blocks: Natural = 2) -> None:
        super().__init__(site, width, heads)
        self.block, self.random_blocks = block, random_blocks
        self.seeds = torch.randint(2**31, (heads,), device="cpu")

    # Not a buffer: averaging checkpoints would average the seeds, which gives an unrelated draw.
    def get_extra_state(self) -> Tensor:
        return self.seeds

    def set_extra_state(self, state: Tensor) -> None:
        self.seeds = state.cpu()

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        size, length = self.block, query.shape[2]
        key, value = (x.masked_fill(~layout.mask[:, None, :, None], 0.0) for x in (key, value))
        queries, keys, values = (chunks(x, size) for x in (query, key, value))  # (B, H, N, C, d)
        real = chunks(layout.mask[:, :, None], size)[..., 0]  # (B, N, C)
        beside = layout.mask.clone()
        beside[:, :size] = False  # the first block is seen as the global one
        near = strips(beside[:, None, :, None], size, size, size)[..., 0][:, :, :, None]  # (B, 1, N, 1, 3C)
        groups = [
            (strips(key, size, size, size), strips(value, size, size, size), near),
            (keys[:, :, :1], values[:, :, :1], real[:, None, :1, None]),
        ]
        if self.random_blocks:
            self.seeds = self.seeds.to(query.device)
            chosen, new = draw(real.any(-1).sum(1), queries.shape[2], self.random_blocks, self.seeds)  # (B, H, N, r)
            picked = [pick(x, chosen) for x in (keys, values)]  # (B, H, N, r C, d)
            known = real[:, None, :, :, None].expand(-1, self.heads, -1, -1, -1)  # (B, H, N, C, 1)
            seen = pick(known, chosen)[..., 0] & new.repeat_interleave(size, 3)  # (B, H, N, r C)
            groups.append((picked[0], picked[1], seen[:, :, :, None]))
        out = blockwise_softmax(queries, groups).flatten(2, 3)[:, :, :length]  # (B, H, L, d)
        first = joint_softmax(query[:, :, :size], [(key, value, layout.mask[:, None, None])])  # (B, H, C, d)
        return torch.cat([first, out[:, :, size:]], dim=2)


def draw(real_blocks: Tensor, blocks: int, count: int, seeds: Tensor) -> tuple[Tensor, Tensor]:
    """For each of N blocks, r random blocks (B, H, N, r) among the real_blocks (B,) of its text, and for each a bool
    (B, H, N, r): True unless the block is seen anyway. seeds (H,), one a head."""
    number = torch.arange(blocks, device=seeds.device)  # (N,)
    mixed = number[:, None] * 0x9E3779B1 + torch.arange(count, device=seeds.device) * 0x85EBCA77 + 0x27D4EB2F
    mixed = mixed + seeds[:, None, None]  # (H, N, r)
    for _ in range(2):  # a hash, because a generator's numbers would depend on how many are drawn
        mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0x7FFFFFFF
    chosen = mixed % real_blocks.clamp(min=1)[:, None, None, None]  # (B, H, N, r)
    new = (chosen != 0) & ((chosen - number[:, None]).abs() > 1)  # (B, H, N, r)
    for r in range(1, count):
        new[..., r] &= (chosen[..., r : r + 1] != chosen[..., :r]).all(-1)
    return chosen, new


def pick(x: Tensor, chosen: Tensor) -> Tensor:
    """The chosen blocks of x (B, H, N, C, n), concatenated: chosen (B, H, N, r) -> (B, H, N, r C, n)."""
    B, H, N, r = chosen.shape
    C, n = x.shape[3:]
    index = chosen.view(B, H, N * r, 1, 1).expand(-1, -1, -1, C, n)
    return x.gather(2, index).view(B, H, N, r * C, n)
