"""The bookkeeping of a search: limits and counts of rows, and which ones are finished.

Letters: B documents, K rows a document (beams or samples), row = b * K + k, A documents still in the batch, V words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.forced import Forced
from scaleformer.vocabulary import BOS, EOS, MOST, PAD, PLACEHOLDER, PLACEHOLDERS, SEP, SEP0, consumed, is_separator


class Rows:
    """Each row's next input, the source segments that it has consumed, and the tokens that it may write.

    token, segments (A*K,) long: the input of the next step, source segments consumed so far
    segment_tokens, words (A*K,) long: tokens since the last source segment was consumed, and since the last separator
    cut, ending (A*K,) bool: the limit ended a segment of this row, and ends the current one
    limits (A,) long: the most tokens of a document, `</s>` included
    segment_limits (A*K, n) long: the most tokens for each source segment, without separators; the last column holds
                   for all later segments
    wanted (A*K,) long: source segments, only with match_segments; 0 if the source has none, and any number is allowed
    counts (A,) long: segments of the source
    least (A*K, n) long: the fewest, likewise, only with min_length_ratio
    text (A*K, W) long: the tokens since the last source segment was consumed, only with repetition rules
    placeholders (A*K, n, 9) bool: those of each source segment, only with match_segments if the source has any
    missing (A*K, 9) bool: those that the current segment still needs, each once
    forced (A*K,) bool: whether the next token is told (`scaleformer.translation.told`); only with forced tokens
    """

    def __init__(
        self,
        source: Tensor,
        mask: Tensor,
        source_segments: Tensor,
        config: DecodingConfig,
        told: Sequence[Mapping[int, Sequence[int]]] = (),
    ) -> None:
        B, rows, limit = source.shape[0], config.rows, config.limit
        self.merge_segments = config.merge_segments
        self.token = source.new_full((B * rows,), BOS)
        self.segments = source.new_zeros(B * rows)
        self.segment_tokens = source.new_zeros(B * rows)
        self.words = source.new_zeros(B * rows)
        self.cut = self.ending = torch.zeros(B * rows, dtype=torch.bool, device=source.device)
        self.wanted: Tensor | None = None
        self.rows = rows
        self._ids: Tensor | None = None
        separators = (source == SEP) & mask
        wanted = separators.sum(1)  # (B,)
        self.counts = wanted.clamp(min=1)
        n = int(source_segments.max()) + 1
        lengths = source.new_zeros(B, n).scatter_add_(1, source_segments, (mask & ~separators).long())  # (B, n)
        limits = limit(lengths)
        self.told = Forced(told, n, rows, source) if any(told) else None
        if self.told is not None:
            limits = limits.maximum(self.told.limits)
        free, longest = limit(mask.sum(1)), limits.amax(1, keepdim=True)  # the segments are not aligned
        self.least: Tensor | None = None
        if config.match_segments:
            real = torch.arange(n, device=source.device) < wanted[:, None]
            matched = ((limits + 1) * real).sum(1) + 1  # a <sep> after each, </s> after all
            self.limits = torch.where(wanted > 0, matched, free)  # (B,)
            limits = torch.where(wanted[:, None] > 0, limits, longest)
            self.wanted = wanted.repeat_interleave(rows)
            if config.min_length_ratio:
                least = (lengths * config.min_length_ratio).floor().long() * real
                self.least = least.minimum(limits).repeat_interleave(rows, 0)
        else:
            self.limits, limits = free, longest
        self.segment_limits = limits.repeat_interleave(rows, 0)
        self.ngram, self.penalty = config.no_repeat_ngram_size, config.repetition_penalty
        self.text: Tensor | None = None
        if self.ngram or self.penalty != 1:
            width = max(self.ngram, min(int(limits.max()), int(self.limits.max())))
            self.text = source.new_full((B * rows, width), PAD)
            self._back = torch.arange(1 - max(self.ngram, 1), 0, device=source.device)
            self._ends = torch.arange(self.ngram, width + 1, device=source.device)
        self.placeholders: Tensor | None = None
        kinds = source - PLACEHOLDER
        is_placeholder = (kinds >= 0) & (kinds < len(PLACEHOLDERS)) & mask
        if config.match_segments and bool(is_placeholder.any()):
            found = torch.zeros(B, n, len(PLACEHOLDERS), dtype=torch.bool, device=source.device)
            documents = torch.arange(B, device=source.device)[:, None].expand_as(source)
            found[documents[is_placeholder], source_segments[is_placeholder], kinds[is_placeholder]] = True
            # no placeholders after the last segment
            found = torch.cat([found, torch.zeros_like(found[:, :1])], 1)
            self.placeholders = found.repeat_interleave(rows, 0)
            self.missing = self.placeholders[:, 0]

    def weigh(self, logits: Tensor) -> Tensor:
        """The logits (A*K, V) with the penalty on tokens that the current segment already has [Keskar 2019]."""
        if self.text is None or self.penalty == 1:
            return logits
        whole = torch.arange(self.text.shape[1], device=logits.device) < self.segment_tokens[:, None]
        there = torch.zeros_like(logits, dtype=torch.bool).scatter(1, torch.where(whole, self.text, PAD), True)
        there[:, PAD] = False  # padding is not a token of the segment
        worse = torch.where(logits > 0, logits / self.penalty, logits * self.penalty)
        return torch.where(there, worse, logits)

    def allow(self, logits: Tensor) -> Tensor:
        """The logits (A*K, V) with -inf for tokens that may not come next; changed in place.

        Nearly always only special tokens are forbidden. They come first in the vocabulary, so the others need not be
        read."""
        if self._ids is None:
            self._ids = torch.arange(logits.shape[1], device=logits.device)
            self._consumed = consumed(self._ids)  # (V,)
            special = self._ids[: PLACEHOLDER + len(PLACEHOLDERS)]  # (X,)
            kinds = special - PLACEHOLDER
            self._kinds = kinds.clamp(min=0)
            self._is_placeholder = kinds >= 0
            self._never = (special == PAD) | (special == BOS)
            if self.wanted is not None:
                if self.placeholders is None:
                    self._never = self._never | self._is_placeholder
                if not self.merge_segments:
                    self._never = self._never | (self._consumed[special] > 1)
            self._special, self._steps = special, self._consumed[special]
            self._ordinary = self._ids >= len(special)  # (V,)
        forbidden, given = self._never, logits
        if self.told is not None:
            given = logits.clone()
            told, ahead = self.told.following(self.segments, self.segment_tokens)
            self.forced = told != PAD
        special = self._special
        if self.wanted is not None:
            left = (self.wanted - self.segments)[:, None]  # (A*K, 1)
            forbidden = forbidden | ((left > 0) & (special == EOS))
            # consume no source segment twice, and write words before another <sep0>
            bound = (self.wanted > 0)[:, None]
            twice = (self._steps > left) & bound
            if self.told is not None:
                twice = twice | (self._steps > ahead[:, None])
            forbidden = forbidden | twice | ((self.words == 0)[:, None] & (special == SEP0))
            if self.placeholders is not None:
                forbidden = forbidden | self._misplaced(self.placeholders, logits)
            complete = torch.logical_and(left[:, 0] <= 0, self.wanted > 0)  # (A*K,)
            self._forbid(logits, complete, self._ids != EOS)
            forbidden = torch.where(complete[:, None], special != EOS, forbidden)  # (A*K, X)
        limit = self._limit()
        logits[:, : len(special)].masked_fill_(forbidden, -math.inf)
        if self.text is not None and self.ngram:
            # if neither <sep> nor </s> is possible, a given beginning continues
            free = (logits[:, [SEP, EOS]] > -math.inf).any(1, keepdim=True)
            if self.placeholders is not None:  # missing placeholders forbid the end of a segment, too
                free = free | self.missing.any(1, keepdim=True)
            self._forbid_repeats(logits, self.text, free)
        if self.least is not None:
            short = (self.segment_tokens < self._of_segment(self.least))[:, None] & is_separator(self._ids)
            longer = logits.masked_fill(short, -math.inf)
            logits = torch.where((longer > -math.inf).any(1, keepdim=True), longer, logits)
        # if no <sep> is possible (all segments are written, or a given beginning continues), none is required
        full = (self.segment_tokens >= limit) & (logits[:, SEP] > -math.inf)  # (A*K,)
        self._end_segments(logits, full)
        if self.told is not None:
            self.ending = self.ending & ~self.forced
            only = given.masked_fill(self._ids != told[:, None], -math.inf)
            logits = torch.where(self.forced[:, None], only, logits)
        return logits

    def _forbid(self, logits: Tensor, rows: Tensor, tokens: Tensor) -> None:
        """-inf for `tokens` (V,) bool, in place, in the rows (A*K,) that are True: few, if any."""
        if logits.device.type == "cpu":
            chosen = rows.nonzero()[:, 0]
            if len(chosen):
                logits[chosen] = logits[chosen].masked_fill(tokens, -math.inf)
        else:  # counting the rows would wait for the device
            logits.masked_fill_(rows[:, None] & tokens, -math.inf)

    def _end_segments(self, logits: Tensor, full: Tensor) -> None:
        """Allow only separators, in place, in the rows (A*K,) whose segment is full. A forced end consumes
        one source segment; an end that the model chose consumes as many as its separator says."""
        rows: Any = slice(None)
        self.ending = torch.zeros_like(full)
        if logits.device.type == "cpu":
            rows = full.nonzero()[:, 0]
            if len(rows) == 0:
                return
        chosen = logits[rows]
        ending = full[rows] & (self._consumed[chosen.argmax(1)] == 0)
        ends = torch.where(ending[:, None], self._ids == SEP, self._consumed > 0)  # (rows, V)
        logits[rows] = chosen.masked_fill(full[rows, None] & ~ends, -math.inf)
        self.ending[rows] = ending

    def _misplaced(self, placeholders: Tensor, logits: Tensor) -> Tensor:
        """(A*K, X) bool over special tokens: placeholders that the current segment does not or no longer need, and
        separators that would skip some. If only the missing placeholders still fit, this also forbids all other tokens,
        in place."""
        missing = self.missing.sum(1, keepdim=True)  # (A*K, 1)
        last = ((self._limit() - self.segment_tokens)[:, None] <= missing) & (missing > 0)  # (A*K, 1)
        self._forbid(logits, last[:, 0], self._ordinary)
        wrong = last | ((missing > 0) & (self._steps > 0))
        following = self.segments[:, None] + torch.arange(1, MOST, device=wrong.device)
        rows = torch.arange(len(wrong), device=wrong.device)[:, None]
        beyond = placeholders[rows, following.clamp(max=placeholders.shape[1] - 1)].any(2)
        # a separator that consumes n segments must not skip placeholders of the n - 1 following ones
        skips = torch.cat([beyond.new_zeros(len(beyond), 2), beyond.cumsum(1) > 0], 1)  # (A*K, MOST + 1)
        wrong = wrong | skips[:, self._steps]
        return torch.where(self._is_placeholder, ~self.missing[:, self._kinds], wrong)

    def _limit(self) -> Tensor:
        """(A*K,) the most tokens of the current segment."""
        return self._of_segment(self.segment_limits)

    def _of_segment(self, values: Tensor) -> Tensor:
        """(A*K,) the values (A*K, n) of the current segment."""
        return values.gather(1, self.segments.clamp(max=values.shape[1] - 1)[:, None])[:, 0]

    def left(self, done: Tensor) -> float:
        """Approximate number of source segments that unfinished documents (A,) have left; the current one counts by its
        tokens relative to its limit."""
        part = self.segment_tokens / (self._limit() + 1)  # (A*K,)
        left = self.counts - (self.segments + part)[:: self.rows]  # (A,) by the first row
        return float((left.clamp(min=0) * ~done).sum())

    def _forbid_repeats(self, logits: Tensor, text: Tensor, free: Tensor) -> None:
        """-inf, in place, for tokens that would repeat an n-gram of the current segment, in rows that are `free`
        (A*K, 1)."""
        windows = text.unfold(1, self.ngram, 1)  # (A*K, W-n+1, n)
        places = self.segment_tokens[:, None] + self._back  # (A*K, n-1)
        last = text.gather(1, places.clamp(0, text.shape[1] - 1))  # (A*K, n-1)
        whole = self._ends <= self.segment_tokens[:, None]  # (A*K, W-n+1)
        following = windows[..., -1]
        # finished rows repeat </s>; PAD is forbidden anyway
        found = (windows[..., :-1] == last[:, None]).all(2) & whole & free & (following != EOS)
        logits.scatter_(1, torch.where(found, following, PAD), -math.inf)

    def advance(self, tokens: Tensor) -> None:
        """Append the chosen tokens (A*K,)."""
        steps, separator = self._consumed[tokens], is_separator(tokens)
        self.cut = self.cut | (self.ending & separator)
        self.token = tokens
        if self.text is not None:  # only a given beginning exceeds its width
            place = self.segment_tokens.clamp(max=self.text.shape[1] - 1)
            self.text = self.text.scatter(1, place[:, None], tokens[:, None])
        self.segments = self.segments + steps
        if self.placeholders is not None:
            kinds = torch.arange(PLACEHOLDER, PLACEHOLDER + len(PLACEHOLDERS), device=tokens.device)
            rows, last = torch.arange(len(tokens), device=tokens.device), self.placeholders.shape[1] - 1
            fresh = self.placeholders[rows, self.segments.clamp(max=last)]
            self.missing = torch.where((steps > 0)[:, None], fresh, self.missing & (tokens[:, None] != kinds))
        self.segment_tokens = (self.segment_tokens + 1) * (steps == 0)
        self.words = (self.words + 1) * ~separator

    def select(self, rows: Tensor, documents: Tensor | None) -> None:
        """New row i continues old row rows[i]; documents: the old places of those that stay, None for all."""
        self.token, self.segments, self.words = self.token[rows], self.segments[rows], self.words[rows]
        self.segment_tokens, self.cut, self.ending = self.segment_tokens[rows], self.cut[rows], self.ending[rows]
        if self.text is not None:
            self.text = self.text[rows]
        if self.placeholders is not None:  # the same for all rows of a document
            self.placeholders, self.missing = self.placeholders[rows], self.missing[rows]
        if documents is not None:
            self.limits, self.segment_limits = self.limits[documents], self.segment_limits[rows]
            if self.least is not None:
                self.least = self.least[rows]
            self.counts = self.counts[documents]
            if self.told is not None:
                self.told.select(documents)
            if self.wanted is not None:
                self.wanted = self.wanted[rows]
