"""The contract of every attention mechanism.

B batch, K beams of a document, H heads, L / S query and key length, D model width, d head width.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn

from scaleformer.model.attention.estimates import Extent, Held, doubled
from scaleformer.model.attention.positions import Sinusoids
from scaleformer.model.attention.state import FIRST_ROOM, KeyValueCache
from scaleformer.ops.common.matmul import Int8Weight, Linear, linear
from scaleformer.ops.segments.layout import SegmentLayout

SITES = ("encoder", "decoder", "cross")


class OwnState(NamedTuple):
    """Decoding state of the decoder's self-attention: its joint projection, and the mechanism's own state."""

    project: Callable[[Tensor], Tensor]
    inner: Any


class Attention(nn.Module, ABC):
    """Multi-head attention at one site of the encoder-decoder [Vaswani 2017, section 3.2.2].

    The base class has the projections to heads and back. A mechanism has its options and three methods:

        attend       queries meet keys and values; this alone serves an encoder, and cross-attention
        empty_state  the state of hypotheses without a token, in a decoder's self-attention
        attend_step  one token of each hypothesis, with the same numbers as `attend`, and the next state

    A state is a tensor with the rows first, a tuple of such, or an object with a method `reorder` (`state.reorder`).
    Cross-attention keeps the keys and values of the source; a mechanism that needs less of them gives `encoded_state`
    and `attend_encoded`.

    site    "encoder" (bidirectional), "decoder" (causal self-attention) or "cross" (decoder to encoder)
    width   D, a multiple of `heads`
    heads   H

    Raises ValueError if the width is not a multiple of the heads, or the mechanism cannot serve the site.
    """

    #: sites that the mechanism can serve
    sites: ClassVar[tuple[str, ...]] = SITES
    #: whether the mechanism is blind to order, so that the embeddings need absolute positions
    absolute_positions: ClassVar[bool] = False
    #: whether its projections may have biases (`add_biases`)
    takes_biases: ClassVar[bool] = True
    #: whether a query sees no other segment than its own
    own_segment: bool = False
    #: the most keys that it can attend to
    most_keys: float = math.inf
    #: what it holds at once, for estimates of memory
    held: ClassVar[Held] = Held()

    def __init__(self, site: str, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"model.width is {width}: it must be a multiple of model.heads, {heads}")
        self.site = site
        self.heads = heads
        self.head_width = width // heads
        self.query = Linear(width, width, bias=False)
        self.key = Linear(width, width, bias=False)
        self.value = Linear(width, width, bias=False)
        self.output = Linear(width, width, bias=False)
        for projection in (self.query, self.key, self.value, self.output):
            nn.init.xavier_uniform_(projection.weight)

    def add_biases(self) -> None:
        """Give the four projections biases, zero at first. Raises ValueError for a mechanism without."""
        if not self.takes_biases:
            raise ValueError(f"model.biases is true: {type(self).__name__} has none: set model.biases=false")
        for projection in (self.query, self.key, self.value, self.output):
            projection.bias = nn.Parameter(torch.zeros_like(projection.weight[:, 0]))

    def begin_apart(self) -> None:
        """For `model.separate_segments`: see the query's own segment alone at first, if the mechanism can learn to see
        others."""

    @property
    def causal(self) -> bool:
        return self.site == "decoder"

    def make_positions(self) -> nn.Module | None:
        """The module of absolute positions to add to the embeddings, positions (L,) -> (L, D), or None."""
        return Sinusoids(self.heads * self.head_width) if self.absolute_positions else None

    def forward(self, x: Tensor, encoded: Tensor, layout: SegmentLayout) -> Tensor:
        """The output of attention at each query position.

        x        (B, L, D), source of the queries
        encoded  (B, S, D), where keys and values come from: the encoder's output, in self-attention x itself
        layout   the segments (B, L) and (B, S), which never decrease along a row, and the keys' mask (B, S); pads are
                 at the end of a row. All layers share it, and with it the plans derived from it
        returns  (B, L, D)
        """
        if encoded is x:
            query, key, value = self._project(x, self.query, self.key, self.value)  # (B, H, L, d) each
        else:
            query, (key, value) = self._split(self.query(x)), self._project(encoded, self.key, self.value)
        gathered = self.attend(query, key, value, layout)  # (B, H, L, d)
        return self.output(self._merge(gathered))  # (B, L, D)

    def init_state(self, encoded: Tensor, key_mask: Tensor, key_segments: Tensor, rows: int) -> Any:
        """The state before the first step: of `rows` empty hypotheses, or of the documents to translate.

        Only cross-attention reads the encoded source (B, S, D), key_mask (B, S) and key_segments (B, S).
        """
        if self.site == "cross":
            key, value = self._project(encoded, self.key, self.value)  # (B, H, S, d)
            return self.encoded_state(key, value, key_mask, key_segments)
        return OwnState(self._step_product(), self.empty_state(rows, encoded))

    def step(self, x: Tensor, position: int, segments: Tensor, state: Any) -> tuple[Tensor, Any]:
        """One position of every hypothesis; the same numbers as `forward` at that position.

        x (B*K, D), segments (B*K,) long; returns (B*K, D) and the advanced state.
        """
        rows, width = x.shape
        if self.site == "cross":
            query = self.query(x).view(rows, self.heads, self.head_width)  # (B*K, H, d)
            out = self.attend_encoded(query, position, segments, state)  # (B*K, H, d)
        else:
            out, inner = self.step_projected(state.project(x), position, segments, state.inner)  # (B*K, H, d)
            state = OwnState(state.project, inner)
        return self.output(out.reshape(rows, width)), state

    def _step_product(self) -> Callable[[Tensor], Tensor]:
        weight, bias = self.step_weight(), None
        if self.query.bias is not None:
            weight, bias = weight[:, :-1], weight[:, -1]
        return partial(linear, weight=weight, bias=bias) if self.query.int8 is None else Int8Weight(weight, bias)

    def step_weight(self) -> Tensor:
        """(n, D), the joint projection weight of decoder self-attention: one product a step. Biases add a column."""
        return torch.cat(self.joined())

    def joined(self) -> list[Tensor]:
        """The weights of query, key and value, (D, D) each; with their biases (D, D+1)."""
        projections = self.query, self.key, self.value
        return [x.weight if x.bias is None else torch.cat([x.weight, x.bias[:, None]], 1) for x in projections]

    def step_projected(self, projected: Tensor, position: int, segments: Tensor, state: Any) -> tuple[Tensor, Any]:
        """`attend_step` from a position's joint projection by `step_weight`, (B*K, n)."""
        query, key, value = projected.view(len(projected), 3, self.heads, self.head_width).unbind(1)  # (B*K, H, d)
        return self.attend_step(query, key, value, position, segments, state)

    @abstractmethod
    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        """query (B, H, L, d), key and value (B, H, S, d) -> (B, H, L, d), causal at the decoder site."""

    def empty_state(self, rows: int, like: Tensor) -> Any:
        """Decoder self-attention: the state of `rows` hypotheses without a token, on the device of `like`."""
        raise NotImplementedError(f"{type(self).__name__} has no empty_state, which decoding needs")

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: Any
    ) -> tuple[Tensor, Any]:
        """Decoder self-attention: query, key, value (B*K, H, d) -> (B*K, H, d) and the next state. Not called if a
        mechanism overrides `step_projected`."""
        raise NotImplementedError(f"{type(self).__name__} has neither attend_step nor step_projected")

    def encoded_state(self, key: Tensor, value: Tensor, key_mask: Tensor, key_segments: Tensor) -> Any:
        """Cross-attention: the state that decoding needs from key and value (B, H, S, d); steps never change it."""
        return KeyValueCache(key, value, key.shape[2], key_mask, key_segments)

    def attend_encoded(self, query: Tensor, position: int, segments: Tensor, state: Any) -> Tensor:
        """Cross-attention: query (B*K, H, d) -> (B*K, H, d); the K beams of a document share its state. By default
        `attend` with the beams as L = K queries, whose segments are in no order."""
        documents = len(state.key)
        layout = SegmentLayout(segments.view(documents, -1), state.segments, state.mask)
        beams = beams_as_queries(query, documents)  # (B, H, K, d)
        return queries_as_beams(self.attend(beams, state.key, state.value, layout))

    #: Whether it has `states_before` and `rows_of`, which nothing calls otherwise: only a mechanism whose state at any
    #: place can be computed at once needs them.
    resumes: ClassVar[bool] = False

    def states_before(self, x: Tensor, segments: Tensor, texts: Tensor, starts: Tensor) -> OwnState:
        """Decoder self-attention: the states before the positions starts (n,) of texts (n,), a row each, as if stepped
        through all earlier positions; x (B, L, D) and segments (B, L) of all texts."""
        raise NotImplementedError(f"{type(self).__name__} cannot start in the middle of a text")

    def rows_of(self, state: Any, documents: Tensor, segments: Tensor) -> Any:
        """Cross-attention: from the state of B documents that of n hypotheses, each a document of its own: of
        documents (n,), each to stay in its segment (n,)."""
        raise NotImplementedError(f"{type(self).__name__} cannot start in the middle of a text")

    def later_bytes(self, gained: int, documents: int, rows: int, extent: Extent, size: int) -> int:
        """The bytes that the state of these gains at most when it is used; a number has `size` of them. By default
        those of caches that double from 64 positions on, of which position 65 has `gained` those of one row."""
        return rows * gained * (doubled(FIRST_ROOM, extent.target) // FIRST_ROOM - 1)

    def _project(self, x: Tensor, *projections: Linear) -> list[Tensor]:
        """Several projections of x (B, L, D) to heads (B, H, L, d), in one product."""
        if self.query.int8 is not None:
            return [self._split(projection(x)) for projection in projections]
        biases = [projection.bias for projection in projections if projection.bias is not None]
        bias = None if not biases else torch.cat(cast(list[Tensor], biases))
        joined = linear(x, torch.cat([projection.weight for projection in projections]), bias)  # (B, L, n D)
        return [self._split(part) for part in joined.chunk(len(projections), dim=-1)]

    def _split(self, x: Tensor) -> Tensor:
        B, L, _ = x.shape
        return x.view(B, L, self.heads, self.head_width).transpose(1, 2)  # (B, H, L, d)

    def _merge(self, x: Tensor) -> Tensor:
        B, H, L, d = x.shape
        return x.transpose(1, 2).reshape(B, L, H * d)  # (B, L, D)


def beams_as_queries(query: Tensor, documents: int) -> Tensor:
    """(B*K, H, d) -> (B, H, K, d): in one step the beams of a document are queries to the same keys."""
    rows, H, d = query.shape
    return query.view(documents, rows // documents, H, d).transpose(1, 2)  # (B, H, K, d)


def queries_as_beams(out: Tensor) -> Tensor:
    """(B, H, K, d) -> (B*K, H, d), the inverse of `beams_as_queries`."""
    B, H, K, d = out.shape
    return out.transpose(1, 2).reshape(B * K, H, d)  # (B*K, H, d)
