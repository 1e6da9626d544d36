"""The bookkeeping of a search: what its rows have written, and how much they may write.

Letters: B documents, K rows a document (beams or samples), row = b * K + k, A documents still in the batch, V words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from scaleformer.decoding.config import DecodingConfig
from scaleformer.vocabulary import BOS, EOS, PAD, PLACEHOLDER, PLACEHOLDERS, SEP, UNK, consumed, is_separator

SPECIAL = PLACEHOLDER + len(PLACEHOLDERS)  # X, the ids with a meaning, which come first in every vocabulary


class SourceSegments:
    """The segments of a batch of sources; n of the most, with what follows the last `<sep>`.

    counts        (B,) long: segments that end with `<sep>`
    real          (B, n) bool: whether there is such a segment
    lengths       (B, n) long: tokens of each, without `<sep>`
    tokens        (B,) long: tokens of each document
    placeholders  (B, n, 9) bool: those of each segment; none after the last `<sep>`, unless there is no other segment
    forced        (T,) long: all tokens with which translations of segments begin, as in `search.decode`, and `<pad>`
    starts, forced_lengths, prefixes  (B, n) long: where those of a segment begin, how many they are, and how many
                  without `<sep>`
    ahead         (B, n) long: from each segment up to the next one with forced tokens
    """

    def __init__(
        self, source: Tensor, mask: Tensor, numbers: Tensor, forced: Sequence[Mapping[int, Sequence[int]]]
    ) -> None:
        B, n = len(source), int(numbers.max()) + 1
        separators = (source == SEP) & mask
        self.counts, self.tokens = separators.sum(1), mask.sum(1)
        self.real = torch.arange(n, device=source.device) < self.counts[:, None]
        self.lengths = source.new_zeros(B, n).scatter_add_(1, numbers, (mask & ~separators).long())
        self._source, self._numbers, self._words = source, numbers, mask & ~separators
        kinds = source - PLACEHOLDER
        document, place = ((kinds >= 0) & (kinds < len(PLACEHOLDERS)) & mask).nonzero(as_tuple=True)
        found = torch.zeros(B, n, len(PLACEHOLDERS), dtype=torch.bool, device=source.device)
        found[document, numbers[document, place], kinds[document, place]] = True
        self.placeholders = found & (self.real | (self.counts == 0)[:, None])[..., None]

        flat: list[int] = []
        starts, lengths, prefixes, ahead = tables = torch.zeros(4, B, n, dtype=torch.long)
        ahead[:] = n + 1
        for b, segments in enumerate(forced):
            for i, tokens in segments.items():
                starts[b, i], lengths[b, i], prefixes[b, i] = len(flat), len(tokens), len(tokens) - (SEP in tokens)
                ahead[b, :i] = ahead[b, :i].minimum(torch.arange(i, 0, -1))
                flat += tokens
        self.forced = source.new_tensor([*flat, PAD])
        self.starts, self.forced_lengths, self.prefixes, self.ahead = tables.to(source.device)

    def texts(self) -> Tensor:
        """(B, n, L) the tokens of each segment without `<sep>`, padded."""
        ends = self.lengths.cumsum(1)
        place = self._words.cumsum(1) - 1 - (ends - self.lengths).gather(1, self._numbers)
        texts = self.lengths.new_full((*self.lengths.shape, int(self.lengths.max())), PAD)
        document, at = self._words.nonzero(as_tuple=True)
        texts[document, self._numbers[document, at], place[document, at]] = self._source[document, at]
        return texts


def pad(sources: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """source, mask and segments, each (B, S), of a batch of source tokens, as `scaleformer.batch.Batch` has them."""
    length = max(len(tokens) for tokens in sources)
    source = torch.tensor([[*tokens, *[PAD] * (length - len(tokens))] for tokens in sources])
    mask = torch.arange(length) < torch.tensor([len(tokens) for tokens in sources])[:, None]
    separators = (source == SEP).long()
    return source.to(device), mask.to(device), (separators.cumsum(1) - separators).to(device)


class PerRow:
    """Something with tensors whose first dimension is the rows of a search."""

    changing: tuple[str, ...] = ()  # the attributes that change with each token
    fixed: tuple[str, ...] = ()  # those that are the same for all rows of a document

    def reorder(self, rows: Tensor, documents: Tensor | None) -> None:
        """New row i continues old row rows[i]; documents: the old places of those that stay, None for all."""
        for name in self.changing if documents is None else (*self.changing, *self.fixed):
            setattr(self, name, getattr(self, name)[rows])


class Rows(PerRow):
    """Each row's next input, and what it has written of the current source segment.

    token, segments (A*K,) long: the input of the next step, source segments consumed so far
    segment_tokens (A*K,) long: tokens since the last source segment was consumed
    running (A*K,) bool: whether a row has neither ended nor reached the limit of its document
    cut, ending (A*K,) bool: the limit ended a segment of this row, and ends the current one
    forced (A*K,) bool: whether the next token is forced
    limits (A,) long: the most tokens of a document, `</s>` included
    segment_limits (A*K, n) long: the most tokens for each source segment, without separators; the last column holds
                   for all later segments
    counts (A,) long: segments of the source, at least one
    forced_tokens (A, 1) long: how many there are, with first_only in the first segment; 0 if no document has any
    steps (X,) long: how many source segments each special token consumes
    first_only: whether a row ends when it has consumed its first source segment, without `</s>`
    closed: whether it ends when it has consumed the last one, without `</s>`
    """

    changing = ("token", "segments", "segment_tokens", "cut", "ending", "forced", "running")
    fixed = ("segment_limits",)

    def __init__(
        self,
        source: SourceSegments,
        config: DecodingConfig,
        most: float,
        first_only: bool = False,
        closed: bool = False,
    ) -> None:
        """most: tokens that the model can write."""
        self.first_only, self.closed = first_only, closed
        self.per_document = K = config.rows
        limits = config.limit(source.lengths).maximum(source.prefixes)  # (B, n): no limit cuts what is forced
        aligned = (source.counts > 0) & config.match_segments
        whole = ((limits + 1) * source.real).sum(1) + 1  # a <sep> after each, </s> after all
        self.limits = torch.where(aligned, whole, config.limit(source.tokens)).clamp(max=int(min(most, 2**62)))
        limits = torch.where(aligned[:, None], limits, limits.amax(1, keepdim=True))
        self.segment_limits = limits.repeat_interleave(K, 0)
        self.counts = source.counts.clamp(min=1)
        given = source.forced_lengths[:, :1] if first_only else source.forced_lengths
        self.forced_tokens = given.sum(1, keepdim=True) if len(source.forced) > 1 else 0
        self.token = self.limits.new_full((len(limits) * K,), BOS)
        self.segments = self.segment_tokens = torch.zeros_like(self.token)
        self.cut = self.ending = self.forced = torch.zeros_like(self.token, dtype=torch.bool)
        self.running = ~self.cut
        self._written = 0
        self.steps = consumed(torch.arange(SPECIAL, device=self.token.device))

    def consumed(self, tokens: Tensor) -> Tensor:
        """How many source segments each token consumes."""
        return self.steps[tokens.clamp(max=SPECIAL - 1)]

    def ends(self, tokens: Tensor, parents: Tensor | None = None) -> Tensor:
        """Whether each of these tokens, (A*K,), ends its row; or each of (A, W), the row of its document in `parents`
        (A, W)."""
        end, steps = tokens == EOS, self.consumed(tokens)
        if self.first_only:
            return end | (steps > 0)
        if not self.closed:
            return end
        segments, counts = self.segments, self.counts.repeat_interleave(self.per_document)
        if parents is not None:
            segments, counts = segments.view(len(parents), -1).gather(1, parents), self.counts[:, None]
        return end | ((steps > 0) & (segments + steps >= counts))

    def current(self, values: Tensor) -> Tensor:
        """(A*K,) the values (A*K, n) of the current segment."""
        return values.gather(1, self.segments.clamp(max=values.shape[1] - 1)[:, None])[:, 0]

    def left(self, done: Tensor) -> float:
        """Approximate number of source segments that unfinished documents (A,) have left; the current one counts by its
        tokens relative to its limit."""
        part = self.segment_tokens / (self.current(self.segment_limits) + 1)  # (A*K,)
        left = self.counts - (self.segments + part)[:: self.per_document]  # (A,) by the first row
        return float((left.clamp(min=0) * ~done).sum())

    def advance(self, tokens: Tensor) -> Tensor:
        """Append the chosen tokens (A*K,); returns how many source segments each consumes."""
        steps = self.consumed(tokens)
        self._written += 1
        self.cut = self.cut | (self.ending & is_separator(tokens) & self.running)
        room = (self._written < self.limits).repeat_interleave(self.per_document)
        self.running = self.running & ~self.ends(tokens) & room
        self.token = tokens
        self.segments = self.segments + steps
        self.segment_tokens = (self.segment_tokens + 1) * (steps == 0)
        return steps

    def reorder(self, rows: Tensor, documents: Tensor | None) -> None:
        super().reorder(rows, documents)
        if documents is not None:
            self.limits, self.counts = self.limits[documents], self.counts[documents]
            if not isinstance(self.forced_tokens, int):
                self.forced_tokens = self.forced_tokens[documents]


class Rule(PerRow):
    """One rule of a search. The first three methods do nothing unless a rule overrides them."""

    def read(self, rows: Rows, logits: Tensor) -> None:
        """The logits (A*K, V) of the model, before any rule changes them."""

    def allow(self, rows: Rows, logits: Tensor) -> None:
        """-inf, in place, in the logits (A*K, V) of tokens that may not come next."""

    def advance(self, rows: Rows, consumed: Tensor) -> None:
        """The rows have appended `rows.token`, which consume so many source segments (A*K,)."""


def some(rows: Tensor) -> Any:
    """An index of those rows (A*K,) bool that are True, few if any; of all rows on a GPU, where counting them would
    wait for the device."""
    return rows.nonzero()[:, 0] if rows.device.type == "cpu" else slice(None)


def replay(rows: Rows, rules: Sequence[Rule], begun: Sequence[Sequence[int]]) -> None:
    """Let each row, one a document, have written these tokens, which consume no source segment."""
    lengths = torch.tensor([len(tokens) for tokens in begun])
    longest = int(lengths.max())
    tokens = torch.tensor([[*words, *[UNK] * (longest - len(words))] for words in begun]).to(rows.token)
    names = [(part, name) for part in (rows, *rules) for name in part.changing]
    places, values = [], []
    for place in range(longest + 1):
        whole = (lengths == place).nonzero()[:, 0]
        if len(whole):
            places.append(whole)
            index = whole.to(rows.token.device)
            values.append([getattr(part, name)[index] for part, name in names])
        if place < longest:
            steps = rows.advance(tokens[:, place])
            for rule in rules:
                rule.advance(rows, steps)
    rows._written, rows.limits = 0, rows.limits - lengths.to(rows.limits)  # what is left of each
    order = torch.cat(places).argsort().to(rows.token.device)
    for (part, name), found in zip(names, zip(*values, strict=True), strict=True):
        setattr(part, name, torch.cat(found)[order])
