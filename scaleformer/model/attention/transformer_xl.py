"""Softmax attention with segment-level recurrence."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ...ops.windowed_attention import BLOCK_SCORES, chunks, strips
from .base import sinusoids
from .softmax import KeyValueCache, SoftmaxAttention


class TransformerXLAttention(SoftmaxAttention):
    """A token sees those before it in its piece of C tokens, and the M before the piece, which get no gradient:

        s_ij = ((Q_i + u) . K_j + (Q_i + v) . W_r r_{i-j}) / sqrt(d),  r the sinusoids of the distance, u and v learned.

    Layer upon layer, what a piece knows reaches M tokens further back. All pieces of a text are computed together: a
    layer needs of the piece before it only what the layer below gave there, and stops the gradient at it, so that the
    numbers are those of one piece after the other, at one set of weights. The piece is not the segment of the corpus.
    Cost O(L (C + M) d) time, O(L (C + M)) memory; decoding keeps C + M keys and values.
    Source: [Dai 2019, sections 3.2 and 3.3]. Left out: memory from one document to the next, and compressed memory.

    piece   C, in tokens
    memory  M, in tokens
    """

    sites: ClassVar[tuple[str, ...]] = ("decoder",)
    absolute_positions: ClassVar[bool] = False

    def __init__(self, site: str, width: int, heads: int, piece: int = 64, memory: int = 64) -> None:
        super().__init__(site, width, heads)
        if piece < 1:
            raise ValueError(f"model.attention.piece is {piece}: it must be at least 1")
        if memory < 0:
            raise ValueError(f"model.attention.memory is {memory}: it must be at least 0")
        self.piece, self.memory = piece, memory
        self.position = nn.Linear(width, width, bias=False)  # W_r
        nn.init.xavier_uniform_(self.position.weight)
        self.content_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # u
        self.position_bias = nn.Parameter(torch.zeros(heads, self.head_width))  # v

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        key_mask: Tensor,
        query_segments: Tensor,
        key_segments: Tensor,
    ) -> Tensor:
        C, M = self.piece, self.memory
        query = chunks(self._split(self.query(x)), C)  # (B, H, N, C, d)
        keys, values = (self._with_memory(f(x), f(x.detach())) for f in (self.key, self.value))  # (B, H, N, M + C, d)
        index = torch.arange(M + C, device=x.device)  # (M + C,), in the strip of a piece
        past = index <= torch.arange(M, M + C, device=x.device)[:, None]  # (C, M + C)
        exists = index >= M - C * torch.arange(query.shape[2], device=x.device)[:, None, None]  # (N, 1, M + C)
        table = self._table(query)  # (H, 1, d, M + C)
        size = max(1, BLOCK_SCORES // (query[:, :, 0, :, 0].numel() * (M + C)))
        parts = (x.split(size, -3) for x in (query, keys, values, past & exists))
        blocks = [self._meet(q, k, v, seen, table) for q, k, v, seen in zip(*parts, strict=True)]
        out = torch.cat(blocks, dim=2)  # (B, H, N, C, d)
        return self.output(self._merge(out.flatten(2, 3)[:, :, : x.shape[1]]))  # (B, L, D)

    def empty_state(self, rows: int, like: Tensor) -> KeyValueCache:
        empty = like.new_zeros(
            rows, self.heads, self.memory + self.piece, self.head_width
        )  # (B*K, H, M + C, d), a ring
        return KeyValueCache(empty, torch.zeros_like(empty), 0)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: KeyValueCache
    ) -> tuple[Tensor, KeyValueCache]:
        size = state.key.shape[2]
        state.key[:, :, position % size], state.value[:, :, position % size] = key, value
        first = max(0, position - position % self.piece - self.memory)
        slots = torch.arange(first, position + 1, device=query.device) % size  # (T,)
        keys, values = (x.index_select(2, slots) for x in (state.key, state.value))  # (B*K, H, T, d)
        seen = torch.ones(1, len(slots), dtype=torch.bool, device=query.device)
        table = self._table(query)[..., -len(slots) :]  # (H, 1, d, T)
        out = self._meet(
            query[:, :, None, None], keys[:, :, None], values[:, :, None], seen, table
        )  # (B*K, H, 1, 1, d)
        return out[:, :, 0, 0], KeyValueCache(state.key, state.value, position + 1)

    def _with_memory(self, own: Tensor, past: Tensor) -> Tensor:
        """Projections (B, L, D) of the states, with and without gradient -> those of each piece (B, H, N, M + C, d)."""
        before = strips(self._split(past), self.piece, self.memory, 0)[..., : self.memory, :]  # (B, H, N, M, d)
        return torch.cat([before, chunks(self._split(own), self.piece)], dim=-2)

    def _table(self, like: Tensor) -> Tensor:
        """W_r r of the distances M + C - 1 to 0: (H, 1, d, M + C)."""
        distance = torch.arange(self.memory + self.piece - 1, -1, -1, device=like.device)  # (M + C,)
        table = self.position(sinusoids(distance, self.heads * self.head_width).to(like.dtype))  # (M + C, D)
        return table.view(len(distance), self.heads, 1, self.head_width).permute(1, 2, 3, 0)

    def _meet(self, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, table: Tensor) -> Tensor:
        """query (B, H, N, C, d), the last of the positions of keys and values (B, H, N, W, d) -> (B, H, N, C, d).

        seen (N or 1, C, W) bool, table (H, 1, d, W).
        """
        C, W = query.shape[-2], keys.shape[-2]
        content_bias, position_bias = (
            b[:, None, None].to(query.dtype) for b in (self.content_bias, self.position_bias)
        )
        by_distance = (query + position_bias) @ table  # (B, H, N, C, W)
        # row c begins C - 1 - c places too far left: shift it by one more column than the row after it
        shifted = functional.pad(by_distance, (1, 0)).flatten(-2)[..., C:].unflatten(-1, (C, W))  # (B, H, N, C, W)
        scores = ((query + content_bias) @ keys.transpose(-1, -2) + shifted) * self.head_width**-0.5
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~seen, float("-inf"))
        return scores.softmax(-1).to(values.dtype) @ values  # (B, H, N, C, d)
