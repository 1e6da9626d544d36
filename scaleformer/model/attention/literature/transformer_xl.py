"""Softmax attention with segment-level recurrence."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from scaleformer.model.attention.literature.carried import CarriedStates
from scaleformer.model.attention.positions import sinusoids
from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.model.attention.state import KeyValueCache
from scaleformer.ops.common.matmul import Linear
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.windowed import BLOCK_SCORES, chunks, strips
from scaleformer.system.schema import Natural, Positive


class TransformerXLAttention(SoftmaxAttention):
    """A token sees the earlier tokens of its piece of C tokens, and the M before the piece, which get no gradient:

        s_ij = ((Q_i + u) . K_j + (Q_i + v) . W_r r_{i-j}) / sqrt(d),  r the sinusoids of the distance, u and v learned.

    Each layer extends the context by M tokens. All pieces of a text are computed in parallel: a layer reads only the
    output of the layer below for the previous piece, with the gradient stopped. The result equals processing the pieces
    in turn with fixed weights. A piece is not a segment of the corpus.
    No weight depends on these sizes: `scaleformer export` gives a trained model a longer memory, as in [Dai 2019].
    In training with data.consecutive=true the layer's inputs of the batch before, without gradient, stand before an
    example that continues a document; its pieces begin at its own first token.
    Cost O(L W d) time, O(L W) memory with W = C + M; decoding keeps W keys and values.
    Source: [Dai 2019, sections 3.2 and 3.3]. Left out: memory carried from one document to the next.

    piece   C, in tokens
    memory  M, in tokens
    clamp   distances beyond it count as it, which may help a memory longer than in training; 0 for none
    """

    sites: ClassVar[tuple[str, ...]] = ("decoder",)
    absolute_positions: ClassVar[bool] = False
    #: K memories before those of tokens, each of `rate` tokens: `compressive` has them
    compressed, rate = 0, 1

    def __init__(
        self, site: str, width: int, heads: int, piece: Positive = 64, memory: Natural = 64, clamp: Natural = 0
    ) -> None:
        super().__init__(site, width, heads)
        self.piece, self.memory, self.clamp = piece, memory, clamp
        self.position = Linear(width, width, bias=False)  # W_r
        nn.init.xavier_uniform_(self.position.weight)
        self.content_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # u
        self.position_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # v
        self.carried: CarriedStates | None = None  # what the latest batch left
        self._former: CarriedStates | None = None  # of this batch: not changed where checkpointing repeats `forward`

    def carry(self, continues: Tensor | None) -> None:
        """To be called before a batch with `Batch.continues`: then rows that continue see what the batch before left,
        and this one leaves its own. None: a batch that sees nothing, and leaves all as it is."""
        C = self.piece
        if continues is None:
            self._former = None
        elif self.carried is not None and continues.any():
            self._former = self.carried.continued(continues)
        else:
            pieces = -(-self.memory // C) - (-self.compressed * self.rate // C)  # each rounded up
            self._former = CarriedStates.nothing(len(continues), pieces * C, self.query.weight.detach())

    def forward(self, x: Tensor, encoded: Tensor, layout: SegmentLayout) -> Tensor:
        past = x.detach()
        if self._former is not None:
            past = self._former.before(x)  # (B, P + L, D)
            self.carried = self._former.after(x, layout.mask)
        query = chunks(self._split(self.query(x)), self.piece)  # (B, H, N, C, d)
        keys, values = self._keys_and_values(x, past)  # (B, H, N, W, d)
        out = self._meet_pieces(query, keys, values, self._seen(query), self._table(query))  # (B, H, N, C, d)
        return self.output(self._merge(out.flatten(2, 3)[:, :, : x.shape[1]]))  # (B, L, D)

    def _seen(self, query: Tensor) -> Tensor:
        """What each token of each piece sees of its W keys: (N, C, W) bool; with carried states (B, 1, N, C, W)."""
        C, M, K, W = self.piece, self.memory, self.compressed, self.piece + self.memory + self.compressed
        index = torch.arange(W, device=query.device)  # (W,), in the strip of a piece
        past = index <= torch.arange(K + M, W, device=query.device)[:, None]  # (C, W)
        before = C * torch.arange(query.shape[2], device=query.device)[:, None, None]  # (N, 1, 1), tokens
        if self._former is not None:
            before = before + self._former.known[:, None, None, None, None]  # (B, 1, N, 1, 1)
        exists = index >= torch.where(before <= M, K + M - before, K - (before - M) // self.rate)  # ([B, 1,] N, 1, W)
        return past & exists

    def _meet_pieces(self, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, table: Tensor) -> Tensor:
        """All pieces, a few at a time: (B, H, N, C, d)."""
        size = max(1, BLOCK_SCORES // (query[:, :, 0, :, 0].numel() * keys.shape[-2]))
        parts = (x.split(size, -3) for x in (query, keys, values, seen))
        blocks = [self._weights(q, k, s, table).to(v.dtype) @ v for q, k, v, s in zip(*parts, strict=True)]
        return torch.cat(blocks, dim=2)  # (B, H, N, C, d)

    def empty_state(self, rows: int, like: Tensor) -> KeyValueCache:
        size = self.compressed + self.memory + self.piece
        empty = like.new_zeros(rows, self.heads, size, self.head_width)  # (B*K, H, W, d), a ring after the first K
        return KeyValueCache(empty, torch.zeros_like(empty), empty.shape[2])

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        K, start = self.compressed, position - position % self.piece
        slot = K + position % (self.memory + self.piece)
        state.key[:, :, slot], state.value[:, :, slot] = key, value
        known = min(K, max(0, start - self.memory) // self.rate)
        old = torch.arange(K - known, K, device=query.device)
        slots = torch.cat([old, self._slots(start - self.memory, position + 1, query)])  # (T,)
        keys, values = (x.index_select(2, slots) for x in (state.key, state.value))  # (B*K, H, T, d)
        seen = torch.ones(1, len(slots), dtype=torch.bool, device=query.device)
        table = self._table(query)[..., -len(slots) :]  # (H, 1, d, T)
        weights = self._weights(query[:, :, None, None], keys[:, :, None], seen, table)[:, :, 0]  # (B*K, H, 1, T)
        return (weights.to(values.dtype) @ values)[:, :, 0], state  # (B*K, H, d)

    def _slots(self, first: int, end: int, like: Tensor) -> Tensor:
        """Slots of positions first .. end - 1 in the state's ring, without positions below 0."""
        positions = torch.arange(max(0, first), max(0, end), device=like.device)
        return self.compressed + positions % (self.memory + self.piece)

    def _keys_and_values(self, x: Tensor, past: Tensor) -> list[Tensor]:
        """What each piece of x (B, L, D) sees: (B, H, N, M + C, d) each. Later ones see past (B, P + L, D), the carried
        states and x without gradient."""
        found, carried = [], (past.shape[1] - x.shape[1]) // self.piece  # pieces
        for projection in (self.key, self.value):
            old = self._split(projection(past))  # (B, H, P + L, d)
            before = strips(old, self.piece, self.memory, 0)[:, :, carried:, : self.memory]  # (B, H, N, M, d)
            found.append(torch.cat([before, chunks(self._split(projection(x)), self.piece)], dim=-2))
        return found

    def _table(self, like: Tensor) -> Tensor:
        """W_r r for the distances W - 1 to 0: (H, 1, d, W)."""
        size = self.compressed + self.memory + self.piece
        distance = torch.arange(size - 1, -1, -1, device=like.device)  # (W,)
        distance = distance.clamp(max=self.clamp or size)
        table = self.position(sinusoids(distance, self.heads * self.head_width).to(like.dtype))  # (W, D)
        return table.view(len(distance), self.heads, 1, self.head_width).permute(1, 2, 3, 0)

    def _weights(self, query: Tensor, keys: Tensor, seen: Tensor, table: Tensor) -> Tensor:
        """query (B, H, N, C, d), at the last C positions of keys (B, H, N, W, d) -> weights (B, H, N, C, W).

        seen ([B, 1,] N or 1, C, W) bool, table (H, 1, d, W).
        """
        C, W = query.shape[-2], keys.shape[-2]
        content_bias, position_bias = (
            b[:, None, None].to(query.dtype) for b in (self.content_bias, self.position_bias)
        )
        by_distance = (query + position_bias) @ table  # (B, H, N, C, W)
        # Row c starts C - 1 - c columns too far left: shift it one column further than the row below it.
        shifted = functional.pad(by_distance, (1, 0)).flatten(-2)[..., C:].unflatten(-1, (C, W))  # (B, H, N, C, W)
        scores = ((query + content_bias) @ keys.transpose(-1, -2) + shifted) * self.head_width**-0.5
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~seen, float("-inf"))
        return scores.softmax(-1)
