"""Step-wise attention with recall to a whole source: for each of its segments, which tokens are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.checks import check_gate, check_kv, check_segments
from scaleformer.ops.recall.attention import check_recall, check_salience
from scaleformer.ops.recall.selection import RankedKeys
from scaleformer.ops.segments.gate import HIDDEN
from scaleformer.ops.segments.layout import clean_segments


@dataclass
class RecallCrossState:
    """What attention to a whole source keeps of it; it never changes while decoding.

    key, value  (B, H, S, d) and (B, H, S, e)
    salience    (B, H, S)
    segments    (B, S) long, never falling
    mask        (B, S) bool, True = real token
    borders     (B, E) long, where segments begin, and S
    kept        (B, E, H, N) long for what lies before each border, and the same for what lies after it: the positions
                of the tokens kept, S where there are fewer
    log_gate    (H, 2N+3)
    """

    key: Tensor
    value: Tensor
    salience: Tensor
    segments: Tensor
    mask: Tensor
    borders: Tensor
    kept: tuple[Tensor, Tensor]
    log_gate: Tensor

    @property
    def documents(self) -> int:
        return self.key.shape[0]

    def select(self, documents: Tensor) -> RecallCrossState:
        """The state whose row b is this one's row documents[b]; documents (B',) long."""
        names = ("key", "value", "salience", "segments", "mask", "borders")
        chosen = {name: getattr(self, name).index_select(0, documents) for name in names}
        before, after = (x.index_select(0, documents) for x in self.kept)
        return replace(self, **chosen, kept=(before, after))


@torch.no_grad()
def recall_cross_state(
    k: Tensor,
    v: Tensor,
    log_gate: Tensor,
    salience: Tensor,
    recency: Tensor,
    key_segments: Tensor,
    key_mask: Tensor | None = None,
    kept: int = 64,
) -> RecallCrossState:
    """The state of a source; no relative positions.

    k (B, H, S, d), v (B, H, S, e), log_gate (H, 2N+3), salience (B, H, S), recency (H,), key_segments (B, S), key_mask
    (B, S) bool, True = real token; `kept` tokens, half on either side.
    """
    check_kv(k, v, key_mask)
    batch, heads, length, _ = k.shape
    check_gate(log_gate, heads)
    check_recall(recency, kept, heads)
    check_salience(salience, k)
    check_segments("key_segments", key_segments, batch, length)
    if length == 0:  # one pad, since a query must point somewhere
        k, v = (functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
        salience, key_segments = (functional.pad(x, (0, 1)) for x in (salience, key_segments))
        length, key_mask = 1, torch.zeros_like(key_segments, dtype=torch.bool)
    real = torch.ones_like(key_segments, dtype=torch.bool) if key_mask is None else key_mask
    pads = ~real[:, None, :, None]  # (B, 1, S, 1)
    k, v, salience = k.masked_fill(pads, 0.0), v.masked_fill(pads, 0.0), salience.masked_fill(pads[..., 0], 0.0)
    segments = clean_segments(key_segments, key_segments, key_mask, causal=False)[1].contiguous()  # (B, S)
    dtype = torch.promote_types(salience.dtype, torch.float32)
    toward = recency.to(dtype)[:, None] * segments[:, None].to(dtype)  # (B, H, S)
    starts = torch.ones_like(segments, dtype=torch.bool)
    starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
    position = torch.arange(length, device=k.device).expand_as(segments)
    borders = torch.cat([position.masked_fill(~starts, length), position.new_full((batch, 1), length)], dim=1)
    borders = borders.sort(1).values[:, : int(starts.sum(1).max()) + 1].contiguous()  # (B, E)
    sets = []
    for after in (False, True):
        priority = salience.to(dtype) + (-toward if after else toward)  # (B, H, S)
        keys = RankedKeys(priority, real, -(-kept // 2), after)
        ranks = keys.among(length - borders if after else borders)  # (B, H, E, N)
        found = keys.positions(ranks).masked_fill(ranks < 0, length)
        sets.append(found.transpose(1, 2).contiguous())
    following = real.flip(1).cummax(1).values.flip(1)  # (B, S), whether a real token follows
    segments = segments.masked_fill(~following, torch.iinfo(torch.long).max // 2)  # the others are in no segment
    return RecallCrossState(
        k.contiguous(),
        v.contiguous(),
        salience,
        segments,
        real,
        borders,
        (sets[0], sets[1]),
        log_gate.to(dtype).clamp(min=HIDDEN),
    )


@torch.no_grad()
def recall_cross_step(q: Tensor, segments: Tensor, state: RecallCrossState) -> Tensor:
    """Attention of the K hypotheses of each document to their source.

    q (B, H, K, d); segments (B, K) integers, the segment of each hypothesis. Returns (B, H, K, e) in the dtype of q.
    The keys read are those of 2N + 1 segments, as many for every hypothesis as the longest such range has, and those
    kept.
    """
    batch, heads, beams, d = q.shape
    check_segments("segments", segments, batch, beams)
    length, reach, dtype = state.key.shape[2], state.log_gate.shape[1] // 2, state.log_gate.dtype
    segments, near = segments.long(), reach - 1
    if 0 in (batch, beams):
        return q.new_zeros(batch, heads, beams, state.value.shape[3])
    with torch.autocast(q.device.type, enabled=False):
        first = torch.searchsorted(state.segments, segments - near)  # (B, K)
        end = torch.searchsorted(state.segments, segments + near, right=True)  # (B, K)
        width = max(1, int((end - first).max()))
        row = torch.arange(batch, device=q.device).repeat_interleave(beams)  # (B K,)
        at = first.flatten()[:, None] + torch.arange(width, device=q.device)  # (B K, W)
        at = torch.where(at < end.flatten()[:, None], at, length)
        before, after = (
            x[row, torch.searchsorted(state.borders, border).clamp(max=x.shape[1] - 1).flatten()]
            for x, border in zip(state.kept, (first, end), strict=True)
        )  # (B K, H, N)
        at = torch.cat([before, at[:, None].expand(-1, heads, -1), after], dim=-1)  # (B K, H, n)
        hidden, at = at == length, at.clamp(max=length - 1)
        hidden |= ~state.mask[row[:, None, None], at]
        rows = ((row[:, None] * heads + torch.arange(heads, device=q.device))[:, :, None] * length + at).flatten()
        keys, values = (
            x.flatten(0, 2).index_select(0, rows).view(*at.shape, -1).to(dtype) for x in (state.key, state.value)
        )  # (B K, H, n, d | e)
        query = q.transpose(1, 2).reshape(len(row), heads, 1, d).to(dtype) * d**-0.5  # (B K, H, 1, d)
        distance = (state.segments[row[:, None, None], at] - segments.flatten()[:, None, None]).clamp(-reach, reach)
        head = torch.arange(heads, device=q.device)[:, None]
        bias = state.log_gate[head, distance + reach]  # (B K, H, n)
        salience = state.salience.flatten().index_select(0, rows).view(at.shape).to(dtype)
        bias = bias + torch.where(distance.abs() == reach, salience, 0.0)
        scores = (query @ keys.transpose(-1, -2))[:, :, 0] + bias  # (B K, H, n)
        scores = scores.masked_fill(hidden, HIDDEN)
        weights = scores.softmax(-1) * (scores.amax(-1, keepdim=True) > HIDDEN / 2)
        out = (weights[:, :, None] @ values)[:, :, 0]
    return out.view(batch, beams, heads, -1).transpose(1, 2).to(q.dtype)  # (B, H, K, e)
