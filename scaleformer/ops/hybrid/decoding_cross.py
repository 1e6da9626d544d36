"""Step-wise hybrid attention to a whole source: keys and values of near segments, one matrix for all that is far."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from scaleformer.ops.common.checks import check_gate, check_segments
from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.gated.decoding_cross import SegmentCrossState, segment_cross_state
from scaleformer.ops.hybrid.join import BITS, join
from scaleformer.ops.segments.layout import clean_segments
from scaleformer.ops.segments.tiles import check_near


@dataclass
class HybridCrossState:
    """What attention to a whole source keeps of it; it never changes while decoding.

    key, value  (B, H, S, d) and (B, H, S, e)
    segments    (B, S) long, never falling
    mask        (B, S) bool, True = real token, or None
    far         the weighed sums of the far segments, as seen from each segment
    log_gate    (H, 2G+1)
    """

    key: Tensor
    value: Tensor
    segments: Tensor
    mask: Tensor | None
    far: SegmentCrossState
    log_gate: Tensor
    near: int
    feature_map: str

    @property
    def documents(self) -> int:
        return self.key.shape[0]

    def select(self, documents: Tensor) -> HybridCrossState:
        """The state whose row b is this one's row documents[b]; documents (B',) long."""
        chosen = {name: getattr(self, name).index_select(0, documents) for name in ("key", "value", "segments")}
        mask = None if self.mask is None else self.mask.index_select(0, documents)
        return replace(self, **chosen, mask=mask, far=self.far.select(documents))


@torch.no_grad()
def hybrid_cross_state(
    k: Tensor,
    v: Tensor,
    log_gate: Tensor,
    key_segments: Tensor,
    key_mask: Tensor | None = None,
    near: int = 1,
    far_tokens: float = 20,
    feature_map: str = "elu1",
) -> HybridCrossState:
    """The state of a source; no relative positions.

    k (B, H, S, d), v (B, H, S, e), log_gate (H, 2G+1), key_segments (B, S), key_mask (B, S) bool, True = real token.
    """
    check_gate(log_gate, k.shape[1])
    check_near(near, log_gate)
    reach = log_gate.shape[1] // 2
    beyond = log_gate.clone()  # the gate of the far part: nothing near passes
    beyond[:, reach - near : reach + near + 1] = float("-inf")
    far = segment_cross_state(k, v, beyond, key_segments, key_mask, far_tokens, feature_map)
    dtype = far.table.dtype
    if key_mask is not None:
        pads = ~key_mask[:, None, :, None]  # (B, 1, S, 1)
        k, v = k.masked_fill(pads, 0.0), v.masked_fill(pads, 0.0)
    segments = clean_segments(key_segments, key_segments, key_mask, causal=False)[1].contiguous()  # (B, S)
    if key_mask is not None:  # pads at the end of a row stand in no segment that is ever asked for
        following = key_mask.flip(1).cummax(1).values.flip(1)  # (B, S), whether a real key follows
        segments = segments.masked_fill(~following, torch.iinfo(torch.long).max // 2)
    return HybridCrossState(
        k.contiguous(), v.contiguous(), segments, key_mask, far, log_gate.to(dtype), near, feature_map
    )


@torch.no_grad()
def hybrid_cross_step(q: Tensor, segments: Tensor, state: HybridCrossState) -> Tensor:
    """Attention of the K hypotheses of each document to their source.

    q (B, H, K, d); segments (B, K) integers, the segment of each hypothesis. Returns (B, H, K, e) in the dtype of q.
    The keys read are those of 2N + 1 segments, as many for every hypothesis as the longest such range has.
    """
    batch, heads, beams, d = q.shape
    check_segments("segments", segments, batch, beams)
    length, segments = state.key.shape[2], segments.long()
    if 0 in (batch, beams, length):
        return q.new_zeros(batch, heads, beams, state.value.shape[3])
    with torch.autocast(q.device.type, enabled=False):
        first = torch.searchsorted(state.segments, segments - state.near)  # (B, K)
        end = torch.searchsorted(state.segments, segments + state.near, right=True)  # (B, K)
        width = max(1, int((end - first).max()))
        at = first.flatten()[:, None] + torch.arange(width, device=q.device)  # (B K, W)
        hidden = at >= end.flatten()[:, None]
        at = at.clamp(max=length - 1)
        document = torch.arange(batch, device=q.device).repeat_interleave(beams)  # (B K,)
        if state.mask is not None:
            hidden |= ~state.mask[document[:, None], at]
        dtype, reach = state.log_gate.dtype, state.log_gate.shape[1] // 2
        head = document[:, None] * heads + torch.arange(heads, device=q.device)  # (B K, H)
        rows = (head[:, :, None] * length + at[:, None]).flatten()  # (B K H W,)
        keys, values = (
            x.flatten(0, 2).index_select(0, rows).view(len(at), heads, width, -1).to(dtype)
            for x in (state.key, state.value)
        )  # (B K, H, W, d | e)
        query = q.transpose(1, 2).reshape(batch * beams, heads, 1, d).to(dtype)  # (B K, H, 1, d)
        distance = state.segments[document[:, None], at] - segments.flatten()[:, None]  # (B K, W)
        gate = state.log_gate[:, distance.clamp(-state.near, state.near) + reach]  # (H, B K, W)
        scores = (query * d**-0.5) @ keys.transpose(-1, -2) + gate.transpose(0, 1)[:, :, None]  # (B K, H, 1, W)
        scores = (scores * BITS).masked_fill(hidden[:, None, None], float("-inf"))
        seen = (segments - state.far.lowest).clamp(0, state.far.table.shape[1] - 1).flatten()  # (B K,)
        far = get_feature_map(state.feature_map)(query) / d @ state.far.table[document, seen]  # (B K, H, 1, e+1)
        out = join(scores, values, far)
    return out.view(batch, beams, heads, -1).transpose(1, 2).to(q.dtype)  # (B, H, K, e)
