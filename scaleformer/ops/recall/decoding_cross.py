"""Step-wise attention with recall to a whole source: which tokens are kept for each of its segments."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.checks import check_gate, check_kv, check_segments
from scaleformer.ops.common.precision import full_precision
from scaleformer.ops.recall.attention import check_recall, check_salience
from scaleformer.ops.recall.selection import RankedKeys, ends_of
from scaleformer.ops.segments.gate import HIDDEN
from scaleformer.ops.segments.layout import clean_segments


@dataclass
class Seen:
    """The source tokens that hypotheses see from their current segments; M = B*K rows, or B if all K see the same.

    segments  (M,) long
    keys      (M, H, d, n), n the most tokens that any row sees
    values    (M, H, n, e)
    bias      (M, H, n) added to the score of a slot: the gate, and for kept tokens the salience; HIDDEN for empty slots
    blind     whether some row may see nothing
    """

    segments: Tensor
    keys: Tensor
    values: Tensor
    bias: Tensor
    blind: bool

    def attend(self, query: Tensor) -> Tensor:
        """The attention of K queries of each row, (M, H, K, d) -> (M, H, K, e)."""
        bias = self.bias.flatten(0, 1)[:, None]  # (M*H, 1, n)
        flat = query.flatten(0, 1).to(bias.dtype)  # (M*H, K, d)
        scores = torch.baddbmm(bias, flat, self.keys.flatten(0, 1), alpha=query.shape[3] ** -0.5)  # (M*H, K, n)
        weights = scores.softmax(-1)
        if self.blind:
            weights = weights * (scores.amax(-1, keepdim=True) > HIDDEN / 2)
        return torch.bmm(weights, self.values.flatten(0, 1)).view(*query.shape[:3], -1)

    def step(self, query: Tensor, segments: Tensor) -> Tensor:
        """Attention of K hypotheses for each row, all still in its segment: (M*K, H, d) -> (M*K, H, e)."""
        query = query.view(len(self.segments), -1, *query.shape[1:]).transpose(1, 2)  # (M, H, K, d)
        return self.attend(query).transpose(1, 2).flatten(0, 1)

    def reorder(self, rows: Tensor) -> Seen:
        """The rows of these numbers."""
        segments, keys, values, bias = (
            x.index_select(0, rows) for x in (self.segments, self.keys, self.values, self.bias)
        )
        return Seen(segments, keys, values, bias, self.blind)


class Kept(NamedTuple):
    """The tokens kept from before and from after each border.

    borders        (B, E) long, where segments begin, and S
    before, after  (B, E, H, N) long, positions of tokens; S in unused places
    """

    borders: Tensor
    before: Tensor
    after: Tensor


@dataclass
class RecallCrossState:
    """Decoding state of attention to a whole source. Only `seen` changes while decoding.

    key, value  (B, H, S, d) and (B, H, S, e)
    salience    (B, H, S)
    segments    (B, S) long, never decreasing
    mask        (B, S) bool, True = real token
    length      (B,) long, up to the last real token
    log_gate, recency  (H, 2N+3) and (H,)
    count       tokens kept on either side
    kept        the kept far tokens; chosen when some hypothesis first has far tokens
    seen        by the hypotheses of the last step; gathered again for those that begin a new segment
    """

    key: Tensor
    value: Tensor
    salience: Tensor
    segments: Tensor
    mask: Tensor
    length: Tensor
    log_gate: Tensor
    recency: Tensor
    count: int
    kept: Kept | None = None
    seen: Seen | None = None

    @property
    def documents(self) -> int:
        return self.key.shape[0]

    def reorder(self, documents: Tensor) -> RecallCrossState:
        """The state whose row b is this one's row documents[b]; documents (B',) long."""
        names = ("key", "value", "salience", "segments", "mask", "length")
        chosen = {name: getattr(self, name).index_select(0, documents) for name in names}
        kept = None if self.kept is None else Kept(*(x.index_select(0, documents) for x in self.kept))
        return replace(self, **chosen, kept=kept, seen=None)

    def step(self, query: Tensor, segments: Tensor) -> Tensor:
        """Attention of K hypotheses for each document: query (B*K, H, d), segments (B*K,); returns (B*K, H, e) in the
        dtype of the state."""
        by_document = segments.view(self.documents, -1)  # (B, K); in one segment they are K queries to the same keys
        if by_document.shape[1] > 1 and torch.equal(by_document, by_document[:, :1].expand_as(by_document)):
            segments = by_document[:, 0]
        return self._look(segments).step(query, segments)

    def rows(self, documents: Tensor, segments: Tensor) -> Seen:
        """What a hypothesis of each of the documents (n,) sees as long as it is in its segment (n,)."""
        keys, values, bias = self._gather(documents, segments)
        return Seen(segments, keys, values, bias, bool((bias.amax(2) <= HIDDEN / 2).any()))

    def _look(self, flat: Tensor) -> Seen:
        """What hypotheses in the segments `flat` (M,) see."""
        seen = self.seen
        if seen is not None and torch.equal(seen.segments, flat):
            return seen
        if seen is None or len(seen.segments) != len(flat):
            rows = torch.arange(len(flat), device=flat.device)
        else:
            rows = (seen.segments != flat).nonzero()[:, 0]
        keys, values, bias = self._gather(rows // (len(flat) // self.documents), flat[rows])
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
        """Keys (r, H, d, n), values (r, H, n, e) and bias (r, H, n): all tokens of 2N + 1 segments, and the kept tokens
        of the others, for hypotheses of `documents` (r,) in `segments` (r,)."""
        _, heads, length, _ = self.key.shape
        reach = self.log_gate.shape[1] // 2
        near = reach - 1
        theirs = self.segments[documents]  # (r, S)
        first = torch.searchsorted(theirs, segments[:, None] - near)  # (r, 1)
        end = torch.searchsorted(theirs, segments[:, None] + near, right=True)  # (r, 1)
        width = max(1, int((end - first).max()))
        at = first + torch.arange(width, device=segments.device)  # (r, W)
        at = torch.where(at < end, at, length)[:, None].expand(-1, heads, -1)
        # something is far
        if self.count and bool((first > 0).any() | (end[:, 0] < self.length[documents]).any()):
            kept = self.kept = self.kept or self._choose()
            borders = kept.borders[documents]
            before, after = (
                x[documents, torch.searchsorted(borders, border).clamp(max=x.shape[1] - 1)[:, 0]]
                for x, border in ((kept.before, first), (kept.after, end))
            )  # (r, H, N)
            at = torch.cat([before, at, after], dim=-1)  # (r, H, n)
        row = documents[:, None, None]
        hidden, at = at == length, at.clamp(max=length - 1)
        hidden |= ~self.mask[row, at]
        there = (~hidden).flatten(0, 1).any(0)  # (n,)
        if not there.all():  # drop slots that are empty in every row, where few or no tokens are far
            there[int(there.int().argmax())] = True  # keep at least one
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

    def _choose(self) -> Kept:
        batch, length = self.segments.shape
        starts = torch.ones_like(self.mask)
        starts[:, 1:] = self.segments[:, 1:] != self.segments[:, :-1]
        position = torch.arange(length, device=starts.device).expand_as(starts)
        borders = torch.cat([position.masked_fill(~starts, length), position.new_full((batch, 1), length)], dim=1)
        borders = borders.sort(1).values[:, : int(starts.sum(1).max()) + 1]
        borders = borders.clone(memory_format=torch.contiguous_format)  # (B, E), without the rest
        dtype = self.log_gate.dtype
        toward = self.recency[:, None] * self.segments.masked_fill(~self.mask, 0)[:, None].to(dtype)  # (B, H, S)
        sets = []
        for after in (False, True):
            priority = self.salience.to(dtype) + (-toward if after else toward)  # (B, H, S)
            keys = RankedKeys(priority, self.mask, self.count, after)
            ranks = keys.among(ends_of(length - borders if after else borders, length))  # (B, H, E, N)
            found = keys.positions(ranks).masked_fill(ranks < 0, length)
            sets.append(found.transpose(1, 2).contiguous())
        return Kept(borders, *sets)


@torch.no_grad()
def recall_cross_state(
    k: Tensor, v: Tensor, log_gate: Tensor, salience: Tensor, recency: Tensor, key_segments: Tensor,
    key_mask: Tensor | None = None, kept: int = 64,
) -> RecallCrossState:  # fmt: skip
    """The state of a source, without relative positions.

    k (B, H, S, d), v (B, H, S, e), log_gate (H, 2N+3), salience (B, H, S), recency (H,), key_segments (B, S), key_mask
    (B, S) bool, True = real token; `kept` tokens, half on either side.
    """
    check_kv(k, v, key_mask)
    batch, heads, length, _ = k.shape
    check_gate(log_gate, heads)
    check_recall(recency, kept, heads)
    check_salience(salience, k)
    check_segments("key_segments", key_segments, batch, length)
    if length == 0:  # one pad, since a query needs a key to point to
        k, v = (functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
        salience, key_segments = (functional.pad(x, (0, 1)) for x in (salience, key_segments))
        length, key_mask = 1, torch.zeros_like(key_segments, dtype=torch.bool)
    real = torch.ones_like(key_segments, dtype=torch.bool) if key_mask is None else key_mask
    pads = ~real[:, None, :, None]  # (B, 1, S, 1)
    k, v, salience = k.masked_fill(pads, 0.0), v.masked_fill(pads, 0.0), salience.masked_fill(pads[..., 0], 0.0)
    segments = clean_segments(key_segments, key_segments, key_mask, causal=False)[1].contiguous()  # (B, S)
    # Pads after the last real token are in no segment.
    segments = segments.masked_fill(~real.flip(1).cummax(1).values.flip(1), torch.iinfo(torch.long).max // 2)
    position = torch.arange(1, length + 1, device=k.device)
    dtype = torch.promote_types(salience.dtype, torch.float32)
    return RecallCrossState(
        k.contiguous(), v.contiguous(), salience, segments, real, (position * real).amax(1),
        log_gate.to(dtype).clamp(min=HIDDEN), recency.to(dtype), -(-kept // 2),
    )  # fmt: skip


@torch.no_grad()
def recall_cross_step(q: Tensor, segments: Tensor, state: RecallCrossState) -> Tensor:
    """Attention of the K hypotheses of each document to their source. q (B, H, K, d); segments (B, K) integers, the
    segment of each hypothesis. Returns (B, H, K, e) in the dtype of q. A step reads the keys of 2N + 1 segments, for
    every hypothesis as many as the longest such range has, and the kept keys."""
    batch, heads, beams, _ = q.shape
    check_segments("segments", segments, batch, beams)
    if 0 in (batch, beams):
        return q.new_zeros(batch, heads, beams, state.value.shape[3])
    with full_precision(q.device):
        out = state.step(q.transpose(1, 2).flatten(0, 1), segments.flatten().long())  # (B*K, H, e)
    return out.view(batch, beams, heads, -1).transpose(1, 2).to(q.dtype)  # (B, H, K, e)
