"""Encoder and decoder layers. B batch, K beams, L / S target and source length, D model width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from scaleformer.model.attention import Attention
from scaleformer.model.attention.state import reorder
from scaleformer.ops.common.matmul import Linear
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.segments.packing import ROW, pack_segments

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU}


class Dropout(nn.Dropout):
    """torch's dropout, with a mask that is cheaper on a CPU.

    Four 16-bit random numbers are drawn at once, so that p is rounded to a multiple of 2^-16. The mask is stored as
    numbers, since multiplying by booleans is slow on a CPU (torch 2.13).
    """

    def forward(self, x: Tensor) -> Tensor:
        threshold = round(self.p * 2**16)
        if not self.training or threshold in (0, 2**16) or x.device.type != "cpu":
            return super().forward(x)
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        keep = bits[: x.numel()].view(x.shape).float().ge_(threshold - 2**15).mul_(2**16 / (2**16 - threshold))
        return x * keep.to(x.dtype)


class FeedForward(nn.Module):
    """Two linear maps around an activation, position by position [Vaswani 2017, section 3.3]."""

    def __init__(self, width: int, hidden: int, dropout: float, activation: str) -> None:
        super().__init__()
        self.expand = Linear(width, hidden)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = Dropout(dropout)
        self.contract = Linear(hidden, width)
        for linear in (self.expand, self.contract):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D) -> (..., D)"""
        return self.contract(self.dropout(self.activation(self.expand(x))))


class Layer(nn.Module):
    """Residual connections: x + f(norm(x)), or, with the norm after them, norm(x + f(x)) [Vaswani 2017]."""

    def __init__(self, post: bool) -> None:
        super().__init__()
        self.post = post

    def before(self, norm: nn.Module, x: Tensor) -> Tensor:
        """What f reads."""
        return x if self.post else norm(x)

    def after(self, norm: nn.Module, x: Tensor) -> Tensor:
        """What follows the sum."""
        return norm(x) if self.post else x


class EncoderLayer(Layer):
    """Attention and feed-forward."""

    def __init__(
        self, attention: Attention, width: int, hidden: int, dropout: float, activation: str, post: bool = False
    ) -> None:
        super().__init__(post)
        self.attention = attention
        self.attention_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, hidden, dropout, activation)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    @property
    def own_segment(self) -> bool:
        """Whether no token sees another segment than its own."""
        return self.attention.own_segment

    def forward(self, x: Tensor, layout: SegmentLayout) -> Tensor:
        """x (B, S, D) and its layout -> (B, S, D)"""
        h = self.before(self.attention_norm, x)
        x = self.after(self.attention_norm, x + self.dropout(self.attention(h, h, layout)))
        h = self.feed_forward(self.before(self.feed_forward_norm, x))
        return self.after(self.feed_forward_norm, x + self.dropout(h))


class LayerState(NamedTuple):
    """Decoding state of one decoder layer: one part for the hypotheses (B*K rows), one for the documents (B rows)."""

    own: Any
    cross: Any


class DecoderLayer(Layer):
    """Causal self-attention, cross-attention and feed-forward."""

    def __init__(
        self, attention: Attention, cross_attention: Attention, width: int, hidden: int, dropout: float,
        activation: str, post: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(post)
        self.attention = attention
        self.attention_norm = nn.LayerNorm(width)
        self.cross_attention = cross_attention
        self.cross_attention_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width, hidden, dropout, activation)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, layout: SegmentLayout, encoded: Tensor, cross_layout: SegmentLayout) -> Tensor:
        """x (B, L, D) and its layout; encoded (B, S, D) and the layout of both -> (B, L, D)"""
        h = self.before(self.attention_norm, x)
        x = self.after(self.attention_norm, x + self.dropout(self.attention(h, h, layout)))
        h = self.before(self.cross_attention_norm, x)
        x = self.after(self.cross_attention_norm, x + self.dropout(self.cross_attention(h, encoded, cross_layout)))
        h = self.feed_forward(self.before(self.feed_forward_norm, x))
        return self.after(self.feed_forward_norm, x + self.dropout(h))

    @property
    def own_segment(self) -> bool:
        return self.attention.own_segment and self.cross_attention.own_segment

    def init_state(self, encoded: Tensor, mask: Tensor, segments: Tensor, rows: int) -> LayerState:
        return LayerState(
            self.attention.init_state(encoded, mask, segments, rows),
            self.cross_attention.init_state(encoded, mask, segments, rows),
        )

    def states_before(self, x: Tensor, segments: Tensor, texts: Tensor, starts: Tensor, cross: Any) -> LayerState:
        """The states before the positions starts (n,) of texts (n,), a row each, from the layer's input x (B, L, D) and
        segments (B, L); cross: the state of its cross-attention for all texts."""
        return LayerState(
            self.attention.states_before(self.before(self.attention_norm, x), segments, texts, starts),
            self.cross_attention.rows_of(cross, texts, segments[texts, starts]),
        )

    def step(self, x: Tensor, position: int, segments: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """x (B*K, D), segments (B*K,) -> (B*K, D) and the next state; the same numbers as `forward`."""
        h, own = self.attention.step(self.before(self.attention_norm, x), position, segments, state.own)
        x = self.after(self.attention_norm, x + h)
        h = self.before(self.cross_attention_norm, x)
        h, cross = self.cross_attention.step(h, position, segments, state.cross)
        x = self.after(self.cross_attention_norm, x + h)
        h = self.feed_forward(self.before(self.feed_forward_norm, x))
        return self.after(self.feed_forward_norm, x + h), LayerState(own, cross)

    def reorder(self, state: LayerState, rows: Tensor, documents: Tensor | None) -> LayerState:
        cross = state.cross if documents is None else reorder(state.cross, documents)
        return LayerState(reorder(state.own, rows), cross)


L = TypeVar("L", EncoderLayer, DecoderLayer)


def lower_layers(layers: Sequence[L], x: Tensor) -> list[L]:
    """Layers to run by `run_packed`: none for short x (B, L, D); none on a GPU, whose kernels skip what is not seen."""
    pays = x.shape[1] > ROW and x.device.type == "cpu"
    return list(takewhile(lambda layer: layer.own_segment, layers)) if pays else []


def run_packed(
    layers: Sequence[nn.Module],
    run: Callable[..., Tensor],
    x: Tensor,
    layout: SegmentLayout,
    mask: Tensor,
    encoded: Tensor | None = None,
    inputs: list[Tensor] | None = None,
) -> Tensor:
    """x (B, L, D) after layers whose tokens see their own segment alone: on rows of a few whole segments each, so that
    the scores of all pairs are few.

    run     a layer and its arguments -> its result
    mask    (B, L) of x; layout: as that of the last layer's attention
    inputs  the input of each layer is added to it, if given
    """
    packed, beside = pack_segments(layout, mask)
    others = [] if encoded is None else [beside.split(encoded), beside.layouts]
    parts = packed.split(x)
    for layer in layers:
        if inputs is not None:
            inputs.append(packed.join(parts, x))
        parts = [run(layer, *given) for given in zip(parts, packed.layouts, *others, strict=True)]
    return packed.join(parts, x)
