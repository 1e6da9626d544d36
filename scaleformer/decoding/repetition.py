"""The rule on what a segment repeats more often than its source.

Letters as in `scaleformer.decoding.state`; W tokens that a segment may have.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from scaleformer.decoding.state import Rows, Rule, SourceSegments, some
from scaleformer.vocabulary import EOS, PAD, SEP

#: So many tokens of a target segment may complete n-grams that stand there too often. Of 15,641 segments of manuals, 19
#: human translations have more (n = 4); of 194 translations that repeat themselves to their limit all.
SLACK = 6


class NoLoops(Rule):
    """A segment repeats itself no more than its source does, but for `SLACK` tokens: an n-gram may stand there once; as
    often as in the source segment; and twice, if that has any n-gram twice, which may be the same in its own words.

    text (A*K, W) long: the tokens since the last source segment was consumed
    matched (A*K, W) long: how many tokens up to each place equal the last ones written
    heard (A*K, L) long: the same of the places of the source segment
    spent (A*K,) long: tokens so far that completed an n-gram too often
    texts (A*K, n, L) long: the source segments, padded; twice (A*K, n) long: 2 for those with an n-gram twice, else 1
    """

    changing, fixed = ("_text", "_matched", "_heard", "_spent"), ("_texts", "_twice")

    def __init__(self, rows: Rows, source: SourceSegments, n: int) -> None:
        width = max(n, min(int(rows.segment_limits.max()), int(rows.limits.max())))
        self._text = rows.token.new_full((len(rows.token), width), PAD)
        self._places = torch.arange(width, device=rows.token.device)
        texts = source.texts()
        twice = repetitions(texts.flatten(0, 1), source.lengths.flatten(), n).clamp(max=2).view(source.lengths.shape)
        self._texts, self._twice = (x.repeat_interleave(rows.per_document, 0) for x in (texts, twice))
        self._n, self._matched, self._spent = n, torch.zeros_like(self._text), torch.zeros_like(rows.token)
        self._heard = torch.zeros_like(self._texts[:, 0])

    def allow(self, rows: Rows, logits: Tensor) -> None:
        # A model that gives neither <sep> nor </s> a probability continues a prefix of its own.
        bound = (self._spent >= SLACK) & ((logits[:, SEP] > -math.inf) | (logits[:, EOS] > -math.inf))
        chosen = some(bound)
        before, following = logits[chosen], self._text[chosen]
        if len(before) == 0:
            return
        # each token of the segment as the next one, if it would complete an n-gram that stands there already
        written, heard = (F.pad(x[chosen], (1, -1)) + 1 >= self._n for x in (self._matched, self._heard))
        written &= bound[chosen, None] & (self._places < rows.segment_tokens[chosen, None])
        written &= following != EOS  # finished rows repeat </s>
        times, allowed = torch.zeros(2, *before.shape, dtype=torch.long, device=logits.device)
        times.scatter_add_(1, following, written.long())
        source = self._source(rows)[chosen]
        shared = source < logits.shape[1]  # the vocabulary of sources may be larger
        allowed.scatter_add_(1, source * shared, (heard & shared).long())
        allowed = allowed.gather(1, following).maximum(rows.current(self._twice)[chosen, None])
        found = written & (times.gather(1, following) >= allowed)
        logits[chosen] = before.scatter(1, torch.where(found, following, PAD), -math.inf)  # PAD is forbidden anyway

    def advance(self, rows: Rows, consumed: Tensor) -> None:
        within = consumed == 0
        self._matched = _extend(self._matched, self._text, rows.token, rows.segment_tokens - 1)
        source = self._source(rows)  # of the next segment after a separator, where nothing is heard yet
        self._heard = (F.pad(self._heard, (1, -1)) + 1) * ((source == rows.token[:, None]) & within[:, None])
        times, heard = ((matched >= self._n).sum(1) for matched in (self._matched, self._heard))  # before this one
        self._spent = (self._spent + (times >= heard.maximum(rows.current(self._twice)))) * within
        place = (rows.segment_tokens - 1).clamp(0, len(self._places) - 1)  # only a forced prefix exceeds the width
        self._text = self._text.scatter(1, place[:, None], rows.token[:, None])

    def _source(self, rows: Rows) -> Tensor:
        """(A*K, L) the source segment of each row."""
        place = rows.segments.clamp(max=self._texts.shape[1] - 1)
        return self._texts[torch.arange(len(place), device=place.device), place]


def repetitions(texts: Tensor, lengths: Tensor, n: int) -> Tensor:
    """How often the most frequent n-gram stands in each text (R, L) of so many tokens (R,), at least 1."""
    most = texts.new_ones(len(texts))
    order = lengths.argsort(descending=True)  # so that each step reads the texts alone that have a token there
    texts, places = texts[order], torch.arange(texts.shape[1], device=texts.device)
    matched = torch.zeros_like(texts)
    rows = (lengths[:, None] > places).sum(0).tolist()
    for place, count in enumerate(rows):
        matched = _extend(matched[:count], texts[:count], texts[:count, place], place)
        most[order[:count]] = most[order[:count]].maximum((matched >= n).sum(1) + 1)
    return most


def _extend(matched: Tensor, texts: Tensor, token: Tensor, place: Tensor | int) -> Tensor:
    """`matched` after a token (R,) more, at this place (R,) of the texts (R, L)."""
    before = torch.arange(texts.shape[1], device=texts.device) < torch.as_tensor(place, device=texts.device).view(-1, 1)
    return (F.pad(matched, (1, -1)) + 1) * ((texts == token[:, None]) & before)
