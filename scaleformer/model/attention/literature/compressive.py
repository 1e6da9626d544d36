"""Transformer-XL whose oldest memories are compressed instead of lost."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from scaleformer.model.attention.base import OwnState
from scaleformer.model.attention.literature.auxiliary_loss import AuxiliaryLoss
from scaleformer.model.attention.literature.compressed_cache import CompressedCache
from scaleformer.model.attention.literature.compression import (
    COMPRESSIONS,
    Compression,
    full,
    keep_most_used,
    most_used,
    rows_of,
)
from scaleformer.model.attention.literature.transformer_xl import TransformerXLAttention
from scaleformer.ops.common.matmul import linear
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.ops.softmax.windowed import chunks, strips
from scaleformer.system.schema import Natural, OneOf, Positive, Range


class CompressiveAttention(AuxiliaryLoss, TransformerXLAttention):
    """As `transformer_xl`, but of each C tokens that leave the memory C / r compressed ones stay:

        m_1 .. m_{C/r} = f_c(h_1 .. h_C)

    The last K of these are seen as if they were tokens before the memory, without gradient to h. f_c is the mean or
    maximum of r states, a convolution (`compression.Compression`), or the C / r tokens that got the largest mean
    attention, over heads and the queries so far. That goes piece by piece, and where two tokens were used alike,
    rounding chooses. As in the paper the translation loss does not train convolutions. Training adds

        reconstruction * mean_i ||a(h_i, old) - a(h_i, f_c(old))||_2,   a the heads' softmax(Q K^T / sqrt(d)) V

    over the tokens h of a piece and the C tokens, old, that leave the memory after it, without gradient to anything but
    f_c (`auxiliary_loss`). Pieces count that a token follows: before that nobody sees what left. The loss changes no
    other gradient, but counts in the norm by which training clips all of them.
    Cost O(L W d) time, O(L W) memory with W = C + M + K, and O(L D^2) for convolutions and the loss; decoding keeps W
    keys and values, and the states of C + M tokens for max, convolution and dilated.
    Source: [Rae 2020, section 3, algorithms 1 and 2]. Left out: the auto-encoding loss, and memory carried from one
    document to the next; most_used carries none to the next piece of a document in training either (`transformer_xl`),
    since the attention that tokens got would have to be carried, too.

    piece           C, in tokens, a multiple of rate
    memory          M, in tokens, a multiple of rate
    compressed      K
    rate            r, number of tokens that one compressed memory stands for
    compression     f_c: mean, max, convolution, dilated or most_used
    reconstruction  weight of the loss; 0: the translation loss trains the convolutions. Others have nothing to train
    clamp           as in `transformer_xl`
    """

    def __init__(
        self,
        site: str,
        width: int,
        heads: int,
        piece: Positive = 64,
        memory: Natural = 64,
        compressed: Positive = 32,
        rate: Positive = 4,
        compression: Annotated[str, OneOf(COMPRESSIONS)] = "mean",
        reconstruction: Annotated[float, Range(ge=0)] = 1.0,
        clamp: Natural = 0,
    ) -> None:
        super().__init__(site, width, heads, piece, memory, clamp)
        if piece % rate or memory % rate:
            raise ValueError(f"model.attention.rate is {rate}: it must divide piece, {piece}, and memory, {memory}")
        self.compressed, self.rate = compressed, rate
        self.compression, self.reconstruction = compression, reconstruction
        self.carries = compression != "most_used"
        self.compress = Compression(compression, width, rate)
        self._latest: tuple[Tensor, Tensor] | None = None  # x (B, L, D) and its mask (B, L)

    def forward(self, x: Tensor, encoded: Tensor, layout: SegmentLayout) -> Tensor:
        if self._reconstructs and torch.is_grad_enabled():
            self._latest = x.detach(), layout.mask
        return super().forward(x, encoded, layout)

    def auxiliary_loss(self) -> Tensor | None:
        if not self._reconstructs or self._latest is None:
            return None
        latest, self._latest = self._latest, None
        return self.reconstruction * self._reconstruction_loss(*latest)

    def _keys_and_values(self, x: Tensor, past: Tensor) -> list[Tensor]:
        seen = super()._keys_and_values(x, past)  # (B, H, N, M + C, d)
        if self.compression == "most_used":  # what `_meet_pieces` may choose from comes first
            pasts = (chunks(self._split(f(past)), self.piece) for f in (self.key, self.value))
            return [torch.cat(parts, dim=-2) for parts in zip(pasts, seen, strict=True)]  # (B, H, N, C + M + C, d)
        states = self.compress(self.leaving(past)).flatten(1, 2)  # (B, T, D)
        states = states[:, self.memory % self.piece // self.rate :]  # the first ones are before the text
        if self._reconstructs:
            states = states.detach()
        old, carried = [], (past.shape[1] - x.shape[1]) // self.piece  # pieces
        for projection in (self.key, self.value):
            ahead = self.compressed + self.memory // self.rate
            windows = strips(self._split(projection(states)), self.piece // self.rate, ahead, 0)
            own = slice(carried, carried + seen[0].shape[2])
            old.append(windows[:, :, own, : self.compressed])  # (B, H, N, K, d)
        return [torch.cat(parts, dim=-2) for parts in zip(old, seen, strict=True)]

    def _meet_pieces(self, query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, table: Tensor) -> Tensor:
        if self.compression != "most_used":
            return super()._meet_pieces(query, keys, values, seen, table)

        def weights(n: int, q: Tensor, k: Tensor) -> Tensor:
            return self._weights(q[:, :, None], k[:, :, None], seen[n : n + 1], table)[:, :, 0]  # (B, H, C, W)

        return keep_most_used(query, keys, values, weights, self.memory, self.compressed, self.rate)

    def empty_state(self, rows: int, like: Tensor) -> CompressedCache:
        state, size = super().empty_state(rows, like), self.memory + self.piece
        states = usage = None
        if self.compression == "most_used":
            usage = torch.zeros(rows, 1, self.compressed + size, 1, dtype=full(like.dtype), device=like.device)
        elif self.compression != "mean":  # the mean of keys is the key of the mean
            states = like.new_zeros(rows, 1, size, self.heads * self.head_width)
        return CompressedCache(state.key, state.value, state.length, states=states, usage=usage)

    def step(self, x: Tensor, position: int, segments: Tensor, state: OwnState) -> tuple[Tensor, OwnState]:
        if position % self.piece == 0 and position > self.memory:
            self._advance(state.inner, position)
        state.inner.arrive(x, position % (self.memory + self.piece), self.compressed)
        return super().step(x, position, segments, state)

    def _advance(self, state: CompressedCache, start: int) -> None:
        """Before the piece that begins at `start` is written: compress the tokens that leave the memory."""
        slots = self._slots(start - self.memory - self.piece, start - self.memory, state.key)
        buffers = (state.key, state.value)
        if state.states is not None:
            new = self.compress(state.states[:, 0, slots - self.compressed])  # (B*K, C / r or less, D)
            parts = [self._split(f(new)) for f in (self.key, self.value)]  # (B*K, H, C / r or less, d)
        elif state.usage is not None:
            chosen = most_used(state.usage[:, 0, slots, 0], self.memory, self.rate)
            parts = [rows_of(x[:, :, slots], chosen) for x in buffers]
        else:
            parts = [self.compress(x[:, :, slots]) for x in buffers]
        state.keep(parts, self.compressed)

    def _note(self, state: CompressedCache, slots: Tensor, weights: Tensor) -> None:
        state.note(slots, weights)

    @property
    def _reconstructs(self) -> bool:
        return bool(self.compress.layers) and self.reconstruction > 0

    def _reconstruction_loss(self, x: Tensor, mask: Tensor) -> Tensor:
        """The mean over the pieces that a token follows; x (B, L, D), mask (B, L)."""
        C, first = self.piece, self.memory // self.piece  # the first piece after which tokens leave
        size, known = 0, mask.new_zeros(len(mask), dtype=torch.long)  # (B,)
        if (former := self._former) is not None:
            x, size, known = former.before(x), former.states.shape[1], former.known
        counts = functional.pad(mask, (size, 0))[:, C::C]  # (B, N), whether a token of x follows the piece
        # and it is known
        counts = counts & (C * torch.arange(counts.shape[1], device=x.device) >= size - known[:, None])
        counts = counts[:, first:]  # (B, n)
        pieces = slice(first, first + counts.shape[1])
        with torch.no_grad():
            query = chunks(self._split(self.query(x)), C)[:, :, pieces]  # (B, H, n, C, d)
        old = self.leaving(x)[:, : counts.shape[1]]  # (B, n, C, D)
        begin = (size - known // self.rate * self.rate)[:, None, None, None, None]  # (B, 1, 1, 1, 1), whole groups
        parts = torch.arange(old.shape[1] * C, device=x.device).view(-1, 1, C)  # (n, 1, C)
        in_text = parts - self.memory % C >= begin  # (B, 1, n, 1, C)
        counts = counts & in_text.any(-1)[:, 0, :, 0]
        in_text = in_text | ~counts[:, None, :, None, None]  # no softmax over nothing where nothing counts
        weights = [projection.weight.detach() for projection in (self.key, self.value)]
        old_pair, new_pair = (  # keys and values (B, H, n, C or C / r, d)
            [linear(states, w).unflatten(-1, (self.heads, -1)).movedim(-2, 1) for w in weights]
            for states in (old, self.compress(old))
        )
        errors = reconstruction_errors(query, old_pair, new_pair, in_text)  # (B, n)
        return (errors * counts).sum() / counts.sum().clamp(min=1)

    def leaving(self, x: Tensor) -> Tensor:
        """x (B, L, D) in parts that leave the memory together (B, N, C, D), with zeros before and after the text."""
        return chunks(functional.pad(x, (0, 0, self.memory % self.piece, 0)), self.piece)


def reconstruction_errors(query: Tensor, old: list[Tensor], new: list[Tensor], in_text: Tensor) -> Tensor:
    """[Rae 2020, algorithm 2]: the norm of the difference between attention to what leaves and to what stays of it, the
    mean over the C queries of a piece: (B, N).

    query    (B, H, N, C, d)
    old      keys and values (B, H, N, C, d), and new, compressed (B, H, N, C / r, d)
    in_text  (B, 1, N, 1, C) bool, False before the text
    """
    rate = in_text.shape[-1] // new[0].shape[-2]
    wanted = scaled_dot_product_attention(query, old[0], old[1], in_text)  # (B, H, N, C, d)
    found = scaled_dot_product_attention(query, new[0], new[1], in_text[..., ::rate])  # (B, H, N, C, d)
    return (wanted - found).movedim(1, 3).flatten(3).to(full(query.dtype)).norm(dim=-1).mean(-1)
