"""The layout of segments: dense segment numbers (slots), and positions cut into pieces of one segment each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.segments.gate import far_scale, look_up
from scaleformer.ops.segments.layout import cut_segments

_CHUNKS = (8, 16, 24, 32, 48, 64, 96, 128)


@dataclass(frozen=True)
class Slots:
    """The distinct segment numbers of a row, of queries and keys together, in order: one slot each, S in all.

    number  (B, S) long, never decreasing; the missing slots of a shorter row have the number after its last
    query   (B, L_Q) long, the slot of each query
    key     (B, L_K) long, the slot of each key
    scale   (B, S) the scale of far keys, as seen from each slot
    block   T, a divisor of S, at least G
    """

    number: Tensor
    query: Tensor
    key: Tensor
    scale: Tensor
    block: int

    def weigh(self, gate: Tensor, distance: Tensor, scale: Tensor) -> Tensor:
        """w(x) (B, H, ...) of distances x (B, ...) in segments; scale applies to far keys."""
        reach = gate.shape[1] // 2
        factor = torch.where(distance.abs() >= reach, scale, 1.0)
        return look_up(gate, distance.clamp(-reach, reach) + reach) * factor[:, None]


def make_slots(
    queries: Tensor, keys: Tensor, real: Tensor | None, reach: int, far_tokens: float, causal: bool, dtype: torch.dtype
) -> Slots:
    """Slots of clean segments (B, L_Q), (B, L_K); real (B, L_K) bool, or None if all keys are real."""
    block = max(16, reach)
    values = torch.cat([queries, keys], dim=1).sort(1).values  # (B, L_Q + L_K)
    slot = functional.pad((values.diff(dim=1) != 0).cumsum(1), (1, 0))
    count = int(slot[:, -1].max()) + 1
    number = (values[:, -1:] + 1).repeat(1, count + -count % block)
    number.scatter_(1, slot, values)
    query, key = torch.searchsorted(number, queries), torch.searchsorted(number, keys)
    real = torch.ones_like(key) if real is None else real.long()
    sizes = torch.zeros_like(number).scatter_add_(1, key, real)  # (B, S)
    before = functional.pad(sizes.cumsum(1), (1, 0))  # (B, S+1), real keys before each slot
    far = before.gather(1, torch.searchsorted(number, number - reach, right=True))
    if not causal:
        far = far + before[:, -1:] - before.gather(1, torch.searchsorted(number, number + reach))
    return Slots(number, query, key, far_scale(far, far_tokens, dtype), block)


@dataclass(frozen=True)
class Pieces:
    """A sequence cut into N pieces, at most C positions long.

    positions  (B, N, C) long; arbitrary past the end of a piece
    valid      (B, N, C) bool, whether the position belongs to the piece
    place      (B, L) long, the place of each position among the N C places
    slot       (B, N) long, the slot of its queries or, where only keys are cut, of its keys
    key_slot   (B, N) long, the slot of its keys
    one_each   whether in every row piece n is the whole of slot n
    """

    positions: Tensor
    valid: Tensor
    place: Tensor
    slot: Tensor
    key_slot: Tensor
    one_each: bool

    def valid_in(self, heads: int) -> Tensor:
        return self.valid.repeat_interleave(heads, 0)[..., None]  # (X, N, C, 1)

    def _rows(self, slot: Tensor, slots: int, heads: int) -> Tensor:
        row = torch.arange(slot.shape[0] * heads, device=slot.device)[:, None] * slots
        return (slot.repeat_interleave(heads, 0) + row).flatten()  # (X N,)

    def sum_by_slot(self, x: Tensor, slots: int, heads: int) -> Tensor:
        """The sums (X, S, F) over the pieces x (X, N, F) of each slot."""
        if self.one_each:
            return x
        out = x.new_zeros(x.shape[0] * slots, x.shape[2])
        index = self._rows(self.key_slot, slots, heads)
        return out.index_add_(0, index, x.flatten(0, 1)).view(x.shape[0], slots, -1)

    def take_by_slot(self, x: Tensor, heads: int) -> Tensor:
        """The rows (X, N, F) of x (X, S, F), by the slot of each piece."""
        if self.one_each:
            return x
        index = self._rows(self.slot, x.shape[1], heads)
        return x.flatten(0, 1).index_select(0, index).view(x.shape[0], -1, x.shape[2])

    def earlier_in_slot(self, x: Tensor, heads: int) -> Tensor | None:
        """Sums (X, N, F) of x over the earlier pieces of the same slot; None if no slot has two pieces."""
        slot = self.key_slot
        number = torch.arange(slot.shape[1], device=slot.device)
        nth = number - torch.searchsorted(slot, slot)  # (B, N), number of earlier pieces of the slot
        most = int((nth * self.valid.any(2)).max())
        if most == 0:
            return None
        nth = nth.repeat_interleave(heads, 0)[..., None]  # (X, N, 1)
        sums, step = _shift(x, 1) * (nth >= 1), 1
        while step < most:  # doubling: one pass for each power of two
            sums = sums + _shift(sums, step) * (nth > step)
            step *= 2
        return sums


def _shift(x: Tensor, step: int) -> Tensor:
    return functional.pad(x, (0, 0, step, -step))


def cut_pieces(slots: Slots, what: str, width: int) -> Pieces:
    """Cut `keys` or `queries` where their slot changes, or `both` where either does; width is the head width d."""
    slot = slots.key if what == "keys" else slots.query
    borders = slot.diff(dim=1) != 0
    if what == "both":
        borders |= slots.key.diff(dim=1) != 0
    cells = functional.pad(borders.cumsum(1), (1, 0))  # (B, L)
    chunk = _best_chunk(cells, width)
    found = cut_segments(cells, chunk)
    batch, length = cells.shape
    missing = max(slots.number.shape[1] - found.start.shape[1], 0)
    start = functional.pad(found.start, (0, missing), value=length)  # (B, N)
    positions, valid = (functional.pad(x, (0, 0, 0, missing)) for x in (found.positions, found.valid))  # (B, N, C)
    target = torch.arange(valid[0].numel(), device=cells.device).expand(batch, -1)
    taken = positions.masked_fill(~valid, length).flatten(1)  # (B, N C)
    place = cells.new_zeros(batch, length + 1).scatter_(1, taken, target)[:, :-1]  # (B, L)
    start = start.clamp(max=length - 1)
    own, keys = slot.gather(1, start), (slots.key if what == "both" else slot).gather(1, start)
    number = torch.arange(own.shape[1], device=own.device)
    used = valid.any(2)
    one_each = own.shape[1] == slots.number.shape[1] and all(bool(((x == number) | ~used).all()) for x in (own, keys))
    return Pieces(positions, valid, place, own, keys, one_each)


def _best_chunk(cells: Tensor, width: int) -> int:
    """The best maximum length C of a piece, by its cost: C places with C scores each, and one matrix."""
    row = torch.arange(cells.shape[0], device=cells.device)[:, None] * cells.shape[1]
    lengths = torch.unique_consecutive((cells + row).flatten(), return_counts=True)[1]
    longest = int(lengths.max())
    even = {-(-longest // parts) for parts in range(1, 5)}  # divides equal segments without empty places
    sizes = torch.tensor([c for c in even.union(_CHUNKS) if c <= min(longest, _CHUNKS[-1])], device=cells.device)
    pieces = (-(-lengths // sizes[:, None])).sum(1)  # (sizes,)
    return int(sizes[(pieces * (sizes * (80 + sizes) + 30 * width)).argmin()])


def to_pieces(x: Tensor, pieces: Pieces) -> Tensor:
    """x (B, H, L, n) by pieces: (X, N, C, n); arbitrary past the end of a piece."""
    out: Tensor = _ToPieces.apply(x, pieces)
    return out


def from_pieces(x: Tensor, pieces: Pieces) -> Tensor:
    """x (X, N, C, n) by position: (X, L, n)."""
    out: Tensor = _FromPieces.apply(x, pieces)
    return out


def _take(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x (X, L, n) by index (B, M): (X, M, n)."""
    rows, length, size = x.shape
    index = index.repeat_interleave(rows // index.shape[0], 0)
    flat = index + torch.arange(rows, device=x.device)[:, None] * length
    return x.reshape(-1, size).index_select(0, flat.flatten()).view(rows, -1, size)


class _ToPieces(torch.autograd.Function):
    """Each position has one place, so that the backward pass gathers rows too, without a scatter-add."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pieces: Pieces) -> Tensor:  # type: ignore[override]
        ctx.pieces, ctx.shape = pieces, x.shape
        return _take(x.flatten(0, 1), pieces.positions.flatten(1)).unflatten(1, pieces.positions.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return _take(grad.flatten(1, 2), ctx.pieces.place).view(ctx.shape), None


class _FromPieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, pieces: Pieces) -> Tensor:  # type: ignore[override]
        ctx.pieces = pieces
        return _take(x.flatten(1, 2), pieces.place)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        pieces = ctx.pieces
        out = _take(grad, pieces.positions.flatten(1)).unflatten(1, pieces.positions.shape[1:])
        return out.mul_(pieces.valid_in(out.shape[0] // pieces.valid.shape[0])), None
