"""Softmax over the segments near the matching one and over the most salient far tokens: our own, linear in length.

Recall is a top-k memory of the far tokens: `kept` is its size k, and salience the learned importance by which tokens
are chosen.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from scaleformer.model.attention.base import Attention, OwnState
from scaleformer.model.attention.estimates import Extent, Held, most_of
from scaleformer.model.attention.options import log_gate, relative_embedding
from scaleformer.model.attention.state import FIRST_ROOM
from scaleformer.ops.common.precision import full_precision
from scaleformer.ops.recall.attention import RECALL_ALGORITHMS, segment_recall_attention
from scaleformer.ops.recall.decoding import RecallCausalState, recall_causal_init, relative_excess
from scaleformer.ops.recall.decoding_cross import RecallCrossState, Seen, recall_cross_state
from scaleformer.ops.recall.decoding_text import recall_causal_states
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.system.schema import Natural, OneOf, Positive, Range

SHUT = 1e-30  # the gate of what is not seen: a factor can begin there and open in a few steps, its logarithm could not
_RECENCY = (0.0, 0.1, 0.3, 1.0)  # repeated over the heads: from the most salient tokens to the most recent


class SegmentRecallAttention(Attention):
    """out_i = sum_j s_ij V_j / sum_j s_ij, where x = sigma_j - tau_i is the distance in segments and

        s_ij = exp(log g(x) + Q_i . (K_j + P_clip(j-i, -R, R)) / sqrt(d))          for |x| <= near,
        s_ij = exp(log g(x) + b_j + Q_i . (K_j + P_clip(j-i, -R, R)) / sqrt(d))    for the `kept` far tokens,

    and 0 for all others. The salience b_j = w . K_j, w learned for each head, is a token's importance to any query. The
    kept tokens are the far tokens of highest b_j + r sigma_j before the query; bidirectional attention keeps half of
    them before it and half, of highest b_j - r sigma_j, after it. The slope r is 0, 0.1, 0.3 or 1 times `recency`, head
    by head: some heads keep the most salient tokens of the whole document, others the most recent. So attention is an
    exact softmax over a fixed number of tokens: linear, with a decoding state of fixed size (except for the source, in
    cross-attention). If every far token can be kept, it is softmax over the whole document. Cross-attention has no P.

    near       all tokens within this many segments of the query's own are seen; 0: its own segment only
    horizon    R
    slope      initial slope of g: log g(x) = -slope_h |x|, slope_h = slope * (0.5, 1, 2, 4) over the heads
    kept       far tokens that a query sees
    recency    scale of r, above; 0 selects by salience alone
    explore    in training: scale of the noise on the choice, so that every token can learn (`segment_recall_attention`)
    algorithm  as in `segment_recall_attention`
    document_layers  the top layers of encoder and of decoder that see the document; those below them see their own
                     segment alone. None: all see it
    shut       g is 0 at first but for the own segment: a factor that opens where it helps; `slope` has no effect
    """

    held: ClassVar[Held] = Held(tiles=700, aside=3)
    resumes: ClassVar[bool] = True
    log_gate: Any
    salience: Tensor
    recency: Tensor

    def __init__(
        self, site: str, width: int, heads: int, near: Natural = 3, horizon: Positive = 16, slope: float = 1.0,
        kept: Positive = 64, recency: Annotated[float, Range(ge=0)] = 1.0, explore: Annotated[float, Range(ge=0)] = 1.0,
        algorithm: Annotated[str, OneOf(RECALL_ALGORITHMS)] = "auto", document_layers: Natural | None = None,
        shut: bool = False, layer: int = 0, layers: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(site, width, heads)
        self.own_segment = document_layers is not None and layer < layers - document_layers
        self.kept = 0 if self.own_segment else kept
        self.explore = explore
        self.algorithm = algorithm
        if site != "cross":
            self.relative_embedding = relative_embedding(heads, horizon, self.head_width)
        self.gate_factor: Any = None
        salience = torch.zeros(heads, self.head_width)
        if self.own_segment:
            self.register_buffer("log_gate", torch.zeros(heads, 3), persistent=False)
            self.register_buffer("salience", salience, persistent=False)
        else:
            self.log_gate, self.salience = log_gate(heads, near + 1, slope), nn.Parameter(salience)
        slopes = torch.tensor([recency * _RECENCY[head % len(_RECENCY)] for head in range(heads)])
        self.register_buffer("recency", slopes, persistent=False)
        if shut:
            self._shut()

    def begin_apart(self) -> None:
        if self.site != "cross":
            nn.init.zeros_(self.relative_embedding)
        self._shut()

    def _shut(self) -> None:
        if self.own_segment or self.log_gate is None:
            return
        reach = self.log_gate.shape[1] // 2
        factors = torch.full_like(self.log_gate, SHUT)  # at 0 it would have no gradient
        factors[:, reach] = 1
        self.gate_factor, self.log_gate = nn.Parameter(factors), None

    @property
    def gate(self) -> Tensor:
        """log g, (H, 2G+1)"""
        return self.log_gate if self.gate_factor is None else (self.gate_factor.abs() + SHUT).log()

    def relative(self) -> Tensor | None:
        return None if self.site == "cross" else self.relative_embedding

    def saliences(self, key: Tensor) -> Tensor:
        """(B, H, L, d) -> (B, H, L)"""
        with torch.autocast(key.device.type, enabled=False):
            dtype = torch.promote_types(key.dtype, torch.float32)
            return (key.to(dtype) @ self.salience.to(dtype)[..., None])[..., 0]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        return segment_recall_attention(
            query,
            key,
            value,
            self.relative(),
            self.gate,
            self.saliences(key),
            self.recency,
            kept=self.kept,
            causal=self.causal,
            layout=layout,  # with its mask in causal attention too: else pads in the last segment cost as much as keys
            explore=self.explore if self.training else 0.0,
            algorithm=self.algorithm,
        )  # (B, H, L, d)

    def empty_state(self, rows: int, like: Tensor) -> Any:
        d, dtype = self.head_width, torch.promote_types(like.dtype, torch.float32)
        gate, recency = self.gate, self.recency
        return recall_causal_init(rows, self.heads, d, d, gate, recency, self.kept, like.device, dtype)

    def states_before(self, x: Tensor, segments: Tensor, texts: Tensor, starts: Tensor) -> OwnState:
        key, value = self._project(x, self.key, self.value)  # (B, H, L, d)
        dtype = torch.promote_types(x.dtype, torch.float32)
        given = key.to(dtype), value.to(dtype), self.saliences(key), segments, texts, starts
        state = recall_causal_states(*given, self.gate.to(dtype), self.recency.to(dtype), self.kept)
        return OwnState(self._step_product(), state)

    def rows_of(self, state: RecallCrossState, documents: Tensor, segments: Tensor) -> Seen:
        return state.rows(documents, segments)

    def later_bytes(self, gained: int, documents: int, rows: int, extent: Extent, size: int) -> int:
        near = len(self.gate[0]) // 2 - 1
        return recall_bytes(self, near, self.kept, documents, rows, extent, size)

    def encoded_state(self, key: Tensor, value: Tensor, key_mask: Tensor, key_segments: Tensor) -> Any:
        arguments = self.gate, self.saliences(key), self.recency, key_segments, key_mask
        return recall_cross_state(key, value, *arguments, self.kept)

    def step_weight(self) -> Tensor:
        """(H (3 d + 1 + R), D): for each head the scaled query, key, value and salience, and how much the relative
        scores of the last R tokens exceed that of all earlier tokens (`relative_excess`)."""
        query, key, value = (x.unflatten(0, (self.heads, -1)) for x in self.joined())  # (H, d, D), or D+1 with biases
        query = query * self.head_width**-0.5  # (H, d, D)
        salience = self.salience.to(key.dtype)[:, None] @ key  # (H, 1, D)
        relative = relative_excess(self.relative_embedding).to(query.dtype) @ query  # (H, R, D)
        return torch.cat([query, key, value, salience, relative], dim=1).flatten(0, 1)

    def step_projected(
        self, projected: Tensor, position: int, segments: Tensor, state: RecallCausalState
    ) -> tuple[Tensor, RecallCausalState]:
        d, dtype = self.head_width, state.pairs.dtype
        with full_precision(projected.device):
            heads = projected.view(len(projected), self.heads, -1)  # (B*K, H, 3 d + 1 + R)
            query, pair, salience, relative = heads.to(dtype).split([d, 2 * d, 1, heads.shape[2] - 3 * d - 1], dim=2)
            out = state.step(query, pair.unflatten(2, (2, d)), salience[..., 0], relative, segments)
        return out.to(projected.dtype), state

    def attend_encoded(self, query: Tensor, position: int, segments: Tensor, state: Any) -> Tensor:
        with full_precision(query.device):
            return state.step(query, segments).to(query.dtype)  # (B*K, H, d)


def recall_bytes(
    attention: Attention, near: int, kept: int, documents: int, rows: int, extent: Extent, size: int
) -> int:
    """As `Attention.later_bytes`, of the states of attention with recall."""
    H, d = attention.heads, attention.head_width
    if attention.site == "decoder":  # slots for the near segments, doubled where too few of them are free
        slots, seen = FIRST_ROOM, most_of(extent.target_spans, near + 1)
        while slots < extent.target and seen > slots - slots // 4:
            slots *= 2
        return rows * (slots - FIRST_ROOM) * (H * (2 * d + 2) * size + 8)
    # what rows see of the source; and where some is far, which tokens of it are kept at each border of segments
    half = -(-kept // 2)
    far = extent.segments > near + 1
    seen = min(extent.source, most_of(extent.source_spans, 2 * near + 1) + 2 * half * far)
    borders = extent.segments + (2 if documents > 1 else 1)
    at_borders = 8 * documents * borders * (1 + 2 * H * half) if far else 0
    return rows * (H * seen * (2 * d + 1) * size + 8) + at_borders
