"""Linear attention by the gated delta rule: a memory that forgets, and that each token corrects."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from scaleformer.model.attention.base import Attention
from scaleformer.ops.common.matmul import Linear
from scaleformer.ops.delta.attention import gated_delta_rule, gated_delta_step
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.system.schema import Positive

EPSILON = 1e-6


class DeltaState(NamedTuple):
    """The projections of the last tokens (rows, kernel - 1, 3 D), which the convolution sees, and S (rows, H, d, d)."""

    recent: Tensor
    memory: Tensor


class GatedDeltaNetAttention(Attention):
    """out_t = RMSNorm(S_t^T Q_t / sqrt(d)) * silu(W_g x_t), from a memory S (d, d) of each head that the tokens write:

        S_t = a_t (I - b_t K_t K_t^T) S_{t-1} + b_t K_t V_t^T
        a_t = exp(-A softplus(W_a x_t + c))        b_t = sigmoid(W_b x_t)

    Q, K and V are the projections after a convolution over the last `kernel` tokens of each channel, and silu; Q and K
    then have length 1. A and c are learned for each head: the decay a_t forgets, the rate b_t says how far the memory's
    answer to K_t moves towards V_t. In the encoder a second memory, with a convolution and rates of its own, goes from
    the end to the beginning; the answers of both are added.
    Cost O(L d (C + d)) time and O(L (C + d)) memory; decoding keeps S and kernel - 1 projections, exactly.
    Source: [Yang 2024, Gated delta networks]; order comes of the convolution and the decay,
    so that no positions are added. The paper has decoders alone: two directions are ours. Left out: values wider than
    keys, layers of window attention between (H1, H2), convolutions with a bias.

    kernel  tokens that the convolution sees, its own among them; 1 leaves a factor
    chunk   C, tokens that are computed together: the same numbers at another cost
    """

    sites: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    def __init__(self, site: str, width: int, heads: int, kernel: Positive = 4, chunk: Positive = 64) -> None:
        super().__init__(site, width, heads)
        self.kernel, self.chunk = kernel, chunk
        self.directions = 1 if self.causal else 2
        rates = self.directions * heads
        self.gate = Linear(width, width, bias=False)  # W_g
        self.decay = Linear(width, rates, bias=False)  # W_a
        self.rate = Linear(width, rates, bias=False)  # W_b
        for projection in (self.gate, self.decay, self.rate):
            nn.init.xavier_uniform_(projection.weight)
        bound = kernel**-0.5
        self.convolution = nn.Parameter(torch.empty(self.directions * 3 * width, kernel).uniform_(-bound, bound))
        self.log_speed = nn.Parameter(torch.empty(rates).uniform_(0.01, 16).log())  # of A
        # as in Mamba: softplus(c) from 0.001 to 0.1
        pace = torch.empty(rates).uniform_(math.log(1e-3), math.log(0.1)).exp()  # (directions H,)
        self.decay_bias = nn.Parameter(pace + (-torch.expm1(-pace)).log())  # c
        self.norm = nn.Parameter(torch.ones(self.head_width))

    def forward(self, x: Tensor, encoded: Tensor, layout: SegmentLayout) -> Tensor:
        length = x.shape[1]
        x = x.masked_fill(~layout.mask[..., None], 0.0)  # what comes backwards meets the pads first: they write nothing
        mixed = torch.cat([f(x) for f in (self.query, self.key, self.value)], dim=-1).transpose(1, 2)  # (B, 3 D, L)
        rates = torch.stack([self.decay(x), self.rate(x)]).transpose(-1, -2)  # (2, B, directions H, L)
        if self.directions == 2:
            mixed = torch.cat([mixed, mixed.flip(-1)], dim=1)  # (B, 2 3 D, L)
            rates = torch.cat([rates[:, :, : self.heads], rates[:, :, self.heads :].flip(-1)], dim=2)
        padded = functional.pad(mixed, (self.kernel - 1, 0))
        weight = self.convolution.to(padded.dtype)[:, None]
        mixed = functional.silu(functional.conv1d(padded, weight, groups=len(weight)))  # (B, directions 3 D, L)
        parts = mixed.view(len(x), self.directions, 3, self.heads, self.head_width, length)
        query, key, value = parts.permute(2, 0, 1, 3, 5, 4).flatten(2, 3)  # (B, directions H, L, d)
        a, b = self._rates(rates[0], rates[1], -2)  # (B, directions H, L)
        out, _ = gated_delta_rule(_unit(query), _unit(key), value, a, b, chunk_size=self.chunk)
        if self.directions == 2:
            out = out[:, : self.heads] + out[:, self.heads :].flip(2)
        return self.output(self._merge(self._finish(out, self._split(self.gate(x)))))  # (B, L, D)

    def step_weight(self) -> Tensor:
        """(4 D + 2 H, D)"""
        projections = (self.query, self.key, self.value, self.gate, self.decay, self.rate)
        return torch.cat([projection.weight for projection in projections])

    def empty_state(self, rows: int, like: Tensor) -> DeltaState:
        d, width = self.head_width, self.heads * self.head_width
        memory = like.new_zeros(rows, self.heads, d, d, dtype=torch.promote_types(like.dtype, torch.float32))
        return DeltaState(like.new_zeros(rows, self.kernel - 1, 3 * width), memory)

    def step_projected(
        self, projected: Tensor, position: int, segments: Tensor, state: DeltaState
    ) -> tuple[Tensor, DeltaState]:
        rows, width = len(projected), self.heads * self.head_width
        mixed, gate, decay, rate = projected.split([3 * width, width, self.heads, self.heads], dim=1)
        seen = torch.cat([state.recent, mixed[:, None]], dim=1)  # (B*K, kernel, 3 D)
        mixed = functional.silu((seen * self.convolution.T.to(seen.dtype)).sum(1))  # (B*K, 3 D)
        query, key, value = mixed.view(rows, 3, self.heads, self.head_width).unbind(1)  # (B*K, H, d)
        a, b = self._rates(decay, rate, -1)  # (B*K, H)
        out, memory = gated_delta_step(_unit(query), _unit(key), value, a, b, state.memory)
        out = self._finish(out, gate.view(rows, self.heads, self.head_width))  # (B*K, H, d)
        return out, DeltaState(seen[:, 1:].clone(), memory)  # a view would keep one token more

    # `forward` does not call it, as rates depend on x too; an error here is the caller's fault.
    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        raise NotImplementedError("attention 'gated_deltanet' has rates beside queries, keys and values: call it whole")

    def _rates(self, decay: Tensor, rate: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """log a and b of the projections, both with the heads along `dim`, in float32 at least."""
        exact = torch.promote_types(decay.dtype, torch.float32)
        speed, bias = (x.to(exact).view(-1, *[1] * (-1 - dim)) for x in (self.log_speed.exp(), self.decay_bias))
        return -speed * functional.softplus(decay.to(exact) + bias), rate.to(exact).sigmoid()

    def _finish(self, out: Tensor, gate: Tensor) -> Tensor:
        """The answers (..., d), normalised and gated by (..., d), in the dtype of the gate."""
        exact = torch.promote_types(out.dtype, torch.float32)
        out = functional.rms_norm(out.to(exact), out.shape[-1:], self.norm.to(exact), EPSILON)
        return (out * functional.silu(gate.to(exact))).to(gate.dtype)


def _unit(x: Tensor) -> Tensor:
    """Vectors (..., d) of length 1, in float32 at least; what is zero stays so."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    return x * (x.square().sum(-1, keepdim=True) + EPSILON).rsqrt()
