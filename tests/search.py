"""Models for the tests of searches whose best hypothesis can be worked out by hand or by trying everything."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.repetition import SLACK
from scaleformer.vocabulary import BOS, EOS, PAD, PLACEHOLDER, PLACEHOLDERS, SEP, SEP0, SEP2, SEP3, UNK

A, B, C = range(PLACEHOLDER + len(PLACEHOLDERS), PLACEHOLDER + len(PLACEHOLDERS) + 3)  # three words
SIZE = C + 1
STEPS = {SEP0: 0, SEP: 1, SEP2: 2, SEP3: 3}  # source segments that a separator consumes
PLAIN = (PAD, UNK, BOS, EOS, SEP, A, B, C)  # neither other separators nor placeholders


class FakeModel:
    """Logits (V,) from (source tokens, all target tokens fed so far).

    The state holds each row's own tokens and each document's source, so a wrong reorder gives wrong logits. It also
    asks that every row is fed the tokens, consumed segments and beam numbers that the contract promises.
    """

    most_target_tokens = math.inf

    def __init__(self, logits) -> None:
        self.logits = logits
        self.steps: list[int] = []  # rows of each step
        self.compactions = 0

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor):
        return [tuple(row[mask].tolist()) for row, mask in zip(source, source_mask, strict=True)]

    def init_state(self, encoded, beams: int):
        return {"sources": encoded, "beams": beams, "written": [()] * (len(encoded) * beams)}

    def step(self, tokens: Tensor, segments: Tensor, state):
        sources, K = state["sources"], state["beams"]
        assert tokens.shape == segments.shape == (len(sources) * K,)
        self.steps.append(len(tokens))
        written = [(*before, token) for before, token in zip(state["written"], tokens.tolist(), strict=True)]
        for row, count in zip(written, segments.tolist(), strict=True):
            assert row[0] == BOS
            assert count == sum(STEPS.get(token, 0) for token in row)
        logits = torch.stack([self.logits(sources[i // K], row) for i, row in enumerate(written)])
        return logits, {"sources": sources, "beams": K, "written": written}

    def reorder(self, state, rows: Tensor, documents: Tensor | None):
        K = state["beams"]
        sources = state["sources"]
        old_documents = torch.arange(len(sources)) if documents is None else documents
        assert torch.equal(rows // K, old_documents.repeat_interleave(K)), "a row went over to another document"
        if documents is not None:
            self.compactions += 1
            sources = [sources[i] for i in documents.tolist()]
        return {"sources": sources, "beams": K, "written": [state["written"][i] for i in rows.tolist()]}


def table(probabilities: dict[int, float]) -> Tensor:
    """Logits of a distribution; what is not named has probability 0."""
    logits = torch.full((SIZE,), -math.inf)
    for token, probability in probabilities.items():
        logits[token] = math.log(probability)
    return logits


def random_logits(
    source: tuple[int, ...], written: tuple[int, ...], scale: float = 2.0, some: Sequence[int] = PLAIN
) -> Tensor:
    """A distribution of its own for every source and prefix, over some tokens."""
    seed = hash((source, written)) % 2**31
    logits = torch.full((SIZE,), -math.inf)
    logits[list(some)] = torch.randn(len(some), generator=torch.Generator().manual_seed(seed)) * scale
    return logits


def batch(*sources: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    length = max(len(s) for s in sources)
    source = torch.tensor([s + [PAD] * (length - len(s)) for s in sources])
    mask = torch.tensor([[True] * len(s) + [False] * (length - len(s)) for s in sources])
    is_sep = (source == SEP).long()
    return source, mask, is_sep.cumsum(1) - is_sep


SOURCES = [[A, SEP, EOS], [B, B, SEP, C, SEP, EOS], [C, SEP, EOS], [A, B, C, SEP, A, SEP, B, C, SEP, EOS]]


def free(**settings: Any) -> DecodingConfig:
    """Settings of a search that may end when it likes."""
    return DecodingConfig(**{"match_segments": False, "loop_ngram_size": 0, **settings})


SETTINGS = {
    "greedy": free(strategy="greedy", max_length_ratio=1.0, max_length_offset=3),
    "beam": free(strategy="beam", beam_size=3, n_best=2, max_length_ratio=1.0, max_length_offset=3),
}
SETTINGS |= {f"{name}, matched": replace(config, match_segments=True) for name, config in SETTINGS.items()}
WITHOUT_LOOPS = {f"{name}, no loops": replace(config, loop_ngram_size=2) for name, config in SETTINGS.items()}


def commonest(text: Sequence[int], n: int) -> int:
    """How often the commonest n-gram stands in a text, at least 1."""
    return max(Counter(tuple(text[i : i + n]) for i in range(len(text) - n + 1)).values(), default=1)


def loops(tokens: Sequence[int], source: Sequence[int], n: int) -> bool:
    """Whether more than `SLACK` tokens of a target segment complete an n-gram more often than its source has it, and
    more often than once, or twice if the source has any n-gram twice."""
    sources = [list(text) for end, text in itertools.groupby(source, lambda t: t == SEP) if not end]
    text: list[int] = []
    segment = spent = 0
    for token in tokens:
        if steps := STEPS.get(token, 0):
            text, segment, spent = [], segment + steps, 0
            continue
        text.append(token)
        last, source_text = text[-n:], sources[min(segment, len(sources) - 1)]
        same = sum(source_text[i : i + n] == last for i in range(len(source_text)))
        most = max(same, min(commonest(source_text, n), 2))
        spent += len(last) == n and sum(text[i : i + n] == last for i in range(len(text))) > most
        if spent > SLACK:
            return True
    return False
