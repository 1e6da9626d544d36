"""The softmax kernel of unit vectors by sines and cosines; a gate lets the past fade where a segment begins."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from scaleformer.model.attention.base import Attention, beams_as_queries, queries_as_beams
from scaleformer.model.attention.literature.redrawn import Redrawn
from scaleformer.ops.common.matmul import Linear
from scaleformer.ops.kernel.decoding import values_with_ones, without_pads
from scaleformer.ops.kernel.fading import fading_sums
from scaleformer.ops.segments.layout import NO_SEGMENT, SegmentLayout
from scaleformer.system.schema import Natural, Positive, Range

#: the least denominator: kernel estimates may be negative, so that their sum may come close to zero
LEAST = 0.1
#: tokens whose features cross-attention computes at once, which holds less memory
SECTION = 2048


class FadingState(NamedTuple):
    """Decoding state: memory (rows, H, 2m, d+1), the sum of phi(k) (x) [v, 1]; segment (rows,) of the last token, None
    for a source."""

    memory: Tensor
    segment: Tensor | None = None


class RandomFeatureGatedAttention(Redrawn, Attention):
    """out_i = phi(Q_i) S_i / phi(Q_i) z_i,  (S_i, z_i) = f_i (S_(i-1), z_(i-1)) + (phi(K_i) (x) V_i, phi(K_i)).

    phi_r(x) = [sin w_r.x', cos w_r.x'] / sqrt(m) with x' = x / (scale |x|) and normally distributed w_r. On average
    phi(q).phi(k) is exp(-|q' - k'|^2 / 2): for unit vectors exp(q'.k') up to a factor. The sentential gate f_i is
    sigmoid(w.x_i + b) where i begins a segment, and scales all that came before; elsewhere it is 1. Cross-attention has
    no gate, sums over the whole source, and weighs each key by exp(|K_j|^2 / (2 d scale^2)), the largest one by 1.
    Cost O((L + S) d m) time, O((L + S) (d + m)) memory; decoding keeps one 2m x (d+1) matrix a head, exactly.
    Source: [Wu 2022] for the gate and both sites (the encoder keeps softmax), [Peng 2021] for the features; positions
    are added to the embeddings. In the authors' code the separator ends a segment and fades with it. Here, as in the
    paper, it begins the next segment, and the gate is read from it. Kernel estimates may be negative: a denominator
    below 0.1 counts as 0.1 (the authors bound theirs too). They take the w_r from a stored pool and fix them in
    translation; here translation uses the last draw. Left out: arc-cosine features, the gate at every token
    [Peng 2021], and a deviation for each dimension of w_r.

    decoder_features m in the decoder
    cross_features   m in cross-attention, where the authors take more
    key_norms        whether cross-attention weighs keys by their norms, as in the authors' training script
    redraw_every     training passes between new draws of the w_r; 0 keeps the first draw
    scale            of the unit vectors; the larger, the flatter the kernel
    learned_scale    whether each head learns its own scale, starting from `scale`
    gate_bias        initial b: at first the past counts sigmoid(b)
    """

    sites: ClassVar[tuple[str, ...]] = ("decoder", "cross")
    absolute_positions: ClassVar[bool] = True

    def __init__(
        self,
        site: str,
        width: int,
        heads: int,
        decoder_features: Positive = 32,
        cross_features: Positive = 256,
        key_norms: bool = True,
        redraw_every: Natural = 1,
        scale: Annotated[float, Range(gt=0)] = 1.0,
        learned_scale: bool = True,
        gate_bias: float = 2.0,
    ) -> None:
        super().__init__(site, width, heads)
        self.feature_count = decoder_features if self.causal else cross_features
        self.key_norms = key_norms
        self.log_scale = nn.Parameter(torch.full((heads,), math.log(scale)), requires_grad=learned_scale)
        if self.causal:
            self.gate = Linear(width, heads)
            nn.init.xavier_uniform_(self.gate.weight)
            nn.init.constant_(self.gate.bias, gate_bias)
        self.begin_draws(redraw_every)

    def draw(self) -> None:
        """The w_r of each head, (H, m, d)."""
        draws = torch.Generator().manual_seed(self.seed + self.drawn)
        self.projection = torch.randn(self.heads, self.feature_count, self.head_width, generator=draws, device="cpu")

    def features(self, x: Tensor) -> Tensor:
        """phi of queries or keys (B, H, L, d): (B, H, L, 2m), in float32 at least."""
        dtype = torch.promote_types(x.dtype, torch.float32)
        self.projection = self.projection.to(x.device)
        unit = functional.normalize(x.to(dtype), dim=-1) / self.log_scale.to(dtype).exp()[:, None, None]
        angles = unit @ self.projection.to(dtype).mT  # (B, H, L, m)
        return torch.cat([angles.sin(), angles.cos()], dim=-1).mul_(self.feature_count**-0.5)

    def forward(self, x: Tensor, encoded: Tensor, layout: SegmentLayout) -> Tensor:
        if not self.causal:
            return super().forward(x, encoded, layout)
        query, key, value = self._project(x, self.query, self.key, self.value)  # (B, H, L, d) each
        begins = layout.query_segments.diff(dim=1, prepend=layout.query_segments[:, :1]) > 0  # (B, L)
        gate = functional.logsigmoid(self.gate(x)).masked_fill(~begins[..., None], 0.0)  # (B, L, H)
        key = torch.cat([key, gate.transpose(1, 2)[..., None]], dim=-1)  # (B, H, L, d+1)
        return self.output(self._merge(self.attend(query, key, value, layout)))  # (B, L, D)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        """In the decoder the last component of a key is the logarithm of its gate: key (B, H, L, d+1)."""
        self.redraw()
        with torch.autocast(query.device.type, enabled=False):
            if self.causal:
                phi_q, phi_k = self.features(query), self.features(key[..., :-1])  # (B, H, L, 2m)
                u = values_with_ones(value.to(phi_q.dtype), None)  # (B, H, L, d+1)
                sums = fading_sums(phi_q, phi_k, u, key[..., -1].to(phi_q.dtype))  # (B, H, L, d+1)
            else:
                memory = self._sum(key, value, layout.mask)
                sums = torch.cat([self.features(q) @ memory for q in query.split(SECTION, 2)], dim=2)
            return self.counted(_mean(sums).to(value.dtype))  # (B, H, L, d)

    def empty_state(self, rows: int, like: Tensor) -> FadingState:
        shape = rows, self.heads, 2 * self.feature_count, self.head_width + 1
        memory = torch.zeros(shape, device=like.device, dtype=torch.promote_types(like.dtype, torch.float32))
        return FadingState(memory, torch.full((rows,), NO_SEGMENT, device=like.device))

    def encoded_state(self, key: Tensor, value: Tensor, key_mask: Tensor, key_segments: Tensor) -> FadingState:
        with torch.autocast(key.device.type, enabled=False):
            return FadingState(self._sum(key, value, key_mask))

    def step_weight(self) -> Tensor:
        return torch.cat([super().step_weight(), self.gate.weight])  # (3D + H, D)

    def step_projected(self, projected: Tensor, position: int, segments: Tensor, state: Any) -> tuple[Tensor, Any]:
        D = self.heads * self.head_width
        heads = projected[:, : 3 * D].unflatten(1, (3, self.heads, 1, self.head_width))  # (B*K, 3, H, 1, d)
        query, key, value = heads.unbind(1)
        with torch.autocast(projected.device.type, enabled=False):
            phi_q, phi_k = self.features(query), self.features(key)  # (B*K, H, 1, 2m)
            gate = (projected[:, 3 * D :].to(phi_q.dtype) + self.gate.bias.to(phi_q.dtype)).sigmoid()  # (B*K, H)
            gate = torch.where((segments > state.segment)[:, None], gate, 1.0)[..., None, None]  # (B*K, H, 1, 1)
            u = values_with_ones(value.to(phi_q.dtype), None)  # (B*K, H, 1, d+1)
            memory = torch.addcmul(phi_k.mT * u, gate, state.memory)  # (B*K, H, 2m, d+1)
            out = _mean(phi_q @ memory)[:, :, 0].to(projected.dtype)  # (B*K, H, d)
        return out, FadingState(memory, segments)

    def attend_encoded(self, query: Tensor, position: int, segments: Tensor, state: FadingState) -> Tensor:
        with torch.autocast(query.device.type, enabled=False):
            phi_q = self.features(beams_as_queries(query, len(state.memory)))  # (B, H, K, 2m)
            return queries_as_beams(_mean(phi_q @ state.memory)).to(query.dtype)  # (B*K, H, d)

    def _sum(self, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """The sum (B, H, 2m, d+1) over a source, key and value (B, H, S, d), mask (B, S)."""
        dtype = torch.promote_types(key.dtype, torch.float32)
        key, u = without_pads(key, mask).to(dtype), values_with_ones(value.to(dtype), mask)  # (B, H, S, d | d+1)
        if self.key_norms:  # zero at pads, so that no pad has the largest
            scaled = key / self.log_scale.to(dtype).exp()[:, None, None]
            exponent = scaled.square().sum(-1, keepdim=True) / (2 * self.head_width)  # (B, H, S, 1)
            u = u * (exponent - exponent.detach().amax(2, keepdim=True)).exp()
        parts = zip(key.split(SECTION, 2), u.split(SECTION, 2), strict=True)
        return torch.stack([self.features(k).mT @ own for k, own in parts]).sum(0)


def _mean(sums: Tensor) -> Tensor:
    """Numerators over denominators: (..., d+1) -> (..., d)."""
    return sums[..., :-1] / sums[..., -1:].clamp(min=LEAST)
