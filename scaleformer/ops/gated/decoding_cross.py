"""Step-wise segment-gated attention to a whole source: one matrix for each segment a query may be in."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.checks import check_gate, check_kv, check_positive, check_segments
from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.common.sums import normalise
from scaleformer.ops.kernel.decoding import values_with_ones, without_pads
from scaleformer.ops.segments.gate import far_scale
from scaleformer.ops.segments.layout import clean_segments, cut_segments, take_positions

_PIECE = 64


@dataclass
class SegmentCrossState:
    """Decoding state of attention to a whole source; it never changes while decoding.

    table   (B, T, H, d, e+1) row t: the sum of phi(k) (x) [v, 1] over the source, each segment times its weight as seen
            from segment lowest + t; the last row serves every later segment, the first every earlier one
    lowest  the number of the segment of row 0
    """

    table: Tensor
    lowest: int

    @property
    def documents(self) -> int:
        return self.table.shape[0]

    def select(self, documents: Tensor) -> SegmentCrossState:
        """The state whose row b is this one's row documents[b]; documents (B',) long."""
        return replace(self, table=self.table.index_select(0, documents))


@torch.no_grad()
def segment_cross_state(
    k: Tensor,
    v: Tensor,
    log_gate: Tensor,
    key_segments: Tensor,
    key_mask: Tensor | None = None,
    far_tokens: float = 20,
    feature_map: str = "elu1",
) -> SegmentCrossState:
    """The state of a source, without relative positions.

    k (B, H, S, d), v (B, H, S, e), log_gate (H, 2G+1), key_segments (B, S), key_mask (B, S) bool, True = real token.
    """
    check_kv(k, v, key_mask)
    batch, heads, length, _ = k.shape
    check_gate(log_gate, heads)
    check_segments("key_segments", key_segments, batch, length)
    check_positive("far_tokens", far_tokens)
    dtype = torch.promote_types(k.dtype, torch.float32)
    real = torch.ones_like(key_segments, dtype=torch.bool) if key_mask is None else key_mask
    if not real.any():
        return SegmentCrossState(k.new_zeros(batch, 1, heads, k.shape[3], v.shape[3] + 1, dtype=dtype), 0)
    segments = clean_segments(key_segments, key_segments, key_mask, causal=False)[1]
    lowest, highest = int(segments[real].min()), int(segments[real].max())
    segments = segments.clamp(lowest, highest)
    with torch.autocast(k.device.type, enabled=False):
        gate = log_gate.to(dtype).exp()  # (H, 2G+1)
        sums = _segment_sums(k, v, segments - lowest, highest - lowest + 1, key_mask, feature_map, dtype)
        counts = torch.zeros(batch, sums.shape[1], device=k.device, dtype=dtype)
        counts.scatter_add_(1, segments - lowest, real.to(dtype))
        table = _weigh(sums, counts, gate, far_tokens)
    return SegmentCrossState(table, lowest - gate.shape[1] // 2)


def _segment_sums(
    k: Tensor, v: Tensor, segments: Tensor, count: int, key_mask: Tensor | None, feature_map: str, dtype: torch.dtype
) -> Tensor:
    """The sum of phi(k) (x) [v, 1] over each of `count` segments: (B, count, H, d, e+1)."""
    batch = k.shape[0]
    pieces = cut_segments(segments, _PIECE)
    fk = take_positions(
        get_feature_map(feature_map)(without_pads(k, key_mask).to(dtype)), pieces.positions
    )  # (B, H, N, C, d)
    u = take_positions(values_with_ones(v.to(dtype), key_mask), pieces.positions)  # (B, H, N, C, e+1)
    u *= pieces.valid[:, None, :, :, None]
    states = (fk.transpose(-1, -2) @ u).transpose(1, 2)  # (B, N, H, d, e+1)
    rows = pieces.segment + count * torch.arange(batch, device=k.device)[:, None]  # (B, N)
    sums = states.new_zeros(batch * count, *states.shape[2:])
    return sums.index_add_(0, rows.flatten(), states.flatten(0, 1)).unflatten(0, (batch, count))


def _weigh(sums: Tensor, counts: Tensor, gate: Tensor, far_tokens: float) -> Tensor:
    """The table of `SegmentCrossState`: (B, S + 2G, H, d, e+1) from sums (B, S, H, d, e+1) and counts (B, S)."""
    reach, present = gate.shape[1] // 2, sums.shape[1]
    rows = present + 2 * reach  # segments lowest - G .. highest + G
    # Row t sees segment s = t - G + x at distance x. Segments up to t - 2G are far before it, those from t far after.
    before = functional.pad(sums.cumsum(1), (0, 0, 0, 0, 0, 0, 2 * reach, 0))  # (B, T, H, d, e+1)
    after = functional.pad(sums.flip(1).cumsum(1).flip(1), (0, 0, 0, 0, 0, 0, 0, 2 * reach))
    far = functional.pad(counts.cumsum(1), (2 * reach, 0)) + functional.pad(
        counts.flip(1).cumsum(1).flip(1), (0, 2 * reach)
    )  # (B, T)
    scale = far_scale(far, far_tokens, sums.dtype)[:, :, None, None, None]  # (B, T, 1, 1, 1)
    table = before.mul_(gate[:, 0, None, None]).add_(after.mul_(gate[:, -1, None, None])).mul_(scale)
    for x in range(1 - reach, reach):
        first = reach - x  # the row that sees the first segment at distance x
        table[:, first : first + present] += sums * gate[:, x + reach, None, None]
    assert table.shape[1] == rows
    return table


@torch.no_grad()
def segment_cross_step(q: Tensor, segments: Tensor, state: SegmentCrossState, feature_map: str = "elu1") -> Tensor:
    """Attention of the K hypotheses of each document to their source.

    q (B, H, K, d); segments (B, K) integers, the segment of each hypothesis. Returns (B, H, K, e) in the dtype of q.
    """
    batch, heads, beams, d = q.shape
    check_segments("segments", segments, batch, beams)
    rows = state.table.shape[1]
    row = (segments - state.lowest).clamp(0, rows - 1)  # (B, K)
    row = row + rows * torch.arange(batch, device=q.device)[:, None]  # (B, K)
    with torch.autocast(q.device.type, enabled=False):
        fq = get_feature_map(feature_map)(q.to(state.table.dtype)).transpose(1, 2)  # (B, K, H, d)
        matrices = state.table.flatten(0, 1).index_select(0, row.flatten())  # (B K, H, d, e+1)
        sums = fq.reshape(-1, 1, d) @ matrices.flatten(0, 1)  # (B K H, 1, e+1)
        out = normalise(sums).view(batch, beams, heads, -1)  # (B, K, H, e)
    return out.transpose(1, 2).to(q.dtype)  # (B, H, K, e)
