"""Softmax attention from fine to coarse: near tokens one by one, farther ones in spans that double in length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from scaleformer.model.attention.estimates import Held
from scaleformer.model.attention.softmax import SoftmaxAttention, fused
from scaleformer.model.attention.state import KeyValueCache, room
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.windowed import blockwise_softmax, chunks
from scaleformer.system.schema import Natural, Positive

CHUNK = 64  # queries that share their keys in `attend`
NEVER = -1e4  # weight of a pad in its span: its exponential is zero in any precision
Number = TypeVar("Number", int, Tensor)


class BPTransformerAttention(SoftmaxAttention):
    """out_i = sum_n softmax_n(Q_i . k_n / sqrt(d)) v_n over the spans n that i sees in a binary tree over the text.

    Span m of level l is the tokens from m 2^l to (m + 1) 2^l - 1. With a_j = u . K_j / sqrt(d), its key and value are

        k_n = sum_j softmax_j(a_j) K_j      v_n = sum_j softmax_j(a_j) V_j      over its tokens j that are no pads

    To either side i sees the nearest `near` spans of each level, or one more where only that ends at a border of the
    next level, which goes on from there. So each token is seen once, alone or in a span, up to near (2^(levels+1) - 1)
    tokens away at least. i itself is the nearest to its left. The decoder sees nothing to the right.
    Cost O(L near log L d) time, O(L (d + near) log L) memory; decoding keeps 2 near + 2 spans a level, however long the
    text. Source: [Ye 2019, section 3], with positions added to the embeddings. Left out: relative positions, and the
    states of spans, which a layer hands to the next one; the learned u, at first zero, takes the place of their query.

    near    k, spans of each level to either side
    levels  doublings of the length; what is farther than the spans of the last level is not seen
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    held: ClassVar[Held] = Held(tiles=700, aside=1)

    def __init__(self, site: str, width: int, heads: int, near: Positive = 4, levels: Natural = 16) -> None:
        super().__init__(site, width, heads)
        self.near, self.levels = near, levels
        self.ring = 2 * near + 2  # the spans of a level from the first one that a step sees to the last one written
        self.salience = nn.Parameter(torch.zeros(heads, self.head_width))  # u

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        length, width, real = query.shape[2], value.shape[3], layout.mask
        key, value = (x.masked_fill(~real[:, None, :, None], 0.0) for x in (key, value))
        spans = torch.cat([value, self.weighted(key)], -1)  # (B, H, L, 2d + 1), if values are as wide as keys
        tree, known = [spans], [real]
        while len(tree) <= self.levels and spans.shape[2] > 1:
            pairs = chunks(real[..., None], 2)[..., 0]  # (B, M, 2), M spans
            spans, real = merge(chunks(spans, 2), pairs[:, None]), pairs.any(-1)  # (B, H, M, 2d + 1), (B, M)
            tree.append(spans)
            known.append(real)
        arguments = self.near, self.causal, [x.shape[2] for x in tree]
        index, seen = layout.derived(  # (N, W), (N, C, W)
            ("bp_transformer", *arguments[:2], len(tree)),
            lambda: [x.to(query.device) for x in plan(length, *arguments)],
        )
        gathered = torch.cat(tree, 2)[:, :, index].to(value.dtype)  # (B, H, N, W, 2d + 1)
        mask = torch.cat(known, 1)[:, None, index][:, :, :, None] & seen  # (B, 1, N, C, W)
        group = (gathered[..., width:-1], gathered[..., :width], mask)
        return blockwise_softmax(chunks(query, CHUNK), [group]).flatten(2, 3)[:, :, :length]  # (B, H, L, d)

    def weighted(self, key: Tensor) -> Tensor:
        """Keys (B, H, L, d), each with its log weight at the end: (B, H, L, d + 1), in fp32 at least."""
        key = key.to(torch.promote_types(key.dtype, torch.float32))
        weight = (key * self.salience[:, None]).sum(-1, keepdim=True) * self.head_width**-0.5  # (B, H, L, 1)
        return torch.cat([key, weight], -1)

    def empty_state(self, rows: int, like: Tensor) -> KeyValueCache:
        like, size, d = like.to(torch.promote_types(like.dtype, torch.float32)), self.ring, self.head_width
        count = (self.levels + 1) * size  # a ring a level
        key, value = (room(like, count, rows, self.heads, n) for n in (d + 1, d))  # (B*K, H, T, d + 1), (B*K, H, T, d)
        return KeyValueCache(key, value, count)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        d, written, slots = self.head_width, position + 1, []
        node = torch.cat([value, self.weighted(key[:, :, None])[:, :, 0]], -1)  # (B*K, H, 2d + 1)
        for level in range(self.levels + 1):
            if written % 2**level:
                break
            number = written // 2**level - 1
            if level:
                pair = [self.slot(level - 1, 2 * number + n) for n in (0, 1)]
                node = merge(torch.cat([state.value[:, :, pair], state.key[:, :, pair]], -1))  # (B*K, H, 2d + 1)
            place = self.slot(level, number)
            state.value[:, :, place], state.key[:, :, place] = node[..., :d], node[..., d:]
        for level, (first, end, _, _) in enumerate(borders(position, self.near, self.levels + 1)):
            slots += [self.slot(level, number) for number in range(first, end)]
        keys, values = (x[:, :, slots, :d].to(query.dtype) for x in (state.key, state.value))  # (B*K, H, W, d)
        return fused(query[:, :, None], keys, values)[:, :, 0], state  # (B*K, H, d)

    def slot(self, level: int, number: int) -> int:
        return level * self.ring + number % self.ring


def merge(pairs: Tensor, real: Tensor | None = None) -> Tensor:
    """Spans (..., 2, 2d + 1), each its value, its key and its log weight -> those that they make up, (..., 2d + 1).

    real (..., 2) bool: whether there is a token in the span that is no pad; None if so in all.
    """
    weights = pairs[..., -1]  # (..., 2)
    if real is not None:
        weights = weights.masked_fill(~real, NEVER)
    mean = (weights.softmax(-1)[..., None] * pairs[..., :-1]).sum(-2)  # (..., 2d)
    return torch.cat([mean, weights.logsumexp(-1, keepdim=True)], -1)  # (..., 2d + 1)


def borders(position: Number, near: int, levels: int) -> Iterator[tuple[Number, Number, Number, Number]]:
    """Of each level the first span seen to the left and the one after its last, then those to the right."""
    end = begin = position + 1
    for _ in range(levels):
        first, last = (end - near) * (end > near), begin + near
        first, last = first - first % 2, last + last % 2
        yield first, end, begin, last
        end, begin = first // 2, last // 2


def plan(length: int, near: int, causal: bool, sizes: list[int]) -> tuple[Tensor, Tensor]:
    """Which spans the chunks of queries read, (N, W) long, and which of them a query sees, (N, C, W) bool.

    sizes   spans of each level; they are numbered level by level
    """
    position = torch.arange(length + -length % CHUNK).view(-1, CHUNK)  # (N, C)
    indices, masks, before = [], [], 0
    for size, (first, end, begin, last) in zip(sizes, borders(position, near, len(sizes)), strict=True):
        low, high = first.amin(1), (end if causal else last).amax(1).clamp(max=size)  # (N,)
        number = low[:, None] + torch.arange(max(0, int((high - low).amax())))  # (N, W)
        one = number[:, None]  # (N, 1, W)
        seen = (one >= first[..., None]) & (one < end[..., None])  # (N, C, W)
        if not causal:
            seen |= (one >= begin[..., None]) & (one < last[..., None])
        indices.append(before + number.clamp(max=size - 1))
        masks.append(seen & (one < size))
        before += size
    return torch.cat(indices, 1), torch.cat(masks, 2)
