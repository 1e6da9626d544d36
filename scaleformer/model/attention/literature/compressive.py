"""Transformer-XL whose oldest memories are compressed instead of lost."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.model.attention.base import OwnState
from scaleformer.model.attention.literature.transformer_xl import TransformerXLAttention
from scaleformer.model.attention.state import KeyValueCache
from scaleformer.ops.softmax.windowed import chunks, strips
from scaleformer.system.schema import Natural, Positive


class CompressiveAttention(TransformerXLAttention):
    """As `transformer_xl`, but of each C tokens that leave the memory C / r compressed ones stay, each the mean of r
    states. The last K of these are seen as if they were tokens before the memory, without gradient.

    Cost O(L W d) time, O(L W) memory with W = C + M + K; decoding keeps W keys and values.
    Source: [Rae 2020, section 3, algorithm 1]. Left out: other compressions than means with their losses
    (docs/log/086-five-compressions.md), and memory carried from one document to the next.

    piece           C, in tokens, a multiple of rate
    memory          M, in tokens, a multiple of rate
    compressed      K
    rate            r, number of tokens that one compressed memory stands for
    clamp           as in `transformer_xl`
    """

    def __init__(
        self, site: str, width: int, heads: int, piece: Positive = 64, memory: Natural = 64, compressed: Positive = 32,
        rate: Positive = 4, clamp: Natural = 0,
    ) -> None:  # fmt: skip
        super().__init__(site, width, heads, piece, memory, clamp)
        if piece % rate or memory % rate:
            raise ValueError(f"model.attention.rate is {rate}: it must divide piece, {piece}, and memory, {memory}")
        self.compressed, self.rate = compressed, rate

    def _keys_and_values(self, x: Tensor, past: Tensor) -> list[Tensor]:
        seen = super()._keys_and_values(x, past)  # (B, H, N, M + C, d)
        leaving = chunks(functional.pad(past, (0, 0, self.memory % self.piece, 0)), self.piece)  # (B, N, C, D)
        states = self._compressed(leaving).flatten(1, 2)  # (B, T, D)
        states = states[:, self.memory % self.piece // self.rate :]  # the first ones are before the text
        old, carried = [], (past.shape[1] - x.shape[1]) // self.piece  # pieces
        for projection in (self.key, self.value):
            ahead = self.compressed + self.memory // self.rate
            windows = strips(self._split(projection(states)), self.piece // self.rate, ahead, 0)
            own = slice(carried, carried + seen[0].shape[2])
            old.append(windows[:, :, own, : self.compressed])  # (B, H, N, K, d)
        return [torch.cat(parts, dim=-2) for parts in zip(old, seen, strict=True)]

    def step(self, x: Tensor, position: int, segments: Tensor, state: OwnState) -> tuple[Tensor, OwnState]:
        if position % self.piece == 0 and position > self.memory:
            self._advance(state.inner, position)
        return super().step(x, position, segments, state)

    def _advance(self, state: KeyValueCache, start: int) -> None:
        """Before the piece that begins at `start` is written: compress the tokens that leave the memory."""
        slots = self._slots(start - self.memory - self.piece, start - self.memory, state.key)
        for buffer in (state.key, state.value):  # the mean of keys is the key of the mean
            kept = torch.cat([buffer[:, :, : self.compressed], self._compressed(buffer[:, :, slots])], dim=2)
            buffer[:, :, : self.compressed] = kept[:, :, -self.compressed :]

    def _compressed(self, states: Tensor) -> Tensor:
        """The means (..., n / r, D) of states (..., n, D) that leave the memory together."""
        return states.unflatten(-2, (states.shape[-2] // self.rate, self.rate)).mean(-2)
