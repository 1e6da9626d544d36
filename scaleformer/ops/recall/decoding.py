"""Step-wise attention with recall for decoding: near tokens, and the few of the others that are kept in mind."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from scaleformer.ops.common.checks import check_gate, check_step
from scaleformer.ops.recall.attention import check_recall
from scaleformer.ops.recall.near_tokens import NearTokens
from scaleformer.ops.segments.gate import HIDDEN


@dataclass
class RecallCausalState:
    """What causal attention with recall keeps of the tokens so far; t is the segment of the last one.

    recent                keys, values and saliences (c = 1) of segments t - N .. t
    kept_key, kept_value, kept_salience  (B, H, M, d), (B, H, M, e) and (B, H, M), of the tokens before those
    kept_position         (B, H, M) long
    priority              (B, H, M) theirs, falling; minus infinity where there is none
    position              how many tokens there have been
    log_gate, recency     (H, 2N+3) and (H,)
    """

    recent: NearTokens
    kept_key: Tensor
    kept_value: Tensor
    kept_salience: Tensor
    kept_position: Tensor
    priority: Tensor
    position: int
    log_gate: Tensor
    recency: Tensor

    @property
    def near(self) -> int:
        return self.log_gate.shape[1] // 2 - 1

    def reorder(self, index: Tensor) -> RecallCausalState:
        """The state whose row b is this one's row index[b]; index (B',) long."""
        names = ("kept_key", "kept_value", "kept_salience", "kept_position", "priority")
        kept = {name: getattr(self, name).index_select(0, index) for name in names}
        return replace(self, recent=self.recent.reorder(index), **kept)


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
    kept_salience = torch.zeros(batch, heads, kept, dtype=dtype, device=device)
    return RecallCausalState(
        recent=NearTokens.none(batch, heads, (d, e, 1), kept_salience),
        kept_key=kept_salience.new_zeros(batch, heads, kept, d),
        kept_value=kept_salience.new_zeros(batch, heads, kept, e),
        kept_salience=kept_salience,
        kept_position=torch.zeros_like(kept_salience, dtype=torch.long),
        priority=torch.full_like(kept_salience, float("-inf")),
        position=0,
        log_gate=log_gate.to(kept_salience).clamp(min=HIDDEN),
        recency=recency.to(kept_salience),
    )


@torch.no_grad()
def recall_causal_step(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None, salience: Tensor, segments: Tensor, state: RecallCausalState
) -> tuple[Tensor, RecallCausalState]:
    """Attention of one new token to itself and those before it.

    q, k (B, H, d), v (B, H, e), salience (B, H); segments (B,) the segment of the token in each row; rel (2R+1, d) or
    (H, 2R+1, d) or None. Returns (B, H, e) in the dtype of v and the state, which is updated in place. Raises
    ValueError if they do not fit together.
    """
    check_step(q, k, v, rel, segments, state.recent.length.shape[0])
    if salience.shape != q.shape[:2]:
        raise ValueError(f"salience has shape {tuple(salience.shape)}: it must be {tuple(q.shape[:2])}")
    d = q.shape[2]
    with torch.autocast(q.device.type, enabled=False):
        recent, near = state.recent, state.near
        rows = (segments > recent.segment).nonzero().flatten()
        if rows.numel() > 0:
            _advance(state, segments.to(recent.segment), rows)
        recent.append(k, v, salience[..., None])
        state.position += 1
        keys, values, _ = recent.used()  # (B, H, T, d | e)
        scaled = q.to(keys.dtype)[:, :, None] * d**-0.5  # (B, H, 1, d)
        offset = recent.offset()  # (B, T)
        gate = state.log_gate[:, recent.distance(near) + near + 1].transpose(0, 1)  # (B, H, T)
        scores = (scaled @ keys.transpose(-1, -2))[:, :, 0] + gate  # (B, H, T)
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
        scores = torch.cat([scores, kept], dim=-1)
        weights = scores.softmax(-1) * (scores.amax(-1, keepdim=True) > HIDDEN / 2)
        own, others = weights[:, :, None].split((recent.most, kept.shape[2]), -1)
        out = own @ values + others @ state.kept_value  # (B, H, 1, e)
    return out[:, :, 0].to(v.dtype), state


def _advance(state: RecallCausalState, segments: Tensor, rows: Tensor) -> None:
    """Begin another segment in `rows`, in place: of what is no longer near and what was kept, the highest are kept."""
    leaving = state.recent.begin(segments, rows, state.near)
    if leaving.real.shape[1] == 0:
        return
    # The newest first: among equals the sort below keeps their order.
    key, value, salience = (column.flip(2) for column in leaving.columns)  # (r, H, g, c)
    real = leaving.real.flip(1)  # (r, g)
    toward = state.recency[:, None] * leaving.numbers.flip(1)[:, None].to(key.dtype)  # (r, H, g)
    priority = (salience[..., 0] + toward).masked_fill(~real[:, None], float("-inf"))
    first = state.position - leaving.length[:, None]  # (r, 1)
    position = first + torch.arange(real.shape[1], device=rows.device).flip(0)  # (r, g)
    priority = torch.cat([priority, state.priority[rows]], dim=-1)
    priority, order = priority.sort(dim=-1, descending=True, stable=True)
    count = state.priority.shape[2]
    order = order[..., :count]  # (r, H, M)
    state.priority[rows] = priority[..., :count]
    for name, new in (
        ("kept_key", key),
        ("kept_value", value),
        ("kept_salience", salience[..., 0]),
        ("kept_position", position[:, None].expand(salience.shape[:-1])),
    ):
        kept = getattr(state, name)
        all_of_them = torch.cat([new, kept[rows]], dim=2)
        where = order if new.dim() == 3 else order[..., None]
        kept[rows] = all_of_them.take_along_dim(where, dim=2)
