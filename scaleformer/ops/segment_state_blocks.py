"""What forward and backward of segment-gated attention by states make of a block of pieces.

Letters as in `segment_states`; a block has M pieces of one row of the batch, Y = M H, and m = d (e+1) numbers a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.blocks import diagonals, spread
from scaleformer.ops.feature_maps import FeatureMap
from scaleformer.ops.segment_plan import Pieces
from scaleformer.ops.segment_state_plan import PieceBlock, StatePlan


@dataclass(frozen=True)
class StateOptions:
    """What is not a tensor with a gradient; real (B, L_K) bool, or None if all keys are."""

    plan: StatePlan
    phi: FeatureMap
    causal: bool
    real: Tensor | None
    dtype: torch.dtype


class Keys(NamedTuple):
    """A block of keys."""

    fk: Tensor  # (Y, C, d), without shift
    shifted: Tensor  # (Y, C, d)
    u: Tensor  # (Y, C, e+1)

    @property
    def state_shape(self) -> tuple[int, int]:
        return self.fk.shape[2], self.u.shape[2]


class Near(NamedTuple):
    """The window of each piece, W positions, and what the queries give to it."""

    position: Tensor  # (M, W)
    inside: Tensor  # (M, W), whether there is such a position
    u: Tensor  # (Y, W, e+1)
    column: Tensor  # (M, W), by which weight
    weights: Tensor  # (Y, 1, W)
    plain: Tensor  # (Y, C, W), scores without weights
    far: Tensor | None  # (Y, C, 2), scores of what is before and after the piece


class Queries(NamedTuple):
    """A block of queries of T segments, and what they see: K near segments and the sums of those before and after."""

    fq: Tensor  # (Y, C, d)
    runs: Tensor  # (M,), the segment of each piece, counted from 0 in the block
    opening: Tensor  # (T,), the first piece of each segment
    by_run: Tensor  # (H, T, 2G+1), the weights of each segment
    mixing: Tensor  # (H, T, K), those of the near segments
    column: Tensor  # (T, K), which
    partial: Tensor | None  # (M+1, H, m), sums of the own segment before each piece, and before the next block
    mixed: Tensor  # (Y, d, e+1), all that each piece sees by states
    keys: Keys | None
    near: Near | None


class StateWork:
    """The arguments of one call and what both passes make of them, a row of the batch at a time."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        shift: Tensor | None,
        table: Tensor | None,
        weights: Tensor,
        beyond: Tensor | None,
        options: StateOptions,
        states: list[Tensor] | None = None,
    ) -> None:
        self.q, self.k, self.v, self.shift, self.table = q, k, v, shift, table
        self.weights, self.beyond, self.options, self.plan = weights, beyond, options, options.plan
        self.heads, self.reach, self.chunk = q.shape[1], weights.shape[3] // 2, options.plan.chunk
        self.size = k.shape[3] * (v.shape[3] + 1)  # m
        # How many columns of the window stand before the piece, and how many are in the band of the horizon.
        self.band = 0 if table is None else table.shape[1] - (0 if options.causal else 2)
        self.head = 0 if table is None else self.band - 1 if options.causal else self.band // 2
        self.width = self.head + self.chunk + (0 if options.causal else self.head)
        self.states = states or [self._sum_states(row) for row in range(q.shape[0])]

    def _sum_states(self, row: int) -> Tensor:
        """The states of the key segments of a row: (S, H, m)."""
        states = self.k.new_empty(self.plan.numbers.shape[1], self.heads, self.size, dtype=self.options.dtype)
        done = 0
        for block in self.plan.key_blocks:
            if block.row == row:
                keys = self.keys(block)
                sums = states[block.run : block.run_end]  # (T, H, m)
                if self.plan.whole:
                    torch.bmm(keys.shifted.transpose(1, 2), keys.u, out=sums.view(-1, *keys.state_shape))
                    continue
                own = (keys.shifted.transpose(1, 2) @ keys.u).view(-1, self.heads, self.size)  # (M, H, m)
                states[done : block.run_end] = 0.0
                sums.index_add_(0, self.plan.keys.run[row, block.first : block.last] - block.run, own)
                done = block.run_end
        return states

    def of_pieces(self, states: Tensor, block: PieceBlock) -> Tensor:
        """For each piece of a block of keys what states (S, H, m) has for its segment: (M, H, m)."""
        if self.plan.whole:
            return states[block.run : block.run_end]
        return states[self.plan.keys.run[block.row, block.first : block.last]]

    def far_sums(self, row: int) -> tuple[Tensor, Tensor]:
        """For each block of queries of a row the sums over the segments before the near ones and after them.

        (blocks, H, m) each; the second stays empty in causal attention.
        """
        blocks, states = self.query_blocks(row), self.states[row]
        before = states.new_zeros(len(blocks), self.heads, self.size)
        after = states.new_zeros(0 if self.options.causal else len(blocks), self.heads, self.size)
        total, done = torch.zeros_like(states[0]), 0
        for number, block in enumerate(blocks):
            total += states[done : block.near].sum(0)
            before[number], done = total, block.near
        total, done = torch.zeros_like(states[0]), int(self.plan.keys.run[row, -1]) + 1
        for number in range(len(after) - 1, -1, -1):
            total += states[blocks[number].far : done].sum(0)
            after[number], done = total, blocks[number].far
        return before, after

    def query_blocks(self, row: int) -> list[PieceBlock]:
        return [block for block in self.plan.query_blocks if block.row == row]

    def take(self, x: Tensor, block: PieceBlock, pieces: Pieces) -> Tensor:
        """x (B, H, L, n) at the places of a block: (Y, C, n)."""
        return self._take(x[block.row], pieces.positions[block.row, block.first : block.last])

    def _take(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (H, L, n) at positions (M, C): (Y, C, n)."""
        part = x.index_select(1, positions.flatten()).to(self.options.dtype)  # (H, M C, n)
        return part.unflatten(1, positions.shape).transpose(0, 1).flatten(0, 1)  # (Y, C, n)

    def store(self, x: Tensor, part: Tensor, block: PieceBlock, pieces: Pieces) -> None:
        """Write part (Y, C, n) to the positions of a block in x (B, H, L, n)."""
        x[block.row, :, block.begin : block.end] = self.by_position(part, block, pieces).transpose(0, 1)

    def by_position(self, part: Tensor, block: PieceBlock, pieces: Pieces) -> Tensor:
        """Part (Y, C, n) in the order of positions, without the empty places: (end - begin, H, n)."""
        place = pieces.place[block.row, block.begin : block.end] - block.first * self.chunk
        part = part.unflatten(0, (-1, self.heads)).transpose(1, 2).flatten(0, 1)  # (M C, H, n)
        return part.index_select(0, place)

    def values(self, row: int, positions: Tensor, there: Tensor) -> Tensor:
        """U at positions (M, W) of a row, zeros where it is not `there` (M, W) or a pad: (Y, W, e+1)."""
        if self.options.real is not None:
            there = there & self.options.real[row][positions]
        u = functional.pad(self._take(self.v[row], positions), (0, 1), value=1.0)  # (Y, W, e+1)
        u.unflatten(0, (-1, self.heads)).masked_fill_(~there[:, None, :, None], 0.0)
        return u

    def keys(self, block: PieceBlock) -> Keys:
        pieces, row, span = self.plan.keys, block.row, slice(block.first, block.last)
        fk = self.options.phi(self.take(self.k, block, pieces))  # (Y, C, d)
        if self.options.real is not None:
            real = self.options.real[row][pieces.positions[row, span]]  # (M, C)
            fk.unflatten(0, (-1, self.heads)).masked_fill_(~real[:, None, :, None], 0.0)
        shifted = fk if self.shift is None else fk + spread(self.shift, block.last - block.first, self.heads)
        return Keys(fk, shifted, self.values(row, pieces.positions[row, span], pieces.valid[row, span]))

    def queries(self, block: PieceBlock, before: Tensor, after: Tensor | None, carry: Tensor | None) -> Queries:
        """before, after (H, m): the sums of `far_sums`; carry (H, m): that of the own segment before the block."""
        pieces, row, span = self.plan.queries, block.row, slice(block.first, block.last)
        fq = self.options.phi(self.take(self.q, block, pieces))  # (Y, C, d)
        weights = self.weights[row, :, span]  # (H, M, 2G+1)
        runs = pieces.run[row, span] - block.run  # (M,)
        opening = torch.searchsorted(runs, torch.arange(block.run_end - block.run, device=runs.device))  # (T,)
        by_run = weights[:, opening]  # (H, T, 2G+1)
        distance = self.plan.numbers[row, block.near : block.far] - pieces.segment[row, span][opening][:, None]
        column = distance.clamp(-self.reach, self.reach) + self.reach  # (T, K)
        mixing = by_run.gather(2, column.expand(self.heads, -1, -1))  # (H, T, K)
        if self.options.causal:
            mixing = mixing * (distance < 0)
        seen = mixing @ self.states[row][block.near : block.far].transpose(0, 1)  # (H, T, m)
        seen.addcmul_(by_run[:, :, :1], before[:, None])
        if after is not None:
            seen.addcmul_(by_run[:, :, -1:], after[:, None])
        mixed = seen.transpose(0, 1).index_select(0, runs)  # (M, H, m)
        keys = self.keys(block) if self.options.causal else None
        partial = None
        if keys is not None and carry is not None:
            partial = self.partial_sums(block, keys, carry)
            mixed.addcmul_(partial[:-1], weights[:, :, self.reach].t().unsqueeze(-1))
        near = None if self.table is None and keys is None else self._near(block, fq, keys)
        mixed = mixed.view(fq.shape[0], self.k.shape[3], -1)  # (Y, d, e+1)
        return Queries(fq, runs, opening, by_run, mixing, column, partial, mixed, keys, near)

    def continues(self, block: PieceBlock) -> list[bool]:
        """Whether each piece, and the one after the block, goes on with the segment of the piece before it."""
        runs = self.plan.queries.run[block.row].tolist()
        return [0 < n < len(runs) and runs[n] == runs[n - 1] for n in range(block.first, block.last + 1)]

    def partial_sums(self, block: PieceBlock, keys: Keys, carry: Tensor) -> Tensor:
        """Before each piece and after the last the sum of the states of its segment so far: (M+1, H, m)."""
        own = (keys.shifted.transpose(1, 2) @ keys.u).view(-1, self.heads, self.size)  # (M, H, m)
        partial = own.new_zeros(own.shape[0] + 1, *own.shape[1:])
        partial[0] = carry
        for number, on in enumerate(self.continues(block)[1:]):
            if on:
                torch.add(partial[number], own[number], out=partial[number + 1])
        return partial

    def _near(self, block: PieceBlock, fq: Tensor, keys: Keys | None) -> Near:
        pieces, row, span = self.plan.queries, block.row, slice(block.first, block.last)
        length = self.v.shape[2]
        position = pieces.start[row, span, None] - self.head + torch.arange(self.width, device=fq.device)  # (M, W)
        inside = (position >= 0) & (position < length)
        position = position.clamp(0, length - 1)
        distance = self.plan.key_segments[row][position] - pieces.segment[row, span, None]  # (M, W)
        column = distance.clamp(-self.reach, self.reach) + self.reach  # (M, W)
        weights = self.weights[row, :, span].gather(2, column.expand(self.heads, -1, -1))  # (H, M, W)
        weights = weights.transpose(0, 1).flatten(0, 1).unsqueeze(1)  # (Y, 1, W)
        plain, far = fq.new_zeros(fq.shape[0], self.chunk, self.width), None
        own = plain[:, :, self.head : self.head + self.chunk]  # (Y, C, C)
        past = fq.new_ones(self.chunk, self.chunk).tril()
        if keys is not None:
            torch.mul(fq @ keys.shifted.transpose(1, 2), past, out=own)
        if self.table is not None:
            by_distance = fq @ spread(self.table, block.last - block.first, self.heads).transpose(1, 2)
            if keys is None:
                far = by_distance[..., -2:]  # (Y, C, 2)
                own.copy_(torch.where(past.bool(), far[..., :1], far[..., 1:]) * self.valid(block))
            diagonals(plain, self.band).add_(by_distance[..., : self.band])
        return Near(position, inside, self.values(row, position, inside), column, weights, plain, far)

    def valid(self, block: PieceBlock) -> Tensor:
        """Which places of each piece hold a position: (Y, 1, C) numbers, 0 or 1."""
        valid = self.plan.queries.valid[block.row, block.first : block.last, None]  # (M, 1, C)
        return valid.repeat_interleave(self.heads, 0).to(self.options.dtype)

    def beyond_of(self, block: PieceBlock) -> Tensor:
        """The weighed sums of U before and after each piece: (Y, 2, e+1)."""
        assert self.beyond is not None
        return self.beyond[block.row, :, block.first : block.last].transpose(0, 1).flatten(0, 1)
