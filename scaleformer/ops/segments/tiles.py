"""Where segments lie, for hybrid attention: numbers without gaps, and for each tile of queries a window of keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.segments.gate import far_scale
from scaleformer.ops.segments.layout import clean_segments

BLOCK = 32  # keys are read in blocks of so many
_MOST_QUERIES = 64
_ALIKE = 0.75  # how much narrower than the widest a window may be that is worked on with it
# How many scores are worked on together: enough that calls of operators cost little beside them; they bound memory.
SCORE_NUMBERS = {"cpu": 1 << 20, "cuda": 1 << 25}
_NO_KEY = -(1 << 62)

P = TypeVar("P")


def check_near(near: int, log_gate: Tensor) -> None:
    """Raise ValueError unless 0 <= near < G, log_gate (H, 2G+1)."""
    reach = log_gate.shape[1] // 2
    if not 0 <= near < reach:
        raise ValueError(f"near is {near}: it must be at least 0 and below the reach of log_gate, {reach} segments")


class Numbers(NamedTuple):
    """Segment numbers from 0 on, shared by queries (B, L_Q) and keys (B, L_K): no gap is wider than G.

    total   how many numbers there are, the most of any row
    """

    queries: Tensor
    keys: Tensor
    total: int


def number_segments(
    query_segments: Tensor, key_segments: Tensor, key_mask: Tensor | None, causal: bool, reach: int
) -> Numbers:
    """Numbers that never fall, whatever the pads hold. At G and beyond all distances are one, so wide gaps close."""
    queries, keys = clean_segments(query_segments, key_segments, key_mask, causal)
    together, order = torch.cat([queries, keys], dim=1).sort(dim=1)  # (B, L_Q + L_K)
    steps = together.diff(dim=1, prepend=together[:, :1]).clamp(max=reach)
    numbers = torch.empty_like(together).scatter_(1, order, steps.cumsum(1))  # (B, L_Q + L_K)
    length = queries.shape[1]
    return Numbers(numbers[:, :length].contiguous(), numbers[:, length:].contiguous(), int(numbers.max()) + 1)


class Step(NamedTuple):
    """m tiles worked on together.

    tiles     (m,) their numbers
    blocks    (m, W / 32) the blocks of keys of each window, among the P + 2 of all rows one after the other; the first
              of a row where a window goes beyond what is there
    slot      (m, S, W) 1 where a key is in a slot: a segment of the window; the last slot is that of hidden keys
    distance  (m, T, S) from a query to a slot in segments, G added; 2G + 1 for the last slot
    width     W, keys of a window
    ahead     how many of these stand before the first query of the tile; only where positions count
    edges     the ranges of blocks of the windows, from and up to, with all keys that are far from any of the queries
    """

    tiles: Tensor
    blocks: Tensor
    slot: Tensor
    distance: Tensor
    width: int
    ahead: int
    edges: list[tuple[int, int]]


@dataclass(frozen=True)
class TilePlan:
    """M tiles of T queries; each row of keys has P blocks, and an empty one on either side.

    queries        T
    blocks         P + 2
    before, after  (M,) what stands before the window of a tile: all blocks of its row up to this one, itself not among
                   them; what stands after it: all blocks after this one
    scale          (M, T, 1) what the keys at |x| >= G weigh; None where there is nothing but near segments
    outside        whether any key lies outside of the window of any tile
    """

    steps: list[Step]
    queries: int
    blocks: int
    before: Tensor
    after: Tensor
    scale: Tensor | None
    outside: bool
    near: int
    causal: bool


def plan_tiles(
    numbers: Numbers,
    real: Tensor | None,
    near: int,
    reach: int,
    causal: bool,
    horizon: int | None,
    far_tokens: float,
    heads: int,
    dtype: torch.dtype,
    hold_horizon: bool = False,
) -> TilePlan:
    """The plan for keys of which `real` (B, L_K) bool, or None, tells pads; `horizon` R is None if no positions count.

    The window of a tile holds the segments less than G from any of its queries, or, where nothing is far, those near;
    and, where positions count, there is room for at least the R - 1 places before its first query and after its last
    one; with `hold_horizon` it holds the keys in these places, too, whatever their segment.
    """
    keys, device = numbers.keys, numbers.keys.device
    batch, length = keys.shape
    far = numbers.total > near + 1
    reaching = reach - 1 if far else near
    size = min(_MOST_QUERIES, -(-numbers.queries.shape[1] // BLOCK) * BLOCK)
    shift = (numbers.total + 2 * reach) * torch.arange(batch, device=device)[:, None]  # no two rows share a code
    query_codes = fill_up(numbers.queries + shift, size)  # (B, tiles, T)
    tiles = query_codes.shape[1]
    query_codes = query_codes.flatten(0, 1)  # (M, T)
    base, top = query_codes[:, 0] - reaching, query_codes[:, -1] + reaching  # (M,)
    codes = keys + shift  # (B, L_K), never falling from row to row
    tile = torch.arange(len(query_codes), device=device)
    row, start = tile // tiles, tile % tiles * size

    def place(code: Tensor, right: bool = False) -> Tensor:
        return torch.searchsorted(codes.flatten(), code, right=right) - row * length  # (M,), in the row

    first, end = place(base), place(top, right=True)  # (M,)
    inner = place(query_codes[:, -1] - near), place(query_codes[:, 0] + near, right=True)  # near to a whole tile
    if causal:
        end = torch.minimum(end, start + size)
    if real is not None:  # pads at the end of a row are no keys worth reading
        last = (real * torch.arange(1, length + 1, device=device)).amax(1)  # (B,)
        end = torch.minimum(end, last[row])
    low = torch.minimum(first, end) // BLOCK  # (M,), the window: the blocks from this one
    high = torch.maximum((end + BLOCK - 1) // BLOCK, low)  # up to this one, itself not among them
    if causal or horizon is not None:  # a window is what stands before, in and after the tile
        begin, own, margin = start // BLOCK, size // BLOCK, -(-max((horizon or 1) - 1, 0) // BLOCK)
        # A tile beyond the last key and the horizon may stand anywhere there; so far out as it is, its window would
        # reach back over all pads between.
        stop = torch.full_like(row, length) if real is None else last[row]
        begin = torch.minimum(begin, -(-stop // BLOCK) + margin)
        if hold_horizon:
            low = torch.minimum(low, begin - margin).clamp(min=0)
            if not causal:
                high = torch.maximum(high, (begin + own + margin).clamp(max=-(-length // BLOCK)))
        before = (begin - low).clamp(min=margin)
        behind = (high - begin - own).clamp(min=0 if causal else margin)
    else:
        begin, own, before, behind = low, 0, torch.zeros_like(low), (high - low).clamp(min=1)
    order = (before + behind).argsort(descending=True)
    most = SCORE_NUMBERS.get(device.type, SCORE_NUMBERS["cuda"]) // (heads * size * BLOCK)
    count = -(-length // BLOCK)
    outside = (low > 0).any() if causal else (low > 0).any() | (high < count).any()
    edges = [x - begin * BLOCK for x in inner]  # counted from the first query
    asked = torch.stack([before, behind, top - base + 1, *edges, outside.expand_as(low)])[:, order]
    *sides, lefts, rights, outside = asked.tolist()
    key_codes = fill_up(codes if real is None else codes.masked_fill(~real, _NO_KEY), BLOCK, _NO_KEY)  # (B, P, 32)
    key_codes = functional.pad(key_codes, (0, 0, 1, 1), value=_NO_KEY).flatten(0, 1)  # (B (P + 2), 32)
    found = _Tiles(row * (count + 2), query_codes, base, begin, low, high, key_codes)
    steps = []
    for chosen, ahead, width, slots in _together(sides, own, most):
        after = width * BLOCK if causal else min(rights[chosen])  # nothing later is visible in causal attention
        parts = _edges(ahead, width, max(lefts[chosen]), after) if far else []
        steps.append(found.step(order[chosen], ahead, width, slots, parts, reach, dtype))
    scale = None
    if far:
        seen = _far_counts(numbers, real, reach, causal)  # (B, L_Q)
        scale = far_scale(fill_up(seen, size).flatten(0, 1), far_tokens, dtype).unsqueeze(-1)  # (M, T, 1)
    left_out = far and bool(outside[0])
    return TilePlan(steps, size, count + 2, found.row + low + 1, found.row + high, scale, left_out, near, causal)


class _Kept(NamedTuple):
    tensors: list[ReferenceType[Tensor] | None]
    versions: list[int]
    options: tuple[Any, ...]
    plan: Any


_LAST: deque[_Kept] = deque(maxlen=4)


def _forget(gone: ReferenceType[Tensor]) -> None:
    """Drop the plans of a tensor that is no more: those of long segments are large."""
    alive = [kept for kept in tuple(_LAST) if not any(r is gone for r in kept.tensors)]
    _LAST.clear()
    _LAST.extend(alive)


def shared_plan(tensors: Sequence[Tensor | None], options: tuple[Any, ...], make: Callable[[], P]) -> P:
    """The plan that was made last for the very same tensors, unchanged, and options, else `make()`.

    All layers of a model ask for the same one; and to make one is to wait for a GPU. A plan goes with the first of its
    tensors. Changes that torch does not count, through numpy or `.data`, are not seen.
    """
    if torch.is_inference_mode_enabled() or any(x is not None and x.is_inference() for x in tensors):
        return make()  # such tensors tell nothing of changes, and may not come near a gradient
    versions = [0 if x is None else x._version for x in tensors]
    for kept in tuple(_LAST):  # another thread may add to it
        # r() is None for a tensor that is gone: another one than None that was given then
        same = all(
            x is None if r is None else x is not None and x is r() for x, r in zip(tensors, kept.tensors, strict=True)
        )
        if same and kept.versions == versions and kept.options == options:
            return kept.plan  # type: ignore[no-any-return]
    plan = make()
    _LAST.append(_Kept([None if x is None else ref(x, _forget) for x in tensors], versions, options, plan))
    return plan


class _Tiles(NamedTuple):
    """Tiles and their windows; a code is a segment's number, shifted so that no two rows share one.

    row            (M,) the first block of the row of each
    query_codes    (M, T)
    base           (M,) the code of the first segment of the window
    begin          (M,) the block that windows are counted from
    low, high      (M,) the blocks of the window, from and up to
    key_codes      (B (P + 2), 32), far below all others where there is no key
    """

    row: Tensor
    query_codes: Tensor
    base: Tensor
    begin: Tensor
    low: Tensor
    high: Tensor
    key_codes: Tensor

    def step(
        self,
        at: Tensor,
        ahead: int,
        width: int,
        slots: int,
        edges: list[tuple[int, int]],
        reach: int,
        dtype: torch.dtype,
    ) -> Step:
        """The step of the tiles `at` (m,); ahead and width in blocks, slots the segments of a window, at most."""
        base = self.base[at, None]  # (m, 1)
        block = self.begin[at, None] - ahead + torch.arange(width, device=at.device)  # (m, W / 32), in the row
        block = torch.where((block >= self.low[at, None]) & (block < self.high[at, None]), block + 1, 0)
        block = block + self.row[at, None]
        code = self.key_codes[block].flatten(1)  # (m, W)
        # A slot before the segments of the window, and one after them, are for what its blocks hold beyond.
        place = (code - base + 1).clamp(0, slots + 1).masked_fill_(code == _NO_KEY, slots + 2)
        numbered = torch.arange(slots + 3, device=at.device)
        slot = (place[:, None] == numbered[:, None]).to(dtype)  # (m, S, W)
        distance = base[:, None] - 1 + numbered - self.query_codes[at][:, :, None]  # (m, T, S)
        distance = distance.clamp(-reach, reach) + reach
        distance[..., -1] = 2 * reach + 1
        return Step(at, block, slot, distance, width * BLOCK, ahead * BLOCK, edges)


def _edges(ahead: int, width: int, left: int, right: int) -> list[tuple[int, int]]:
    """The blocks of a window of `width` blocks up to the position `left`, and those from `right` on; both counted from
    the first query, `ahead` blocks after the window begins."""
    before = min(max(ahead - -left // BLOCK, 0), width)
    after = min(max(ahead + right // BLOCK, 0), width)
    if after <= before:
        return [(0, width)]
    return [(first, last) for first, last in ((0, before), (after, width)) if first < last]


def _far_counts(numbers: Numbers, real: Tensor | None, reach: int, causal: bool) -> Tensor:
    """How many keys each query may see at |x| >= G: (B, L_Q)."""
    keys, queries = numbers.keys, numbers.queries
    counts = keys.new_zeros(len(keys), numbers.total + 2 * reach)
    counts.scatter_add_(1, keys + reach, torch.ones_like(keys) if real is None else real.to(keys.dtype))
    summed = counts.cumsum(1)  # column n + G: the keys up to number n
    far = summed.gather(1, queries)
    if not causal:
        far = far + summed[:, -1:] - summed.gather(1, queries + 2 * reach - 1)
    return far


def _together(sides: list[list[int]], own: int, most: int) -> list[tuple[slice, int, int, int]]:
    """Runs of tiles, by falling width: at most `most` blocks in all, none much narrower than the widest; and of each
    run the largest part ahead, the width, and the largest number of slots."""
    befores, afters, spans = sides
    runs: list[tuple[slice, int, int, int]] = []
    begin = ahead = behind = slots = 0
    for tile, (before, after, span) in enumerate(zip(befores, afters, spans, strict=True)):
        wider = max(ahead, before) + own + max(behind, after)
        if tile > begin and (
            (tile + 1 - begin) * wider > most or before + own + after < _ALIKE * (ahead + own + behind)
        ):
            runs.append((slice(begin, tile), ahead, ahead + own + behind, slots))
            begin, ahead, behind, slots = tile, before, after, span
        ahead, behind, slots = max(ahead, before), max(behind, after), max(slots, span)
    return [*runs, (slice(begin, len(spans)), ahead, ahead + own + behind, slots)]


def fill_up(codes: Tensor, size: int, value: int | None = None) -> Tensor:
    """Rows (B, L) cut into (B, n, size), filled up with a value or else with their last one."""
    missing = -codes.shape[1] % size
    last = codes[:, -1:] if value is None else codes.new_full((1, 1), value)
    return torch.cat([codes, last.expand(len(codes), missing)], dim=1).unflatten(1, (-1, size))
