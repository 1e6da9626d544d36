"""The near part of hybrid attention: softmax over the keys of a few segments, joined with the sums of the far part.

Queries are taken in tiles of consecutive positions, whatever segments these lie in, and each tile sees one window of
keys: those of the segments that are near to any of its queries. Which of them is near to which query, and its gate,
is one small product more: (gates of a query by slot) times (which slot a key is in), where the slots of a tile are the
segments of its window. Tiles with windows of like width are worked on together. The backward pass makes the scores
again, from the logarithm of each query's denominator ([Dao 2022], Algorithm 4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.hybrid_dense import HIDDEN
from scaleformer.ops.hybrid_plan import Numbers
from scaleformer.ops.relative_position import relative_scores, relative_sums

_BLOCK = 16  # keys are read in blocks of so many
_MOST_QUERIES = 64
_ALIKE = 0.75  # how much narrower than the widest a window may be that is worked on with it
# How many scores are worked on together: on a CPU they share the cache, on a GPU they only bound memory.
SCORE_NUMBERS = {"cpu": 1 << 18, "cuda": 1 << 25}
# Of a logarithm to the base of 2 whose negative is raised: what is less is nothing beside it, its inverse overflows.
_LOWEST = -115.0
# Scores are logarithms to the base of 2: torch's exp2 is as fast where the result is nothing, its exp many times as
# slow there on a CPU (torch 2.13, Intel).
BITS = math.log2(math.e)
_NO_KEY = -(1 << 62)


class Step(NamedTuple):
    """Tiles worked on together.

    tiles  (m,) their numbers
    first  (m,) the block in which the window of each begins
    width  W, keys of a window, a multiple of 16
    ahead  how many of these stand before the first query of the tile; only where positions count
    slots  S, segments of a window, the most of any tile
    """

    tiles: Tensor
    first: Tensor
    width: int
    ahead: int
    slots: int


@dataclass(frozen=True)
class NearPlan:
    """M tiles of T queries, P blocks of keys, all rows one after the other. A code is a segment's number, shifted so
    that no two rows share one.

    query_codes  (M, T); rows of queries are filled up to whole tiles
    key_codes    (P + 1, 16), far below all others where there is no key, as in the whole last block
    base         (M,) the code of a tile's first slot
    """

    steps: list[Step]
    query_codes: Tensor
    key_codes: Tensor
    base: Tensor
    causal: bool
    near: int


def plan_near(numbers: Numbers, real: Tensor | None, near: int, causal: bool, heads: int, relative: bool) -> NearPlan:
    """The plan for keys of which `real` (B, L_K) bool, or None, tells pads; `relative` if positions count."""
    keys, device = numbers.keys, numbers.keys.device
    batch, length = keys.shape
    size = min(_MOST_QUERIES, _whole_blocks(numbers.queries.shape[1]))
    shift = (numbers.total + near + 1) * torch.arange(batch, device=device)[:, None]
    query_codes = _fill(numbers.queries + shift, size)  # (B, tiles, T)
    tiles = query_codes.shape[1]
    query_codes = query_codes.flatten(0, 1)  # (M, T)
    base, top = query_codes[:, 0] - near, query_codes[:, -1] + near
    codes = keys + shift  # (B, L_K), never falling from row to row
    tile = torch.arange(len(query_codes), device=device)
    row, start = tile // tiles, tile % tiles * size
    first = torch.searchsorted(codes.flatten(), base) - row * length  # (M,), in the row
    end = torch.searchsorted(codes.flatten(), top, right=True) - row * length
    if causal:
        end = torch.minimum(end, start + size)
    if real is not None:  # pads at the end of a row are no keys worth reading
        last = (real * torch.arange(1, length + 1, device=device)).amax(1)  # (B,)
        end = torch.minimum(end, last[row])
        codes = codes.masked_fill(~real, _NO_KEY)
    first = torch.minimum(first, end)
    aligned = causal or relative
    if aligned:  # a window is what stands before, in and after the tile
        before, after = _up((start - first).clamp(min=0)), _up((end - start - size).clamp(min=0))
    else:
        before, after = first.new_zeros(len(first)), _up(end - first // _BLOCK * _BLOCK) - size
        start = first // _BLOCK * _BLOCK
    key_blocks = _fill(codes, _BLOCK, _NO_KEY)  # (B, blocks, 16)
    begin = row * key_blocks.shape[1] + start // _BLOCK  # (M,)
    spans = top - base + 1  # (M,)
    order = (before + after).argsort(descending=True)
    most = SCORE_NUMBERS.get(device.type, SCORE_NUMBERS["cuda"]) // (heads * size)
    steps = []
    for chosen, ahead, behind, slots in _together(torch.stack([before, after, spans])[:, order].tolist(), size, most):
        at = order[chosen]
        width = max(ahead + size + behind, _BLOCK)
        steps.append(Step(at, begin[at] - ahead // _BLOCK, width, ahead, slots))
    nothing = codes.new_full((1, _BLOCK), _NO_KEY)
    key_codes = torch.cat([key_blocks.flatten(0, 1), nothing])  # (P + 1, 16)
    return NearPlan(steps, query_codes, key_codes, base, causal, near)


def _together(sides: list[list[int]], size: int, most: int) -> list[tuple[slice, int, int, int]]:
    """Runs of tiles, by falling width: at most `most` keys in all, none much narrower than the widest; and of each run
    the largest part before, after, and number of slots."""
    befores, afters, spans = sides
    runs: list[tuple[slice, int, int, int]] = []
    begin = ahead = behind = slots = 0
    for tile, (before, after, span) in enumerate(zip(befores, afters, spans, strict=True)):
        wider = max(ahead, before) + size + max(behind, after)
        if tile > begin and (
            (tile + 1 - begin) * wider > most or before + size + after < _ALIKE * (ahead + size + behind)
        ):
            runs.append((slice(begin, tile), ahead, behind, slots))
            begin, ahead, behind, slots = tile, before, after, span
        ahead, behind, slots = max(ahead, before), max(behind, after), max(slots, span)
    return [*runs, (slice(begin, len(spans)), ahead, behind, slots)]


def _up(size: Tensor) -> Tensor:
    return (size + _BLOCK - 1) // _BLOCK * _BLOCK


def _whole_blocks(length: int) -> int:
    return -(-length // _BLOCK) * _BLOCK


def _fill(codes: Tensor, size: int, value: int | None = None) -> Tensor:
    """Rows (B, L) cut into (B, n, size), filled up with a value or else with their last one."""
    missing = -codes.shape[1] % size
    last = codes[:, -1:] if value is None else codes.new_full((1, 1), value)
    return torch.cat([codes, last.expand(len(codes), missing)], dim=1).unflatten(1, (-1, size))


def to_tiles(x: Tensor, size: int) -> Tensor:
    """(B, H, L, n) -> (M, H, T, n), zeros where rows are filled up."""
    x = functional.pad(x, (0, 0, 0, -x.shape[2] % size)).unflatten(2, (-1, size))  # (B, H, tiles, T, n)
    return x.transpose(1, 2).flatten(0, 1).contiguous()


def from_tiles(x: Tensor, batch: int, length: int) -> Tensor:
    """(M, H, T, n) -> (B, H, L, n), without what filled up rows."""
    return x.unflatten(0, (batch, -1)).transpose(1, 2).flatten(2, 3)[:, :, :length]


def to_blocks(x: Tensor) -> Tensor:
    """(B, H, L, n) -> (B H blocks + 1, 16 n): blocks of rows, zeros where they are filled up and in the last one."""
    batch, heads, length, n = x.shape
    whole = _whole_blocks(length)
    blocks = x.new_empty(batch * heads * whole // _BLOCK + 1, _BLOCK * n)
    filled = blocks[:-1].view(batch, heads, whole, n)
    filled[:, :, :length] = x
    filled[:, :, length:] = 0
    blocks[-1] = 0
    return blocks


def from_blocks(blocks: Tensor, like: Tensor) -> Tensor:
    """(B H blocks + 1, 16 n) -> (B, H, L, n), the shape of `like`: the way back."""
    batch, heads, length, n = like.shape
    return blocks[:-1].view(batch, heads, -1, n)[:, :, :length]


def join(scores: Tensor, values: Tensor, far: Tensor | None) -> tuple[Tensor, Tensor]:
    """Near and far under one denominator: the means (..., C, e), and the denominators' logarithms (..., C, 1).

    scores  (..., C, W) near logits times `BITS`, overwritten; those of hidden keys are `HIDDEN` or less
    values  (..., W, e)
    far     (..., C, e+1) the sums of far scores times [v, 1], or None

    Where there is no key at all the mean is zero and the logarithm inf.
    """
    e = values.shape[-1]
    top = scores.amax(-1, keepdim=True)  # (..., C, 1)
    if far is not None:
        top = torch.maximum(top, far[..., e:].log2())
    none = top < HIDDEN / 2
    top = top.masked_fill(none, 0.0)
    weights = scores.sub_(top).exp2_()  # (..., C, W)
    total, means = weights.sum(-1, keepdim=True), weights @ values  # (..., C, 1 | e)
    if far is not None:
        far = far * (-top.clamp(min=_LOWEST)).exp2()  # (..., C, e+1)
        total, means = total + far[..., e:], means + far[..., :e]
    means = means / total.masked_fill(none, 1.0)
    return means, (top + total.log2()).masked_fill(none, float("inf"))


class NearAttention(torch.autograd.Function):
    """Near scores, far sums, one denominator."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        rel: Tensor | None,
        log_gate: Tensor,
        far: Tensor | None,
        plan: NearPlan,
    ) -> Tensor:
        """q (B, H, L_Q, d), times BITS / sqrt(d); k (B, H, L_K, d), v (B, H, L_K, e); rel (H, 2R+1, d);
        log_gate (H, 2G+1); far (B, H, L_Q, e+1), the far part's sums of scores times [v, 1]. All of one dtype.
        -> (B, H, L_Q, e)
        """
        work = _Work(q, k, v, rel, log_gate, plan)
        count, heads, size = len(work.q), q.shape[1], work.q.shape[2]
        far_tiles = None if far is None else to_tiles(far, size)  # (M, H, T, e+1)
        out, log_total = v.new_empty(count, heads, size, v.shape[3]), v.new_empty(count, heads, size, 1)
        for step in plan.steps:
            p = work.scores(step)
            sums = None if far_tiles is None else far_tiles.index_select(0, step.tiles)  # (m, H, T, e+1)
            means, log_totals = join(p.scores, p.values, sums)
            out.index_copy_(0, step.tiles, means)
            log_total.index_copy_(0, step.tiles, log_totals)
        ctx.save_for_backward(q, k, v, rel, log_gate, out, log_total)
        ctx.plan, ctx.far = plan, far is not None
        return from_tiles(out, q.shape[0], q.shape[2])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        q, k, v, rel, log_gate, out, log_total = ctx.saved_tensors
        plan: NearPlan = ctx.plan
        work, near, reach = _Work(q, k, v, rel, log_gate, plan), plan.near, log_gate.shape[1] // 2
        d, e = q.shape[3], v.shape[3]
        d_q, d_k, d_v = torch.empty_like(work.q), torch.zeros_like(work.k), torch.zeros_like(work.v)
        d_near = log_gate.new_zeros(len(log_gate), 2 * near + 3)
        d_rel = None if rel is None else torch.zeros_like(rel)
        d_far = out.new_empty(*out.shape[:3], e + 1) if ctx.far else None
        grad = to_tiles(grad, out.shape[2])  # (M, H, T, e)
        delta = (grad * out).sum(-1, keepdim=True)  # (M, H, T, 1)
        for step in plan.steps:
            p = work.scores(step)
            d_out, deltas, log_totals = (x.index_select(0, step.tiles) for x in (grad, delta, log_total))
            weights = p.scores.sub_(log_totals).exp2_()  # (m, H, T, W)
            d_v.index_add_(0, p.keys_at, (weights.transpose(-1, -2) @ d_out).view(-1, _BLOCK * e))
            d_scores = ((d_out / BITS) @ p.values.transpose(-1, -2)).sub_(deltas / BITS).mul_(weights)  # (m, H, T, W)
            d_query = d_scores @ p.keys  # (m, H, T, d)
            d_k.index_add_(0, p.keys_at, (d_scores.transpose(-1, -2) @ p.query).view(-1, _BLOCK * d))
            if rel is not None and d_rel is not None:
                by_distance = relative_sums(d_scores, rel.shape[1] // 2, step.ahead)  # (m, H, T, 2R+1)
                d_query += by_distance @ rel
                d_rel += (by_distance.transpose(-1, -2) @ p.query).sum(0)
            by_slot = d_scores.flatten(1, 2) @ p.slot.transpose(-1, -2)  # (m, H T, S+1)
            by_slot = by_slot.unflatten(1, d_scores.shape[1:3]).transpose(0, 1).flatten(1)  # (H, m T (S+1))
            d_near.scatter_add_(1, p.distance.flatten().expand_as(by_slot), by_slot)
            d_q.index_copy_(0, step.tiles, d_query)
            if d_far is not None:
                share = (-log_totals.clamp(min=_LOWEST)).exp2()  # (m, H, T, 1)
                d_far.index_copy_(0, step.tiles, torch.cat([d_out, -deltas], dim=-1) * share)
        d_gate = torch.zeros_like(log_gate)
        d_gate[:, reach - near : reach + near + 1] = d_near[:, 1:-1] * BITS
        rows = q.shape[0], q.shape[2]
        return (
            from_tiles(d_q, *rows), from_blocks(d_k, k), from_blocks(d_v, v), d_rel, d_gate,
            None if d_far is None else from_tiles(d_far, *rows), None,
        )  # fmt: skip


class _Scores(NamedTuple):
    """What a step works on: m tiles of T queries and W keys.

    query (m, H, T, d), keys (m, H, W, d), values (m, H, W, e), scores (m, H, T, W); keys_at (m H W/16,), the blocks of
    keys; slot (m, S+1, W), 1 where a key is in a slot, the last one that of hidden keys; distance (m, T, S+1), that of
    a slot to a query in segments, N + 1 added, 0 and 2N + 2 for all that is not near
    """

    query: Tensor
    keys: Tensor
    values: Tensor
    scores: Tensor
    keys_at: Tensor
    slot: Tensor
    distance: Tensor


class _Work:
    """The tensors of a call, and the scores of a step made from them: in both passes."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None, log_gate: Tensor, plan: NearPlan) -> None:
        self.batch, self.heads = q.shape[:2]
        self.q, self.k, self.v = to_tiles(q, plan.query_codes.shape[1]), to_blocks(k), to_blocks(v)
        self.rel, self.plan = rel, plan
        reach, near = log_gate.shape[1] // 2, plan.near
        near_gate = log_gate[:, reach - near : reach + near + 1]
        self.gate = functional.pad(near_gate * BITS, (1, 1), value=HIDDEN)  # (H, 2N+3)

    def scores(self, step: Step) -> _Scores:
        plan, near, device = self.plan, self.plan.near, step.first.device
        count, nothing = len(step.first), len(plan.key_codes) - 1
        blocks = step.first[:, None] + torch.arange(step.width // _BLOCK, device=device)  # (m, W/16)
        blocks = torch.where((blocks >= 0) & (blocks < nothing), blocks, nothing)
        in_row = nothing // self.batch
        head = torch.arange(self.heads, device=device)[:, None]
        keys_at = (blocks // in_row * self.heads)[:, None] + head  # (m, H, W/16)
        keys_at = keys_at * in_row + (blocks % in_row)[:, None]
        keys_at = torch.where(blocks[:, None] < nothing, keys_at, len(self.k) - 1).flatten()
        query = self.q.index_select(0, step.tiles)
        keys, values = (
            x.index_select(0, keys_at).view(count, self.heads, step.width, -1) for x in (self.k, self.v)
        )  # (m, H, W, d | e)

        base = plan.base[step.tiles]  # (m,)
        slots = torch.arange(step.slots + 1, device=device)
        at = plan.key_codes[blocks].flatten(1) - base[:, None]  # (m, W)
        at = torch.where((at >= 0) & (at < step.slots), at, step.slots)
        slot = (at[:, None] == slots[:, None]).to(query.dtype)  # (m, S+1, W)
        distance = base[:, None, None] + slots - plan.query_codes[step.tiles][:, :, None]  # (m, T, S+1)
        distance = (distance + near + 1).clamp(0, 2 * near + 2)
        distance[..., step.slots] = 0
        gate = self.gate.index_select(1, distance.flatten()).view(self.heads, *distance.shape).transpose(0, 1)
        scores = (gate.flatten(1, 2) @ slot).view(*query.shape[:3], step.width)  # (m, H, T, W)
        scores.flatten(0, 1).baddbmm_(query.flatten(0, 1), keys.flatten(0, 1).transpose(-1, -2))
        if self.rel is not None:
            by_distance = query @ self.rel.transpose(-1, -2)  # (m, H, T, 2R+1)
            if plan.causal:
                by_distance[..., self.rel.shape[1] // 2 + 1 :] = HIDDEN
            scores += relative_scores(by_distance, step.width, step.ahead)
        elif plan.causal:
            later = torch.ones(query.shape[2], step.width, dtype=torch.bool, device=device).triu(step.ahead + 1)
            scores.masked_fill_(later, HIDDEN)
        return _Scores(query, keys, values, scores, keys_at, slot, distance)
