"""What forward and backward of segment-gated attention by windows make of a block of chunks.

Letters as in `segment_windows`; X = B H rows, N chunks of keys; a block has M chunks of queries, windows of w chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from scaleformer.ops.common.blocks import Block, chunks_of, clear_pads, diagonals, running_products, spread, u_chunks
from scaleformer.ops.common.feature_maps import FeatureMap
from scaleformer.ops.gated.window_plan import WindowBlock, WindowPlan


@dataclass(frozen=True)
class WindowOptions:
    """What is not a tensor with a gradient."""

    plan: WindowPlan
    phi: FeatureMap
    chunk: int
    causal: bool
    dtype: torch.dtype


class WindowKeys(NamedTuple):
    """All keys by chunks; X = B H, N chunks. One more chunk, of zeros, stands for those outside the sequence."""

    fk: Tensor  # (N X, C, d), without shift
    shifted: Tensor  # (1 or 2, N+1, X, C, d), phi(k) + b, and phi(k) + a if keys after the query have a shift too
    u: Tensor  # (N+1, X, C, e+1)
    # (N+1, X, d, e+1): the sums over the chunks before each, shifted by b, and, if not causal, those over each chunk
    # and the ones after it, shifted by a.
    sides: list[Tensor]


class WindowParts(NamedTuple):
    """What forward and backward need of a block; Y = M X, W = w C."""

    fq: Tensor  # (Y, C, d)
    far_fq: Tensor  # (Y, C, d), times the scale of what is far
    keys: Tensor  # (Y, W, d), shifted
    u: Tensor  # (Y, W, e+1)
    sides: list[Tensor]  # (Y, d, e+1), the sums before the window, and, if not causal, those after it
    far: Tensor  # (Y, d, e+1), both, times the outer gates
    weights: Tensor  # (M, B, H, C, W)
    scores: Tensor  # (Y, C, W), weighed
    column: Tensor  # (M, B, C, W), of the gate


class WindowWork:
    """The arguments of one call and what both passes make of them."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        shifts: Tensor | None,
        table: Tensor | None,
        log_gate: Tensor,
        key_mask: Tensor | None,
        options: WindowOptions,
    ) -> None:
        self.q, self.k, self.v, self.shifts, self.table, self.key_mask = q, k, v, shifts, table, key_mask
        self.options, self.plan, self.chunk = options, options.plan, options.chunk
        self.batch, self.heads = q.shape[:2]
        self.rows = self.batch * self.heads
        self.gate = log_gate.exp()  # (H, 2G+1)
        self.keys = self._make_keys()

    def _make_keys(self) -> WindowKeys:
        count, chunk, rows = self.plan.key_chunks, self.chunk, self.rows
        block = Block(0, count)
        fk = self.options.phi(chunks_of(self.k, block, chunk, self.options.dtype))  # (N X, C, d)
        if self.key_mask is not None:
            clear_pads(fk, self.key_mask, block, self.heads)
        kinds = 1 if self.shifts is None else self.shifts.shape[0]
        shifted = fk.new_empty(kinds, count + 1, rows, *fk.shape[1:])
        shifted[:, count] = 0.0
        for kind in range(kinds):
            target = shifted[kind, :count].flatten(0, 1)  # (N X, C, d)
            if self.shifts is None:
                target.copy_(fk)
            else:
                torch.add(fk, spread(self.shifts[kind], count * self.batch, self.heads), out=target)
        # One chunk more than there are is all outside the sequence: zeros.
        u = u_chunks(self.v, self.key_mask, Block(0, count + 1), chunk, self.options.dtype)
        u = u.unflatten(0, (count + 1, rows))  # (N+1, X, C, e+1)
        sides = [running_products(shifted[0, :count], u[:count])]
        if not self.options.causal:
            sides.append(running_products(shifted[-1, :count], u[:count], reverse=True))
        return WindowKeys(fk, shifted, u, sides)

    def chunk_rows(self, number: Tensor) -> Tensor:
        """Rows (chunk, batch, head) of chunks `number` (M, B, ...), of which those outside count as the last: flat."""
        batch = torch.arange(self.batch, device=number.device).view(-1, *[1] * (number.dim() - 2))
        row = (number * self.batch + batch).unsqueeze(2) * self.heads  # (M, B, 1, ...)
        head = torch.arange(self.heads, device=number.device).view(-1, *[1] * (number.dim() - 2))
        return (row + head).flatten()  # (M B H ...)

    def window_rows(self, block: WindowBlock) -> tuple[Tensor, Tensor]:
        """Rows of the flat keys and of the flat U in the windows of a block: (Y w,) each."""
        place = torch.arange(block.width, device=block.first.device)
        number = block.first[:, :, None] + place  # (M, B, w)
        count = self.plan.key_chunks
        number = torch.where((number >= 0) & (number < count), number, count)
        kind = (count + 1) * (place > block.own) if self.keys.shifted.shape[0] == 2 else 0
        return self.chunk_rows(number + kind), self.chunk_rows(number)

    def side_rows(self, block: WindowBlock) -> list[slice | Tensor]:
        """Rows of `left`, and, if not causal, of `right`, that stand for what is outside the windows.

        Y each, flat; a slice where the windows of the block lie one chunk after the other.
        """
        offsets = [0] if self.options.causal else [0, block.width]
        rows: list[slice | Tensor] = []
        for offset in offsets:
            begin = None if block.begin is None else block.begin + offset
            if begin is not None and begin >= 0 and begin + block.chunks <= self.plan.key_chunks + 1:
                rows.append(slice(begin * self.rows, (begin + block.chunks) * self.rows))
            else:
                rows.append(self.chunk_rows((block.first + offset).clamp(0, self.plan.key_chunks)))
        return rows

    def near_columns(self, block: WindowBlock) -> tuple[int, int]:
        """How many columns of the table make up the band, and where in the window row 0 of it begins."""
        assert self.table is not None
        band = self.table.shape[1] - (0 if self.options.causal else 1)
        head = band - 1 if self.options.causal else band // 2
        return band, block.own * self.chunk - head

    def scale(self, block: WindowBlock) -> Tensor:
        """The scale of what is far, (M, B, 1, C, 1)."""
        part = self.plan.scale[:, block.start * self.chunk : (block.start + block.chunks) * self.chunk]
        return part.view(self.batch, block.chunks, 1, self.chunk, 1).transpose(0, 1)

    def prepare(self, block: WindowBlock) -> WindowParts:
        chunk, keys = self.chunk, self.keys
        fq = self.options.phi(chunks_of(self.q, Block(block.start * chunk, block.chunks), chunk, self.options.dtype))
        scale = self.scale(block)
        far_fq = (fq.view(block.chunks, self.batch, self.heads, chunk, -1) * scale).flatten(0, 2)  # (Y, C, d)
        key_rows, u_rows = self.window_rows(block)
        window = keys.shifted.flatten(0, 2).flatten(1).index_select(0, key_rows)
        window = window.view(fq.shape[0], -1, fq.shape[2])  # (Y, W, d)
        u = keys.u.flatten(0, 1).flatten(1).index_select(0, u_rows).view(fq.shape[0], -1, keys.u.shape[3])
        outer = self.gate[:, [0, -1], None, None].repeat(block.chunks * self.batch, 1, 1, 1)  # (Y, 2, 1, 1)
        sides = [
            states.flatten(0, 1)[rows]  # (Y, d, e+1)
            for states, rows in zip(keys.sides, self.side_rows(block), strict=True)
        ]
        far = sides[0] * outer[:, 0]
        if not self.options.causal:
            far.addcmul_(sides[1], outer[:, 1])
        scores = fq @ window.transpose(1, 2)  # (Y, C, W)
        if self.table is not None:
            by_distance = fq @ spread(self.table, block.chunks * self.batch, self.heads).transpose(1, 2)
            band, first = self.near_columns(block)
            diagonals(scores, band, first).add_(by_distance[..., :band])
            if not self.options.causal:
                own = scores[:, :, block.own * chunk : (block.own + 1) * chunk]
                own.addcmul_(own.new_ones(chunk, chunk).triu(1), by_distance[..., -1:])
        column, weights = self._weights(block, scale)
        scores.view(weights.shape).mul_(weights)
        return WindowParts(fq, far_fq, window, u, sides, far, weights, scores, column)

    def _weights(self, block: WindowBlock, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Which gate each pair has (M, B, C, W), and its weight (M, B, H, C, W)."""
        chunk, reach, plan = self.chunk, self.gate.shape[1] // 2, self.plan
        position = (block.first[:, :, None] * chunk + torch.arange(block.width * chunk, device=self.q.device)).clamp(
            0, plan.key_segments.shape[1] - 1
        )  # (M, B, W)
        batch = torch.arange(self.batch, device=self.q.device)[:, None]
        segments = plan.key_segments[batch, position]  # (M, B, W)
        queries = plan.query_segments.view(self.batch, -1, chunk)[:, block.start : block.start + block.chunks]
        distance = segments[:, :, None] - queries.transpose(0, 1)[..., None]  # (M, B, C, W)
        column = distance.clamp(-reach, reach) + reach  # (M, B, C, W)
        factor = torch.where(distance.abs() >= reach, scale[:, :, 0], 1.0)  # (M, B, C, W)
        if self.options.causal:
            factor[..., block.own * chunk :].tril_()
        weights = self.gate.index_select(1, column.flatten()).unflatten(1, column.shape)  # (H, M, B, C, W)
        return column, weights.permute(1, 2, 0, 3, 4) * factor.unsqueeze(2)
