"""The rules of a search, a class each: which tokens may come next.

Letters as in `scaleformer.decoding.state`; X special tokens, which come first in every vocabulary. Nearly always only
these are forbidden, so that the others need not be read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.repetition import NoLoops
from scaleformer.decoding.state import SPECIAL, Rows, Rule, SourceSegments, pad, some
from scaleformer.vocabulary import BOS, EOS, MOST, PAD, PLACEHOLDER, SEP, SEP0, SEP2, SEP3, is_separator


def make_rules(rows: Rows, source: SourceSegments, config: DecodingConfig) -> list[Rule]:
    """The rules that the settings of a search ask for, in the order in which they apply."""
    never = [PAD, BOS]
    rules: list[Rule] = []
    if config.loop_ngram_size:
        rules.append(NoLoops(rows, source, config.loop_ngram_size))
    if config.match_segments:
        never += [] if config.merge_segments else [SEP2, SEP3]
        if bool(source.placeholders.any()):
            rules.append(Placeholders(rows, source))
        else:
            never += range(PLACEHOLDER, SPECIAL)
        rules.append(Separators(rows, source))
    elif rows.closed:
        never += [EOS, SEP0, SEP2, SEP3]  # one token alone ends a row
    rules.append(Never(rows, never))
    if config.min_length_ratio:
        rules.append(MinimumLength(rows, source, config.min_length_ratio))
    rules.append(MaximumLength())
    return [*rules, Forced(rows, source)] if len(source.forced) > 1 else rules


Rest = tuple[Sequence[int], Mapping[int, Sequence[int]]]  # source tokens, and what is forced of their translation


def follow_rules(
    rests: Sequence[Rest], texts: Sequence[Sequence[int]], choices: Sequence[Sequence[int]],
    logits_of: Callable[[Tensor, int], Tensor], config: DecodingConfig, device: torch.device,
) -> list[tuple[int, bool]]:  # fmt: skip
    """Of translations of the first segment of each source, each with its separator: how many of their tokens greedy
    search writes, one after the other, and whether a limit ends it there.

    choices    for each token the one that the model finds likeliest in its place, whatever the rules say
    logits_of  texts (n,), place -> (n, V) what the model says after so many tokens of these texts
    """
    words = {token: token for token in range(SPECIAL)}  # those at hand: a step costs as much as there are words

    def own(tokens: Sequence[int]) -> list[int]:
        return [words.setdefault(token, len(words)) for token in tokens]

    forced = [{n: own(given) for n, given in segments.items()} for _, segments in rests]
    source = SourceSegments(*pad([own(tokens) for tokens, _ in rests], device), forced)
    rows = Rows(source, config, math.inf, first_only=True)
    rules = make_rules(rows, source, config)
    tokens, real, _ = pad([own(text) for text in texts], device)
    doubted = pad(texts, device)[0] != pad(choices, device)[0]
    hands = torch.tensor(list(words), device=device)
    followed, right, limited = torch.zeros_like(tokens[:, 0]), real[:, 0], torch.zeros_like(real[:, 0])
    for place, token in enumerate(tokens.unbind(1)):
        right = right & real[:, place]
        if device.type == "cpu" and not right.any():
            break
        logits = F.one_hot(token, len(words) + 1).float()  # the last stands for all words that are not at hand
        if len(chosen := some(right & doubted[:, place])):
            given = logits_of(chosen, place)
            others = given.index_fill(1, hands, -math.inf).amax(1, keepdim=True)
            logits[chosen] = torch.cat([given[:, hands], others], 1)
        for rule in rules:
            rule.read(rows, logits)
        for rule in rules:
            rule.allow(rows, logits)
        limited |= rows.ending & (token >= SEP) & (token <= SEP3)
        right &= logits.argmax(1) == token
        followed += right
        steps = rows.advance(token)
        for rule in rules:
            rule.advance(rows, steps)
    return list(zip(followed.tolist(), limited.tolist(), strict=True))


class Never(Rule):
    """Some tokens are never written."""

    def __init__(self, rows: Rows, tokens: Sequence[int]) -> None:
        self._tokens = rows.token.new_tensor(tokens)

    def allow(self, rows: Rows, logits: Tensor) -> None:
        logits.index_fill_(1, self._tokens, -math.inf)


class Separators(Rule):
    """Every source segment is consumed once, and `</s>` follows the last; a source without `<sep>` asks for nothing. No
    separator consumes a segment with forced tokens and the one before. Words stand before each `<sep0>`."""

    changing, fixed = ("_words",), ("_wanted", "_ahead")

    def __init__(self, rows: Rows, source: SourceSegments) -> None:
        self._wanted = source.counts.repeat_interleave(rows.per_document)
        self._words = torch.zeros_like(rows.token)  # since the last separator
        self._ahead = source.ahead.repeat_interleave(rows.per_document, 0)

    def allow(self, rows: Rows, logits: Tensor) -> None:
        left, bound = (self._wanted - rows.segments)[:, None], (self._wanted > 0)[:, None]  # (A*K, 1)
        wrong = ((rows.steps > left) & bound) | (rows.steps > rows.current(self._ahead)[:, None])  # (A*K, X)
        wrong[:, EOS], wrong[:, SEP0] = left[:, 0] > 0, self._words == 0
        logits[:, :SPECIAL].masked_fill_(wrong, -math.inf)
        end = logits[:, EOS].clone()
        forbid(logits, ((left <= 0) & bound)[:, 0])
        logits[:, EOS] = end

    def advance(self, rows: Rows, consumed: Tensor) -> None:
        self._words = (self._words + 1) * ~is_separator(rows.token)


class Placeholders(Rule):
    """Each placeholder of a source segment is written once, in what translates it, and no other.

    there (A*K, n+1, 9) bool: those of each segment; missing (A*K, 9) bool: those that the current one still needs
    """

    changing, fixed = ("_missing",), ("_there",)

    def __init__(self, rows: Rows, source: SourceSegments) -> None:
        self._there = F.pad(source.placeholders, (0, 0, 0, 1)).repeat_interleave(rows.per_document, 0)
        self._missing = self._there[:, 0]
        self._kinds = torch.arange(PLACEHOLDER, SPECIAL, device=rows.token.device)

    def allow(self, rows: Rows, logits: Tensor) -> None:
        missing = self._missing.sum(1)  # (A*K,)
        # Only the missing ones may come where no more fit, else no end of the segment.
        last = (rows.current(rows.segment_limits) - rows.segment_tokens <= missing) & (missing > 0)
        forbid(logits[:, SPECIAL:], last)
        wrong = last[:, None] | ((missing > 0)[:, None] & (rows.steps > 0))  # (A*K, X)
        # A separator that consumes n segments must not skip placeholders of the n - 1 following ones.
        beyond = torch.stack([self._of(rows.segments + n).any(1) for n in range(1, MOST)], 1).cumsum(1) > 0
        wrong = wrong | F.pad(beyond, (2, 0))[:, rows.steps]
        wrong[:, PLACEHOLDER:] = ~self._missing
        logits[:, :SPECIAL].masked_fill_(wrong, -math.inf)

    def _of(self, segments: Tensor) -> Tensor:
        """(A*K, 9) those of one segment (A*K,) of each row."""
        rows = torch.arange(len(segments), device=segments.device)
        return self._there[rows, segments.clamp(max=self._there.shape[1] - 1)]

    def advance(self, rows: Rows, consumed: Tensor) -> None:
        rest = self._missing & (rows.token[:, None] != self._kinds)
        self._missing = torch.where((consumed > 0)[:, None], self._of(rows.segments), rest)


class MinimumLength(Rule):
    """A segment has at least so many tokens per token of its source, and no more than it may have."""

    fixed = ("_least",)

    def __init__(self, rows: Rows, source: SourceSegments, ratio: float) -> None:
        least = (source.lengths * ratio).floor().long() * source.real
        self._least = least.repeat_interleave(rows.per_document, 0).minimum(rows.segment_limits)  # (A*K, n)

    def allow(self, rows: Rows, logits: Tensor) -> None:
        separators = logits[:, SEP : SEP3 + 1]
        others = (logits > -math.inf).sum(1) > (separators > -math.inf).sum(1)  # can come, too
        short = (rows.segment_tokens < rows.current(self._least)) & others
        separators.masked_fill_(short[:, None], -math.inf)


class MaximumLength(Rule):
    """Only separators may follow when a segment is full. An end that the limit forces consumes one source segment, an
    end that the model chose as many as its separator says."""

    def allow(self, rows: Rows, logits: Tensor) -> None:
        # if no <sep> is possible, all segments are written, and none is required
        full = (rows.segment_tokens >= rows.current(rows.segment_limits)) & (logits[:, SEP] > -math.inf)
        rows.ending = torch.zeros_like(full)
        chosen = some(full)
        if len(full[chosen]) == 0:
            return
        before = logits[chosen]
        ending = full[chosen] & (rows.consumed(before.argmax(1)) == 0)
        ends = torch.where(ending[:, None], rows.steps == 1, rows.steps > 0)  # (rows, X)
        ends = F.pad(ends, (0, logits.shape[1] - SPECIAL)) | ~full[chosen, None]  # (rows, V)
        logits[chosen] = before.masked_fill(~ends, -math.inf)
        rows.ending[chosen] = ending


class Forced(Rule):
    """Tokens that a translation has to have: whole segments, or prefixes of segments; no other rule applies to them."""

    fixed = ("_starts", "_lengths")

    def __init__(self, rows: Rows, source: SourceSegments) -> None:
        self._tokens = source.forced
        self._starts = source.starts.repeat_interleave(rows.per_document, 0)
        self._lengths = source.forced_lengths.repeat_interleave(rows.per_document, 0)

    def read(self, rows: Rows, logits: Tensor) -> None:
        place = rows.current(self._starts) + rows.segment_tokens
        rows.forced = rows.segment_tokens < rows.current(self._lengths)
        token = self._tokens[place.clamp(max=len(self._tokens) - 1)]
        self._following = torch.where(rows.forced, token, PAD)[:, None]  # (A*K, 1)
        self._logit = logits.gather(1, self._following)

    def allow(self, rows: Rows, logits: Tensor) -> None:
        forbid(logits, rows.forced)
        rest = logits.gather(1, self._following)
        logits.scatter_(1, self._following, torch.where(rows.forced[:, None], self._logit, rest))
        rows.ending = rows.ending & ~rows.forced


def forbid(logits: Tensor, rows: Tensor) -> None:
    """-inf, in place, for all tokens in the rows (A*K,) that are True."""
    if rows.device.type == "cpu":
        logits.index_fill_(0, some(rows), -math.inf)
    else:
        logits.masked_fill_(rows[:, None], -math.inf)
