"""Tokens that a translation has to have: those of fixed segments, and of the beginnings of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from scaleformer.vocabulary import PAD, SEP


class Forced:
    """The forced tokens as tensors; A documents, n segments in the longest.

    limits (A, n) long: told tokens of each segment without the separator, which no limit cuts
    count (A,) long: told tokens of each document
    ahead (A, n) long: source segments from each one up to the next told one, which no separator may consume
    """

    def __init__(self, told: Sequence[Mapping[int, Sequence[int]]], segments: int, rows: int, like: Tensor) -> None:
        flat = [token for one in told for tokens in one.values() for token in tokens]
        starts, lengths, texts, ahead = torch.zeros(4, len(told), segments, dtype=torch.long)
        ahead[:] = segments + 1
        start = 0
        for document, one in enumerate(told):
            for n, tokens in one.items():
                starts[document, n], lengths[document, n] = start, len(tokens)
                texts[document, n] = len(tokens) - (SEP in tokens)
                ahead[document, :n] = ahead[document, :n].minimum(torch.arange(n, 0, -1))
                start += len(tokens)
        self._tokens = like.new_tensor([*flat, PAD])
        self._starts, self._lengths = starts.to(like.device), lengths.to(like.device)
        self.limits, self.ahead, self.count = texts.to(like.device), ahead.to(like.device), self._lengths.sum(1)
        self._rows = rows

    def following(self, segments: Tensor, written: Tensor) -> tuple[Tensor, Tensor]:
        """For rows (A*K,) with these counts of consumed source segments and of tokens since: the forced next token (PAD
        if none), and the most source segments that a separator may consume."""
        documents = torch.arange(len(segments), device=segments.device) // self._rows
        current = segments.clamp(max=self._lengths.shape[1] - 1)
        place = self._starts[documents, current] + written
        token = self._tokens[place.clamp(max=len(self._tokens) - 1)]
        return torch.where(written < self._lengths[documents, current], token, PAD), self.ahead[documents, current]

    def select(self, documents: Tensor) -> None:
        """Keep the documents at these places."""
        self._starts, self._lengths = self._starts[documents], self._lengths[documents]
        self.ahead, self.count = self.ahead[documents], self.count[documents]
