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
class Seen:
    """What hypotheses see of their sources in the segments that they are in; M = B*K of them.

    segments  (M,) long
    keys      (M, H, d, n), of as many slots as the one that sees most needs
    values    (M, H, n, e)
    bias      (M, H, n) what is added to the score of a slot: the gate, and the salience of what is kept; HIDDEN for
              those that are empty
    blind     whether one of them may see nothing at all
    """

    segments: Tensor
    keys: Tensor
    values: Tensor
    bias: Tensor
    blind: bool


@dataclass
class RecallCrossState:
    """What attention to a whole source keeps of it; but for `seen` it never changes while decoding.

    key, value  (B, H, S, d) and (B, H, S, e)
    salience    (B, H, S)
    segments    (B, S) long, never falling
    mask        (B, S) bool, True = real token
    borders     (B, E) long, where segments begin, and S
    kept        (B, E, H, N) long for what lies before each border, and the same for what lies after it: the positions
                of the tokens kept, S where there are fewer
    log_gate    (H, 2N+3)
    seen        by the hypotheses of the last step; gathered anew for those that begin another segment
    """

    key: Tensor
    value: Tensor
    salience: Tensor
    segments: Tensor
    mask: Tensor
    borders: Tensor
    kept: tuple[Tensor, Tensor]
    log_gate: Tensor
    seen: Seen | None = None

    @property
    def documents(self) -> int:
        return self.key.shape[0]

    def select(self, documents: Tensor) -> RecallCrossState:
        """The state whose row b is this one's row documents[b]; documents (B',) long."""
        names = ("key", "value", "salience", "segments", "mask", "borders")
        chosen = {name: getattr(self, name).index_select(0, documents) for name in names}
        before, after = (x.index_select(0, documents) for x in self.kept)
        return replace(self, **chosen, kept=(before, after), seen=None)

    def look(self, segments: Tensor) -> Seen:
        """What the K hypotheses of each document see, which are in `segments` (B, K)."""
        flat = segments.flatten()
        seen = self.seen
        if seen is not None and torch.equal(seen.segments, flat):
            return seen
        if seen is None or len(seen.segments) != len(flat):
            rows = torch.arange(len(flat), device=flat.device)
        else:
            rows = (seen.segments != flat).nonzero()[:, 0]
        keys, values, bias = self._gather(rows // segments.shape[1], flat[rows])
        blind = bool((bias.amax(2) <= HIDDEN / 2).any())
        if seen is None or len(rows) == len(flat):
            self.seen = Seen(flat, keys, values, bias, blind)
            return self.seen
        missing = bias.shape[2] - seen.bias.shape[2]
        if missing > 0:
            seen.keys = functional.pad(seen.keys, (0, missing))
            seen.values = functional.pad(seen.values, (0, 0, 0, missing))
            seen.bias = functional.pad(seen.bias, (0, missing), value=HIDDEN)
        slots = bias.shape[2]
        seen.keys[rows, ..., :slots], seen.values[rows, :, :slots], seen.bias[rows, :, :slots] = keys, values, bias
        seen.bias[rows, :, slots:] = HIDDEN
        seen.segments, seen.blind = flat, seen.blind or blind
        return seen

    def _gather(self, documents: Tensor, segments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Keys (r, H, d, n), values (r, H, n, e) and their bias (r, H, n): all of 2N + 1 segments, and those kept of the others, for
        hypotheses of `documents` (r,) that are in `segments` (r,)."""
        _, heads, length, _ = self.key.shape
        reach = self.log_gate.shape[1] // 2
        near = reach - 1
        theirs = self.segments[documents]  # (r, S)
        first = torch.searchsorted(theirs, segments[:, None] - near)  # (r, 1)
        end = torch.searchsorted(theirs, segments[:, None] + near, right=True)  # (r, 1)
        width = max(1, int((end - first).max()))
        at = first + torch.arange(width, device=segments.device)  # (r, W)
        at = torch.where(at < end, at, length)[:, None].expand(-1, heads, -1)
        borders = self.borders[documents]
        before, after = (
            x[documents, torch.searchsorted(borders, border).clamp(max=x.shape[1] - 1)[:, 0]]
            for x, border in zip(self.kept, (first, end), strict=True)
        )  # (r, H, N)
        at = torch.cat([before, at, after], dim=-1)  # (r, H, n)
        row = documents[:, None, None]
        hidden, at = at == length, at.clamp(max=length - 1)
        hidden |= ~self.mask[row, at]
        there = (~hidden).flatten(0, 1).any(0)  # (n,)
        if not there.all():  # slots that are empty for all: few tokens are far, or none
            there[int(there.int().argmax())] = True  # one at least
            at, hidden = at[..., there], hidden[..., there]
        head = torch.arange(heads, device=segments.device)[:, None]
        rows = (row * heads + head) * length + at  # (r, H, n)
        distance = (self.segments[row, at] - segments[:, None, None]).clamp(-reach, reach)
        bias = self.log_gate[head, distance + reach]  # (r, H, n)
        salience = self.salience.flatten()[rows].to(bias)
        bias = (bias + torch.where(distance.abs() == reach, salience, 0.0)).masked_fill_(hidden, HIDDEN)
        keys, values = (
            x.flatten(0, 2).index_select(0, rows.flatten()).view(*at.shape, -1).to(bias) for x in (self.key, self.value)
        )  # (r, H, n, d | e)
        return keys.transpose(2, 3).contiguous(), values, bias


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
    if 0 in (batch, beams):
        return q.new_zeros(batch, heads, beams, state.value.shape[3])
    with torch.autocast(q.device.type, enabled=False):
        seen = state.look(segments.long())
        query = q.transpose(1, 2).reshape(-1, 1, d).to(seen.bias.dtype)  # (B*K*H, 1, d)
        bias = seen.bias.view(len(query), 1, -1)  # (B*K*H, 1, n)
        scores = torch.baddbmm(bias, query, seen.keys.flatten(0, 1), alpha=d**-0.5)
        weights = scores.softmax(-1)
        if seen.blind:
            weights = weights * (scores.amax(-1, keepdim=True) > HIDDEN / 2)
        out = torch.bmm(weights, seen.values.flatten(0, 1))  # (B*K*H, 1, e)
    return out.view(batch, beams, heads, -1).transpose(1, 2).to(q.dtype)  # (B, H, K, e)
