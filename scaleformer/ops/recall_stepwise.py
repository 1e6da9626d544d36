"""Step-wise attention with recall for decoding: near tokens, and the few of the others that are kept in mind."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.checks import check_gate, check_segments
from scaleformer.ops.segment_plan import NO_SEGMENT
from scaleformer.ops.segment_recall import check_recall

_FIRST_ROOM = 32


@dataclass
class RecallCausalState:
    """What causal attention with recall keeps of the tokens so far; t is the segment of the last one.

    key, value, salience  (B, H, T, d), (B, H, T, e) and (B, H, T), the tokens of segments t - N .. t, in order
    numbers               (B, T) long, their segments
    length                (B,) long, how many they are; T holds the most of any row, and doubles when it no longer does
    most                  at least the greatest `length`
    kept_key, kept_value, kept_salience  (B, H, M, d), (B, H, M, e) and (B, H, M), of the tokens before those
    kept_position         (B, H, M) long
    priority              (B, H, M) theirs, falling; minus infinity where there is none
    position              how many tokens there have been
    segment               (B,) long, t
    log_gate, recency     (H, 2N+3) and (H,)
    """

    key: Tensor
    value: Tensor
    salience: Tensor
    numbers: Tensor
    length: Tensor
    most: int
    kept_key: Tensor
    kept_value: Tensor
    kept_salience: Tensor
    kept_position: Tensor
    priority: Tensor
    position: int
    segment: Tensor
    log_gate: Tensor
    recency: Tensor

    @property
    def near(self) -> int:
        return self.log_gate.shape[1] // 2 - 1

    def reorder(self, index: Tensor) -> RecallCausalState:
        """The state whose row b is this one's row index[b]; index (B',) long."""
        near = ("key", "value", "salience", "numbers", "length", "segment")
        names = (*near, "kept_key", "kept_value", "kept_salience", "kept_position", "priority")
        return replace(self, **{name: getattr(self, name).index_select(0, index) for name in names})


@torch.no_grad()
def recall_causal_init(
    batch: int,
    heads: int,
    d: int,
    e: int,
    log_gate: Tensor,
    recency: Tensor,
    kept: int = 64,
    device: torch.device | str | None = None,
    dtype: torch.dtype = torch.float32,
) -> RecallCausalState:
    """The state before the first token; log_gate (H, 2N+3), recency (H,)."""
    check_gate(log_gate, heads)
    check_recall(recency, kept, heads)
    key = torch.zeros(batch, heads, _FIRST_ROOM, d, dtype=dtype, device=device)
    kept_salience = key.new_zeros(batch, heads, kept)
    return RecallCausalState(
        key=key,
        value=key.new_zeros(batch, heads, _FIRST_ROOM, e),
        salience=key.new_zeros(batch, heads, _FIRST_ROOM),
        numbers=torch.zeros(batch, _FIRST_ROOM, dtype=torch.long, device=device),
        length=torch.zeros(batch, dtype=torch.long, device=device),
        most=0,
        kept_key=key.new_zeros(batch, heads, kept, d),
        kept_value=key.new_zeros(batch, heads, kept, e),
        kept_salience=kept_salience,
        kept_position=torch.zeros_like(kept_salience, dtype=torch.long),
        priority=torch.full_like(kept_salience, float("-inf")),
        position=0,
        segment=torch.full((batch,), NO_SEGMENT, device=device),
        log_gate=log_gate.to(key),
        recency=recency.to(key),
    )


@torch.no_grad()
def recall_causal_step(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None, salience: Tensor, segments: Tensor, state: RecallCausalState
) -> tuple[Tensor, RecallCausalState]:
    """Attention of one new token to itself and those before it.

    q, k (B, H, d), v (B, H, e), salience (B, H); segments (B,) the segment of the token in each row; rel (2R+1, d) or
    (H, 2R+1, d) or None. Returns (B, H, e) in the dtype of v and the state, which is updated in place.
    """
    batch, _, d = q.shape
    check_segments("segments", segments[:, None], batch, 1)
    with torch.autocast(q.device.type, enabled=False):
        rows = (segments > state.segment).nonzero().flatten()
        if rows.numel() > 0:
            _advance(state, segments.to(state.segment), rows)
        _append(state, k, v, salience)
        used, near = slice(0, state.most), state.near
        scaled = q.to(state.key.dtype)[:, :, None] * d**-0.5  # (B, H, 1, d)
        offset = torch.arange(state.most, device=q.device) - state.length[:, None] + 1  # (B, T), 0 the new token's own
        distance = (state.numbers[:, used] - state.segment[:, None]).clamp(-near, 0)  # (B, T)
        gate = state.log_gate[:, distance + near + 1].transpose(0, 1)  # (B, H, T)
        scores = (scaled @ state.key[:, :, used].transpose(-1, -2))[:, :, 0] + gate  # (B, H, T)
        kept = (scaled @ state.kept_key.transpose(-1, -2))[:, :, 0] + state.kept_salience + state.log_gate[:, :1]
        if rel is not None:
            horizon = rel.shape[-2] // 2
            by_distance = (scaled @ rel.to(scaled.dtype).transpose(-1, -2))[:, :, 0]  # (B, H, 2R+1)
            place = (offset.clamp(-horizon, 0) + horizon)[:, None].expand_as(scores)
            scores = scores + by_distance.gather(-1, place)  # (B, H, T)
            place = (state.kept_position - state.position + 1).clamp(-horizon, 0) + horizon
            kept = kept + by_distance.gather(-1, place)  # (B, H, M)
        scores = scores.masked_fill((offset > 0)[:, None], float("-inf"))
        kept = kept.masked_fill(state.priority == float("-inf"), float("-inf"))
        own, others = torch.cat([scores, kept], dim=-1).softmax(-1)[:, :, None].split((state.most, kept.shape[2]), -1)
        out = own @ state.value[:, :, used] + others @ state.kept_value  # (B, H, 1, e)
    return out[:, :, 0].to(v.dtype), state


def _append(state: RecallCausalState, k: Tensor, v: Tensor, salience: Tensor) -> None:
    """Write the new token behind the others of its row, in place."""
    state.most += 1
    state.position += 1
    room = state.key.shape[2]
    if state.most > room:
        state.key, state.value = (functional.pad(x, (0, 0, 0, room)) for x in (state.key, state.value))
        state.salience, state.numbers = (functional.pad(x, (0, room)) for x in (state.salience, state.numbers))
    row = torch.arange(k.shape[0], device=k.device)
    state.key[row, :, state.length] = k.to(state.key)
    state.value[row, :, state.length] = v.to(state.value)
    state.salience[row, :, state.length] = salience.to(state.salience)
    state.numbers[row, state.length] = state.segment
    state.length += 1


def _advance(state: RecallCausalState, segments: Tensor, rows: Tensor) -> None:
    """Begin another segment in `rows`, in place: of what is no longer near and what was kept, the highest are kept."""
    used = slice(0, state.most)
    key, value, numbers = state.key[rows, :, used], state.value[rows, :, used], state.numbers[rows, used]
    salience, length = state.salience[rows, :, used], state.length[rows]
    place = torch.arange(state.most, device=rows.device)  # (T,)
    leaving = (segments[rows, None] - numbers > state.near) & (place < length[:, None])  # (r, T), first in each row
    dropped = leaving.sum(1)  # (r,)
    most = int(dropped.max()) if len(rows) else 0
    if most:
        # The newest first: among equals the sort below keeps their order.
        gone = slice(0, most)
        toward = state.recency[:, None] * numbers[:, None, gone].to(key.dtype)  # (r, H, g)
        priority = (salience[:, :, gone] + toward).masked_fill(~leaving[:, None, gone], float("-inf")).flip(-1)
        position = (state.position - length[:, None] + place[gone]).flip(-1)[:, None].expand(priority.shape)
        priority = torch.cat([priority, state.priority[rows]], dim=-1)
        priority, order = priority.sort(dim=-1, descending=True, stable=True)
        count = state.priority.shape[2]
        order = order[..., :count]  # (r, H, M)
        state.priority[rows] = priority[..., :count]
        for name, new in (
            ("kept_key", key[:, :, gone].flip(2)),
            ("kept_value", value[:, :, gone].flip(2)),
            ("kept_salience", salience[:, :, gone].flip(2)),
            ("kept_position", position),
        ):
            kept = getattr(state, name)
            all_of_them = torch.cat([new, kept[rows]], dim=2)
            where = order if new.dim() == 3 else order[..., None]
            kept[rows] = all_of_them.take_along_dim(where, dim=2)

    following = (place + dropped[:, None]).clamp(max=max(state.most - 1, 0))  # (r, T)
    state.key[rows, :, used] = key.take_along_dim(following[:, None, :, None], dim=2)
    state.value[rows, :, used] = value.take_along_dim(following[:, None, :, None], dim=2)
    state.salience[rows, :, used] = salience.take_along_dim(following[:, None], dim=2)
    state.numbers[rows, used] = numbers.gather(1, following)
    state.length[rows] -= dropped
    state.most = int(state.length.max())
    state.segment[rows] = segments[rows]
