"""Softmax attention to a window and to a global token of each segment, with relative positions."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from scaleformer.model.attention.options import relative_embedding
from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.ops.common.relative_positions import relative_scores
from scaleformer.ops.segments.layout import SegmentEnds, SegmentLayout, take_positions
from scaleformer.ops.softmax.windowed import BLOCK_SCORES, chunks, hide, mix, strips
from scaleformer.system.schema import Positive


class EtcAttention(SoftmaxAttention):
    """out_i = sum_j softmax_j(Q_i . (K_j + P_label(i,j)) / sqrt(d)) V_j, where each segment has one global token.

        i         j         sees                  label
        long      long      |j - i| <= radius     the distance j - i, clipped to -R .. R
        long      global    all of them           whether j is the global token of i's segment
        global    long      all of them           whether j is a token of i's segment
        global    global    all of them           the distance in segments, clipped to -R .. R

    Global tokens of the paper are added to the text. Here the last token of a segment is its global token: `<sep>` in
    a source, which stands for no word and has its own states in all layers, as theirs have. So no layer needs a second
    text, and what the paper shares between the two by default in its code is shared: projections and feed-forward.
    Cost O(L (radius + N) d) time and O(L (radius + N)) memory for N segments: linear in length for a number of segments
    that is fixed, and a matrix L x N for one that grows.
    Source: [Ainslie 2020, section 3], with labels as in [Shaw 2018], of each of the four kinds of pairs its own.
    Left out: pre-training by contrastive prediction, and projections that the two kinds of tokens do not share.

    radius   in tokens
    horizon  R
    hard     whether a global token sees, of the long ones, those of its segment alone ("hard g2l")
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder",)
    absolute_positions: ClassVar[bool] = False

    def __init__(
        self, site: str, width: int, heads: int, radius: Positive = 84, horizon: Positive = 12, hard: bool = False
    ) -> None:
        super().__init__(site, width, heads)
        self.radius, self.hard = radius, hard
        self.relative_embedding = relative_embedding(heads, horizon, self.head_width)
        self.segment_embedding = relative_embedding(heads, horizon, self.head_width)
        # from long to global and back: of the same segment, of another one
        self.belonging = nn.Parameter(0.1 * torch.randn(2, heads, 2, self.head_width))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        ends, real = layout.ends(), layout.mask
        query = query * self.head_width**-0.5
        key, value = (x.masked_fill(~real[:, None, :, None], 0.0) for x in (key, value))
        few = [take_positions(x, ends.place) for x in (query, key, value)]  # (B, H, N, d) each
        others = real & ~ends.last  # (B, L), the long ones
        out = self._from_long(query, key, value, others, few, ends)  # (B, H, L, d)
        everywhere = take_positions(self._from_global(key, value, others, few, ends), ends.number)  # (B, H, L, d)
        return torch.where(ends.last[:, None, :, None], everywhere, out)

    def _from_long(
        self, query: Tensor, key: Tensor, value: Tensor, others: Tensor, few: list[Tensor], ends: SegmentEnds
    ) -> Tensor:
        """query (B, H, L, d), scaled, key and value; others (B, L) bool -> (B, H, L, d), wrong at global tokens."""
        length = query.shape[2]
        radius = min(self.radius, length)
        _, few_keys, few_values = (x[:, :, None] for x in few)  # (B, H, 1, N, d)
        near_queries = chunks(query, radius)  # (B, H, M, C, d)
        around = [strips(x, radius, radius, radius) for x in (key, value, others[:, None, :, None])]  # (B, H, M, W, ..)
        numbers = chunks(ends.number[:, None, :, None], radius)  # (B, 1, M, C, 1)
        width, count = 3 * radius, few_keys.shape[3]
        distance = torch.arange(width, device=query.device) - radius
        within = (distance - torch.arange(radius, device=query.device)[:, None]).abs() <= radius  # (C, W)
        known = ends.real[:, None, None, None]  # (B, 1, 1, 1, N)
        size = max(1, BLOCK_SCORES // (query[:, :, 0, 0].numel() * radius * (width + count)))
        parts = (x.split(size, 2) for x in (near_queries, *around, numbers))
        blocks = []
        for q, k, v, seen, number in zip(*parts, strict=True):  # m chunks
            by_distance = q @ self.relative_embedding[:, None].mT.to(q.dtype)  # (B, H, m, C, 2R+1)
            near = q @ k.mT + relative_scores(by_distance, width, first=radius)  # (B, H, m, C, W)
            own = number == torch.arange(count, device=q.device)  # (B, 1, m, C, N)
            far = q @ few_keys.mT + self._belongs(q, 0, own)  # (B, H, m, C, N)
            blocks.append(mix([hide(near, seen.mT & within), hide(far, known)], [v, few_values]))
        return torch.cat(blocks, dim=2).flatten(2, 3)[:, :, :length]

    def _from_global(self, key: Tensor, value: Tensor, others: Tensor, few: list[Tensor], ends: SegmentEnds) -> Tensor:
        """Of the global tokens, (B, H, N, d)."""
        queries, few_keys, few_values = few
        count, blocks, first = queries.shape[2], [], 0
        size = max(1, BLOCK_SCORES // (queries[:, :, 0, 0].numel() * (key.shape[2] + count)))
        for q in queries.split(size, 2):  # n global tokens
            own = ends.number[:, None, None] == first + torch.arange(q.shape[2], device=q.device)[:, None]
            seen = others[:, None, None] & own if self.hard else others[:, None, None]  # (B, 1, n or 1, L)
            long = q @ key.mT + self._belongs(q, 1, own)  # (B, H, n, L)
            by_distance = q @ self.segment_embedding.mT.to(q.dtype)  # (B, H, n, 2R+1)
            among = q @ few_keys.mT + relative_scores(by_distance, count, first=first)  # (B, H, n, N)
            blocks.append(mix([hide(long, seen), hide(among, ends.real[:, None, None])], [value, few_values]))
            first += q.shape[2]
        return torch.cat(blocks, dim=2)

    def _belongs(self, query: Tensor, direction: int, own: Tensor) -> Tensor:
        """The scores of the two labels, by whether it is the query's own segment: query (B, H, ..., d), own
        (B, 1, ..., S) bool -> (B, H, ..., S)."""
        table = self.belonging[direction].mT.to(query.dtype)  # (H, d, 2)
        same, other = (query @ table.view(-1, *[1] * (query.dim() - 4), *table.shape[1:])).split(1, dim=-1)
        return torch.where(own, same, other)
