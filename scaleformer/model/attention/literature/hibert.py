"""Attention in two levels: tokens within their segment, segments among each other, and back to the tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from scaleformer.model.attention.base import OwnState
from scaleformer.model.attention.estimates import Extent, doubled
from scaleformer.model.attention.literature.g_transformer import GTransformerAttention
from scaleformer.model.attention.positions import sinusoids
from scaleformer.model.attention.softmax import SoftmaxAttention, fused
from scaleformer.model.attention.state import grow, reorder, room, take_rows
from scaleformer.ops.segments.layout import NO_SEGMENT, SegmentLayout

FIRST_SEGMENTS = 16  # that the tables of a decoding state have room for at first


class SegmentsAttention(SoftmaxAttention):
    """Softmax attention to the states of segments, in a decoder (`earlier`) to those numbered below the query alone."""

    def __init__(self, width: int, heads: int, earlier: bool) -> None:
        super().__init__("cross", width, heads, positions="none")
        self.earlier = earlier

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        if not self.earlier:
            return super().attend(query, key, value, layout)
        before = layout.key_segments[:, None] < layout.query_segments[:, :, None]  # (B, L, N)
        return few(query, key, value, (before & layout.mask[:, None])[:, None])


def few(query: Tensor, key: Tensor, value: Tensor, seen: Tensor) -> Tensor:
    """Softmax attention where `seen` (B, 1, L, S) bool, zeros to a query that sees nothing: (B, H, L, d)."""
    some = seen.any(-1, keepdim=True)  # (B, 1, L, 1)
    return fused(query, key, value, seen | ~some) * some


@dataclass
class HibertState:
    """Decoding state; steps change its tables in place.

    group    of attention within the segment
    tables   keys and values of both attentions to finished segments, (B*K, H, T, d) each
    count    (B*K,) long, how many are finished
    most     of any row
    segment  (B*K,) long, the segment of the last token
    last     (B*K, D), what the summary of that segment is if it ends with this token, but for its position
    """

    group: OwnState
    tables: list[Tensor]
    count: Tensor
    most: int
    segment: Tensor
    last: Tensor

    def reorder(self, rows: Tensor) -> HibertState:
        tables = [take_rows(table, rows, self.most) for table in self.tables]
        group, count, segment, last = (reorder(x, rows) for x in (self.group, self.count, self.segment, self.last))
        return HibertState(group, tables, count, self.most, segment, last)


class HibertAttention(GTransformerAttention):
    """Tokens see their segment, summaries of segments see each other, and tokens see what comes of them:

        a_i = W attention of x_i to the tokens of its segment                       (those so far, in the decoder)
        s_n = x_e + a_e + p_n, e the last token of segment n, p_n sinusoids of its number
        c_n = s_n + W' attention of s_n to s_1 .. s_N                               (s_1 .. s_n)
        out_i = a_i + W" attention of x_i to c_1 .. c_N                             (the segments finished before i)

    Each of the three attentions is softmax with projections of its own. The paper stacks two encoders: layers of words,
    whose state at the end of a sentence is its summary, then layers of sentences; a decoder of words is given the state
    of the sentence that it restores. Here a layer has both levels and the way back, and so do all layers. In the
    decoder nothing is seen of a segment that is not finished but its own tokens so far; the first one sees no other.
    Cost O(L (l + N) d) time for N segments of up to l tokens; L N is the square of the length, divided by that of a
    segment. Memory O(L + N), and in the training of the decoder a mask L x N. Decoding keeps the keys and values of the
    current segment, and four vectors of each finished one: the numbers of training, step by step.
    Source: [Zhang 2019, section 3.1], with positions added to the embeddings. Left out: pre-training by masked
    sentences, and feed-forward layers between the levels.
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    def __init__(self, site: str, width: int, heads: int) -> None:
        super().__init__(site, width, heads, combined=0)
        self.own_segment = False
        self.among = SegmentsAttention(width, heads, earlier=self.causal)
        self.back = SegmentsAttention(width, heads, earlier=self.causal)

    def forward(self, x: Tensor, encoded: Tensor, layout: SegmentLayout) -> Tensor:
        group = super().forward(x, encoded, layout)  # (B, L, D)
        ends = layout.ends()
        last = (x + group).take_along_dim(ends.place[..., None], dim=1)  # (B, N, D)
        summary = last + positions(layout.key_segments.gather(1, ends.place), last)  # (B, N, D)
        order = torch.arange(ends.place.shape[1], device=x.device).expand_as(ends.place)  # (B, N)
        context = summary + self.among(summary, summary, SegmentLayout(order + 1, order, ends.real))  # (B, N, D)
        return group + self.back(x, context, SegmentLayout(ends.number, order, ends.real))  # (B, L, D)

    def init_state(self, encoded: Tensor, key_mask: Tensor, key_segments: Tensor, rows: int) -> HibertState:
        group = super().init_state(encoded, key_mask, key_segments, rows)
        tables = [room(encoded, FIRST_SEGMENTS, rows, self.heads, self.head_width) for _ in range(4)]
        count = torch.zeros(rows, dtype=torch.long, device=encoded.device)
        last = encoded.new_zeros(rows, self.heads * self.head_width)
        return HibertState(group, tables, count, 0, torch.full_like(count, NO_SEGMENT), last)

    def step(self, x: Tensor, position: int, segments: Tensor, state: HibertState) -> tuple[Tensor, HibertState]:
        group, own = super().step(x, position, segments, state.group)  # (B*K, D)
        ended = ((segments > state.segment) & (state.segment != NO_SEGMENT)).nonzero()[:, 0]  # (r,)
        if len(ended):
            self._finish(ended, state)
        out = group
        if state.most:
            seen = torch.arange(state.most, device=x.device) < state.count[:, None]  # (B*K, T)
            key, value = (table[:, :, : state.most] for table in state.tables[2:])  # (B*K, H, T, d)
            query = self.back._split(self.back.query(x[:, None]))  # (B*K, H, 1, d)
            met = few(query, key, value, seen[:, None, None])
            out = group + self.back.output(self.back._merge(met))[:, 0]  # (B*K, D)
        return out, HibertState(own, state.tables, state.count, state.most, segments, x + group)

    def _finish(self, rows: Tensor, state: HibertState) -> None:
        """Put the segments that ended in `rows` (r,) into the tables."""
        place = state.count[rows]  # (r,)
        state.count = state.count.index_add(0, rows, torch.ones_like(rows))
        state.most = max(state.most, int(place.max()) + 1)
        state.tables = [grow(table, state.most, dim=2) for table in state.tables]
        summary = (state.last[rows] + positions(state.segment[rows], state.last))[:, None]  # (r, 1, D)
        query, *pair = self.among._project(summary, self.among.query, self.among.key, self.among.value)
        for table, new in zip(state.tables[:2], pair, strict=True):
            table[rows, :, place] = new[:, :, 0]
        seen = torch.arange(state.most, device=rows.device) <= place[:, None]  # (r, T)
        keys, values = (table[rows, :, : state.most] for table in state.tables[:2])  # (r, H, T, d)
        met = few(query, keys, values, seen[:, None, None])  # (r, H, 1, d)
        context = summary + self.among.output(self.among._merge(met))  # (r, 1, D)
        for table, new in zip(
            state.tables[2:], self.back._project(context, self.back.key, self.back.value), strict=True
        ):
            table[rows, :, place] = new[:, :, 0]

    def later_bytes(self, gained: int, documents: int, rows: int, extent: Extent, size: int) -> int:
        """As of the base class, for texts of no more segments than the source has."""
        slots = doubled(FIRST_SEGMENTS, extent.segments)
        tables = 4 * rows * (slots - FIRST_SEGMENTS) * self.heads * self.head_width * size
        return tables + super().later_bytes(gained, documents, rows, extent, size)


def positions(segments: Tensor, like: Tensor) -> Tensor:
    """The sinusoids of numbers of segments (...,): (..., D)."""
    return sinusoids(segments.flatten(), like.shape[-1]).to(like.dtype).unflatten(0, segments.shape)
