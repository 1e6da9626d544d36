"""Softmax attention with segment-level recurrence."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from scaleformer.model.attention.base import sinusoids
from scaleformer.model.attention.options import at_least
from scaleformer.model.attention.softmax import KeyValueCache, SoftmaxAttention
from scaleformer.ops.common.matmul import Linear
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.windowed import BLOCK_SCORES, chunks, strips


class TransformerXLAttention(SoftmaxAttention):
    """A token sees the earlier tokens of its piece of C tokens, and the M before the piece, which get no gradient:

        s_ij = ((Q_i + u) . K_j + (Q_i + v) . W_r r_{i-j}) / sqrt(d),  r the sinusoids of the distance, u and v learned.

    Each layer extends the context by M tokens. All pieces of a text are computed in parallel: a layer reads only the
    output of the layer below for the previous piece, with the gradient stopped. The result equals processing the pieces
    in turn with fixed weights. A piece is not a segment of the corpus.
    With K compressed memories, tokens that leave the memory are not lost: they become means of `rate` tokens each, and
    the last K means are seen as if they were tokens before the memory ([Rae 2020], section 3.1, mean pooling).
    No weight depends on these sizes: `scaleformer export` gives a trained model a longer memory, as in [Dai 2019].
    Cost O(L W d) time, O(L W) memory with W = C + M + K; decoding keeps W keys and values.
    Source: [Dai 2019, sections 3.2 and 3.3]. Left out: memory carried from one document to the next, and learned
    compression with its loss.

    piece       C, in tokens
    memory      M, in tokens
    compressed  K, 0 for none; otherwise piece and memory must be multiples of rate
    rate        number of tokens that one compressed memory stands for
    clamp       distances beyond it count as it, which may help a memory longer than in training; 0 for none
    """

    sites: ClassVar[tuple[str, ...]] = ("decoder",)
    absolute_positions: ClassVar[bool] = False

    def __init__(
        self,
        site: str,
        width: int,
        heads: int,
        piece: int = 64,
        memory: int = 64,
        compressed: int = 0,
        rate: int = 4,
        clamp: int = 0,
    ) -> None:
        super().__init__(site, width, heads)
        at_least(1, piece=piece)
        at_least(0, memory=memory, compressed=compressed, clamp=clamp)
        if rate < 1 or (compressed and (piece % rate or memory % rate)):
            raise ValueError(
                f"model.attention.rate is {rate}: it must be at least 1 and divide piece, {piece}, and memory, {memory}"
            )
        self.piece, self.memory = piece, memory
        self.compressed, self.rate, self.clamp = compressed, rate, clamp
        self.position = Linear(width, width, bias=False)  # W_r
        nn.init.xavier_uniform_(self.position.weight)
        self.content_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # u
        self.position_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # v

    def forward(self, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
        C, M, K, W = self.piece, self.memory, self.compressed, self.piece + self.memory + self.compressed
        query = chunks(self._split(self.query(x)), C)  # (B, H, N, C, d)
        keys, values = (self._with_memory(f(x), f(x.detach())) for f in (self.key, self.value))  # (B, H, N, W, d)
        index = torch.arange(W, device=x.device)  # (W,), in the strip of a piece
        past = index <= torch.arange(K + M, W, device=x.device)[:, None]  # (C, W)
        before = C * torch.arange(query.shape[2], device=x.device)[:, None, None]  # (N, 1, 1), tokens
        exists = index >= torch.where(before <= M, K + M - before, K - (before - M) // self.rate)  # (N, 1, W)
        table = self._table(query)  # (H, 1, d, W)
        size = max(1, BLOCK_SCORES // (query[:, :, 0, :, 0].numel() * W))
        parts = (x.split(size, -3) for x in (query, keys, values, past & exists))
        blocks = [self._meet(q, k, v, seen, table) for q, k, v, seen in zip(*parts, strict=True)]
        out = torch.cat(blocks, dim=2)  # (B, H, N, C, d)
        return self.output(self._merge(out.flatten(2, 3)[:, :, : x.shape[1]]))  # (B, L, D)

    def empty_state(self, rows: int, like: Tensor) -> KeyValueCache:
        size = self.compressed + self.memory + self.piece
        empty = like.new_zeros(rows, self.heads, size, self.head_width)  # (B*K, H, W, d), a ring after the first K
        return KeyValueCache(empty, torch.zeros_like(empty), empty.shape[2])

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        K, start = self.compressed, position - position % self.piece
        if K and position == start:
            self._compress(state, start)
        slot = K + position % (self.memory + self.piece)
        state.key[:, :, slot], state.value[:, :, slot] = key, value
        known = min(K, max(0, start - self.memory) // self.rate)
        old = torch.arange(K - known, K, device=query.device)
        slots = torch.cat([old, self._slots(start - self.memory, position + 1, query)])  # (T,)
        keys, values = (x.index_select(2, slots) for x in (state.key, state.value))  # (B*K, H, T, d)
        seen = torch.ones(1, len(slots), dtype=torch.bool, device=query.device)
        table = self._table(query)[..., -len(slots) :]  # (H, 1, d, T)
        out = self._meet(
            query[:, :, None, None], keys[:, :, None], values[:, :, None], seen, table
        )  # (B*K, H, 1, 1, d)
        return out[:, :, 0, 0], KeyValueCache(state.key, state.value, state.length)

    def _slots(self, first: int, end: int, like: Tensor) -> Tensor:
        """Slots of positions first .. end - 1 in the state's ring, without positions below 0."""
        positions = torch.arange(max(0, first), max(0, end), device=like.device)
        return self.compressed + positions % (self.memory + self.piece)

    def _compress(self, state: KeyValueCache, start: int) -> None:
        """Before writing the piece that begins at `start`, store the means of the tokens that leave the memory."""
        slots = self._slots(start - self.memory - self.piece, start - self.memory, state.key)
        for buffer in (state.key, state.value):
            means = buffer[:, :, slots].unflatten(2, (-1, self.rate)).mean(3)  # (B*K, H, C / rate or less, d)
            kept = torch.cat([buffer[:, :, : self.compressed], means], dim=2)[:, :, -self.compressed :]
            buffer[:, :, : self.compressed] = kept

    def _with_memory(self, own: Tensor, past: Tensor) -> Tensor:
        """Projections (B, L, D) of the states, with and without gradient -> those each piece sees (B, H, N, W, d)."""
        past = self._split(past)  # (B, H, L, d)
        before = strips(past, self.piece, self.memory, 0)[..., : self.memory, :]  # (B, H, N, M, d)
        parts = [before, chunks(self._split(own), self.piece)]
        if self.compressed:  # projections have no bias: their mean is the projection of the states' mean
            means = chunks(past, self.rate).mean(-2)  # (B, H, L / rate, d)
            ahead = self.compressed + self.memory // self.rate
            parts.insert(0, strips(means, self.piece // self.rate, ahead, 0)[..., : self.compressed, :])
        return torch.cat(parts, dim=-2)

    def _table(self, like: Tensor) -> Tensor:
        """W_r r for the distances W - 1 to 0: (H, 1, d, W)."""
        size = self.compressed + self.memory + self.piece
        distance = torch.arange(size - 1, -1, -1, device=like.device)  # (W,)
        distance = distance.clamp(max=self.clamp or size)
        table = self.position(sinusoids(distance, self.heads * self.head_width).to(like.dtype))  # (W, D)
        return table.view(len(distance), self.heads, 1, self.head_width).permute(1, 2, 3, 0)

    def _meet(self, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, table: Tensor) -> Tensor:
        """query (B, H, N, C, d), at the last C positions of keys and values (B, H, N, W, d) -> (B, H, N, C, d).

        seen (N or 1, C, W) bool, table (H, 1, d, W).
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
        return scores.softmax(-1).to(values.dtype) @ values  # (B, H, N, C, d)
