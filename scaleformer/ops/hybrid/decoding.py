"""Step-wise hybrid attention for decoding: keys and values of the near segments, states of the far ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.checks import check_gate, check_positive, check_step
from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.hybrid.join import BITS, join
from scaleformer.ops.recall.near_tokens import NearTokens
from scaleformer.ops.segments.gate import far_scale
from scaleformer.ops.segments.tiles import check_near


@dataclass
class HybridCausalState:
    """What causal hybrid attention keeps of the tokens so far; t is the segment of the last one.

    A_s is the sum of phi(k) (x) [v, 1] over segment s.

    recent    keys and values of segments t - N .. t
    far       (B, G-N, H, d, e+1) A_(t-N-1) .. A_(t-G+1), and last the sum of all segments before those
    counts    (B, G-N) how many tokens these have
    past      (B, H, d, e+1) `far`, each times its gate as seen from t, the last one scaled
    log_gate  (H, 2G+1)
    """

    recent: NearTokens
    far: Tensor
    counts: Tensor
    past: Tensor
    log_gate: Tensor
    near: int
    far_tokens: float
    feature_map: str

    def reorder(self, index: Tensor) -> HybridCausalState:
        """The state whose row b is this one's row index[b]; index (B',) long."""
        far = {name: getattr(self, name).index_select(0, index) for name in ("far", "counts", "past")}
        return replace(self, recent=self.recent.reorder(index), **far)


@torch.no_grad()
def hybrid_causal_init(
    batch: int,
    heads: int,
    d: int,
    e: int,
    log_gate: Tensor,
    near: int = 1,
    device: torch.device | str | None = None,
    far_tokens: float = 20,
    feature_map: str = "elu1",
    dtype: torch.dtype = torch.float32,
) -> HybridCausalState:
    """The state before the first token; log_gate (H, 2G+1), N = `near` below G."""
    check_gate(log_gate, heads)
    check_near(near, log_gate)
    check_positive("far_tokens", far_tokens)
    get_feature_map(feature_map)
    reach = log_gate.shape[1] // 2
    past = torch.zeros(batch, heads, d, e + 1, dtype=dtype, device=device)
    return HybridCausalState(
        recent=NearTokens.none(batch, heads, (d, e), past),
        far=past.new_zeros(batch, reach - near, heads, d, e + 1),
        counts=past.new_zeros(batch, reach - near),
        past=past,
        log_gate=log_gate.to(past),
        near=near,
        far_tokens=far_tokens,
        feature_map=feature_map,
    )


@torch.no_grad()
def hybrid_causal_step(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None, segments: Tensor, state: HybridCausalState
) -> tuple[Tensor, HybridCausalState]:
    """Attention of one new token to itself and those before it.

    q, k (B, H, d), v (B, H, e); segments (B,) the segment of the token in each row; rel (2R+1, d) or (H, 2R+1, d) or
    None. Returns (B, H, e) in the dtype of v and the state, which is updated in place. Raises ValueError if they do not
    fit together.
    """
    check_step(q, k, v, rel, segments, state.recent.length.shape[0])
    d = q.shape[2]
    with torch.autocast(q.device.type, enabled=False):
        recent = state.recent
        rows = (segments > recent.segment).nonzero().flatten()
        if rows.numel() > 0:
            _advance(state, segments.to(recent.segment), rows)
        recent.append(k, v)
        keys, values = recent.used()  # (B, H, T, d | e)
        query = q.to(keys.dtype)[:, :, None]  # (B, H, 1, d)
        scaled = query * d**-0.5
        scores = scaled @ keys.transpose(-1, -2)  # (B, H, 1, T)
        offset = recent.offset()  # (B, T)
        if rel is not None:
            horizon = rel.shape[-2] // 2
            by_distance = scaled @ rel.to(keys.dtype).transpose(-1, -2)  # (B, H, 1, 2R+1)
            place = (offset.clamp(-horizon, 0) + horizon)[:, None, None].expand_as(scores)
            scores = scores + by_distance.gather(-1, place)  # (B, H, 1, T)
        reach = state.log_gate.shape[1] // 2
        gate = state.log_gate[:, recent.distance(state.near) + reach].transpose(0, 1)[:, :, None]  # (B, H, 1, T)
        scores = ((scores + gate) * BITS).masked_fill((offset > 0)[:, None, None], float("-inf"))
        far = get_feature_map(state.feature_map)(query) / d @ state.past  # (B, H, 1, e+1)
        out = join(scores, values, far)
    return out[:, :, 0].to(v.dtype), state


def _advance(state: HybridCausalState, segments: Tensor, rows: Tensor) -> None:
    """Begin another segment in `rows`, in place: what is no longer near goes to the far states, and these move on."""
    near, slots, dtype = state.near, state.far.shape[1], state.far.dtype
    steps = (segments - state.recent.segment)[rows].clamp(max=slots)  # (r,)
    target = (torch.arange(slots, device=rows.device) + steps[:, None]).clamp(max=slots - 1)  # (r, G-N)
    move = functional.one_hot(target, slots).transpose(1, 2).to(dtype)  # (r, G-N, G-N)
    far = (move @ state.far[rows].flatten(2)).view(-1, *state.far.shape[1:])  # (r, G-N, H, d, e+1)
    counts = (move @ state.counts[rows][:, :, None])[:, :, 0]  # (r, G-N)

    leaving = state.recent.begin(segments, rows, near)
    key, value = leaving.columns  # (r, H, g, d | e)
    slot = (segments[rows, None] - leaving.numbers - near - 1).clamp(0, slots - 1)  # (r, g)
    at = (functional.one_hot(slot, slots) * leaving.real[:, :, None]).to(dtype)  # (r, g, G-N)
    features = get_feature_map(state.feature_map)(key).transpose(-1, -2)  # (r, H, d, g)
    u = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)  # (r, H, g, e+1)
    for x in range(slots):
        far[:, x] += features @ (u * at[:, None, :, x, None])  # (r, H, d, e+1)
    counts += at.sum(1)
    state.far[rows], state.counts[rows] = far, counts
    state.past[rows] = _weigh(far, counts, state)


def _weigh(far: Tensor, counts: Tensor, state: HybridCausalState) -> Tensor:
    """The far states (r, G-N, H, d, e+1), of (r, G-N) tokens, as the next token will see them: (r, H, d, e+1)."""
    gate = state.log_gate[:, : far.shape[1]].exp().flip(1)  # (H, G-N), distances -N-1 .. -G
    scale = torch.ones_like(counts)  # (r, G-N)
    scale[:, -1] = far_scale(counts[:, -1], state.far_tokens, far.dtype)
    return torch.einsum("rx,hx,rxhde->rhde", scale, gate, far)
