"""Whole segments packed into short rows, for layers that see the own segment alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.segments.layout import SegmentLayout

ROW = 64  # tokens; a longer segment goes into rows of twice, four times, ... as many
_OPEN = 32  # rows that still take segments: it bounds the time of packing
_FEWEST = 4  # a row with less room than this is full


class Packed(NamedTuple):
    """Where the tokens of texts (B, L) stand in packed rows, which form groups of one length each.

    layouts  of the groups: segments (m, T) of the queries, segments and masks of their keys
    token    (N,) the token that stands in each place of all groups, and whether there is one (N,)
    place    (B L,) the place of each token, and whether it has one (B L,)
    """

    layouts: Sequence[SegmentLayout]
    shapes: Sequence[tuple[int, int]]
    token: tuple[Tensor, Tensor]
    place: tuple[Tensor, Tensor]

    def split(self, x: Tensor) -> list[Tensor]:
        """x (B, L, D) -> its groups, (m, T, D) each; zeros in places without a token"""
        rows: Tensor = _Taken.apply(x.flatten(0, 1), *self.token, *self.place)
        return _cut(rows, self.shapes)

    def join(self, parts: Sequence[Tensor], like: Tensor) -> Tensor:
        """The inverse, (B, L, D) as `like`; zeros for tokens without a place"""
        rows: Tensor = _Taken.apply(torch.cat([part.flatten(0, 1) for part in parts]), *self.place, *self.token)
        return rows.view_as(like)


class _Taken(torch.autograd.Function):
    """Rows by their index, zeros where there is none. Backward gathers by the inverse and needs no scatter-add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, is_there: Tensor, back: Tensor, was_there: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(back, was_there)
        return _take(x, index, is_there)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return _take(grad, *ctx.saved_tensors), None, None, None, None


def _take(x: Tensor, index: Tensor, is_there: Tensor) -> Tensor:
    return x.index_select(0, index).masked_fill_(~is_there[:, None], 0.0)


def pack_segments(layout: SegmentLayout, query_mask: Tensor) -> tuple[Packed, Packed]:
    """The segments of the queries in packed rows, and the keys of each beside it; computed once for a layout.

    query_mask  (B, L_Q) bool, True for a real token
    """
    return layout.derived("packed", lambda: _pack(layout, query_mask))


def _pack(layout: SegmentLayout, query_mask: Tensor) -> tuple[Packed, Packed]:
    masks = query_mask, layout.mask
    known = [x.masked_fill(~m, 0) for x, m in zip((layout.query_segments, layout.key_segments), masks, strict=True)]
    total = 1 + max(int(x.amax()) for x in known)
    texts = total * torch.arange(len(known[0]))[:, None]  # segments of two texts get numbers of their own
    owners = [(x + texts)[mask] for x, mask in zip(known, masks, strict=True)]  # of each real token
    segments = owners[0].unique_consecutive()
    counts = [owner.bincount(minlength=total * len(texts))[segments] for owner in owners]
    order, row, shapes = _fill_rows(torch.stack(counts, 1).tolist())
    segments, begins = segments[order], row.diff(prepend=row[:1] - 1) > 0
    number = _since(begins)  # of each segment in its row
    of = torch.full((total * len(texts),), -1)
    of[segments] = torch.arange(len(segments))
    sides = []
    for side in (0, 1):
        lengths = [(rows, size[side]) for rows, size in shapes]
        starts = torch.cat([torch.full((rows,), size) for rows, size in lengths])
        starts = starts.cumsum(0) - starts  # the first place of each row
        before = counts[side][order].cumsum(0) - counts[side][order]
        first = starts[row] + before - torch.where(begins, before, 0).cummax(0).values  # place of its first token
        owner = of[owners[side]]
        index = torch.nonzero(masks[side].flatten())[:, 0][owner >= 0]  # the tokens that get a place
        owner = owner[owner >= 0]
        stands = first[owner] + _since(owner.diff(prepend=owner[:1] - 1) != 0)
        places, tokens = sum(rows * size for rows, size in lengths), masks[side].numel()
        token, place, numbers = (torch.zeros(n, dtype=torch.long) for n in (places, tokens, places))
        token[stands], place[index], numbers[stands] = index, stands, number[owner]
        held, placed = (torch.zeros(n, dtype=torch.bool) for n in (places, tokens))
        held[stands], placed[index] = True, True
        sides.append((Packed([], lengths, (token, held), (place, placed)), _cut(numbers, lengths), _cut(held, lengths)))
    (own, segments_q, mask_q), (other, segments_k, mask_k) = sides
    alone = [SegmentLayout(x, x, mask) for x, mask in zip(segments_q, mask_q, strict=True)]
    beside = [SegmentLayout(*x) for x in zip(segments_q, segments_k, mask_k, strict=True)]
    return own._replace(layouts=alone), other._replace(layouts=beside)


def _since(begins: Tensor) -> Tensor:
    """How many places ago the last of `begins` (n,) stands."""
    index = torch.arange(len(begins))
    return index - torch.where(begins, index, 0).cummax(0).values


def _cut(x: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    parts = x.split([rows * length for rows, length in shapes])
    return [part.unflatten(0, shape) for part, shape in zip(parts, shapes, strict=True)]


def _fill_rows(sizes: list[list[int]]) -> tuple[Tensor, Tensor, list[tuple[int, tuple[int, int]]]]:
    """The order of segments of so many queries and keys by row, each one's row, and for each group its rows and their
    length in queries and in keys. The longest first, each into the first row with room for it."""
    rows: list[list[int]] = []
    groups = []
    room: list[tuple[int, int, int]] = []  # of the rows that take more: queries, keys, number
    widths = [max(size) for size in sizes]
    limit = 0
    for segment in sorted(range(len(sizes)), key=lambda n: -widths[n]):
        queries, keys = sizes[segment]
        fits = max(ROW, 1 << (widths[segment] - 1).bit_length())
        if fits != limit:
            limit, room = fits, []
            groups.append(len(rows))
        place = next((n for n, (q, k, _) in enumerate(room) if q >= queries and k >= keys), None)
        if place is None:
            room.append((limit, limit, len(rows)))
            rows.append([])
            place = len(room) - 1
        q, k, row = room[place]
        rows[row].append(segment)
        room[place] = q - queries, k - keys, row
        if min(q - queries, k - keys) < _FEWEST or len(room) > _OPEN:
            del room[place if min(q - queries, k - keys) < _FEWEST else 0]
    lengths = [tuple(sum(sizes[n][side] for n in row) for side in (0, 1)) for row in rows]
    shapes = []
    for first, end in zip(groups, [*groups[1:], len(rows)], strict=True):
        q, k = (max(length[side] for length in lengths[first:end]) for side in (0, 1))
        shapes.append((end - first, (q, max(k, 1))))
    order = torch.tensor([segment for row in rows for segment in row])
    return order, torch.arange(len(rows)).repeat_interleave(torch.tensor([len(row) for row in rows])), shapes
