"""Translates documents view by view; each translation begins with the model's own translation of the context."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import DecodableModel, Hypothesis, decode
from scaleformer.decoding.state import pad
from scaleformer.evaluation.length.views import View
from scaleformer.system.bars import Progress
from scaleformer.translation.batches import token_budget
from scaleformer.vocabulary import EOS, SEP, steps_of


class _State(NamedTuple):
    """The state of the wrapped model, the step, and the document (B) of each row."""

    inner: Any
    step: int
    rows: Tensor


class PrefixedModel:
    """A model whose translations must begin with given tokens: until they are written, no other token is possible.

    Given tokens have probability 1, so that log-probabilities are those of the rest. prefixes: (B, P), lengths: (B,).
    The number of `<sep>` follows from the written tokens, as always.
    """

    def __init__(self, model: DecodableModel, prefixes: Tensor, lengths: Tensor) -> None:
        self.model = model
        self.prefixes, self.lengths = prefixes, lengths
        self.longest = int(lengths.max())
        self.most_target_tokens = model.most_target_tokens

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> Any:
        return self.model.encode(source, source_mask, source_segments)

    def init_state(self, encoded: Any, beams: int) -> _State:
        documents = torch.arange(len(self.lengths), device=self.lengths.device)
        return _State(self.model.init_state(encoded, beams), 0, documents.repeat_interleave(beams))

    def step(self, tokens: Tensor, segments: Tensor, state: _State) -> tuple[Tensor, _State]:
        logits, inner = self.model.step(tokens, segments, state.inner)
        if state.step < self.longest:
            given = state.step < self.lengths[state.rows]  # (A*K,)
            wanted = self.prefixes[state.rows, state.step]  # (A*K,)
            only = torch.full_like(logits, -math.inf).scatter_(1, wanted[:, None], 0.0)
            logits = torch.where(given[:, None], only, logits)
        return logits, _State(inner, state.step + 1, state.rows)

    def reorder(self, state: _State, rows: Tensor, documents: Tensor | None) -> _State:
        return _State(self.model.reorder(state.inner, rows, documents), state.step, state.rows[rows])


@dataclass(frozen=True)
class ViewTranslation:
    """parts: the new tokens of each view, `<sep>` among them, without `</s>`; finished: no view was cut by a limit."""

    parts: tuple[tuple[int, ...], ...]
    finished: bool

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens of the whole document."""
        return tuple(t for part in self.parts for t in part)


def translate_views(
    model: DecodableModel,
    sources: Sequence[Sequence[Sequence[int]]],
    views: Sequence[Sequence[View]],
    config: DecodingConfig,
    device: torch.device,
    progress: Progress | None = None,
) -> list[ViewTranslation]:
    """Translate documents (token ids of each segment, with `<sep>`) by their views: the n-th views of all documents
    together, and views without context all at once.

    A view's context must consist of whole earlier views. The translation of the context begins the target; the length
    limits hold for context and new text together. Views without any text are not given to the model: their segments
    stay empty. progress: called with the share of source tokens translated and the tokens
    written so far, contexts included.
    """
    total = sum(len(tokens) for of_one in sources for tokens in of_one)
    written: list[dict[int, list[int]]] = [{} for _ in sources]  # keyed by the first new segment of a view
    finished = [True] * len(sources)
    done = count = at_hand = 0

    def report(tokens: int, share: float) -> None:
        nonlocal count
        count += tokens
        if progress is not None:
            progress((done + share * at_hand) / total, count)

    for jobs in _turns(views):
        read, context = [], []
        for n, view in jobs:
            read.append([t for tokens in sources[n][view.start : view.stop] for t in tokens])
            context.append([t for at in sorted(written[n]) if view.start <= at < view.new for t in written[n][at]])
        full = []
        for place, (n, view) in enumerate(jobs):
            new = [t for tokens in sources[n][view.new : view.stop] for t in tokens]
            if all(t == SEP for t in new):
                written[n][view.new] = new
                done += len(new)
            else:
                full.append(place)
        for at in token_budget({place: len(read[place]) * config.rows for place in full}, config.batch_tokens):
            at_hand = sum(len(t) for n, view in (jobs[i] for i in at) for t in sources[n][view.new : view.stop])
            best = _decode(model, read, context, at, config, device, report)
            for place, hypothesis in zip(at, best, strict=True):
                n, view = jobs[place]
                new = list(hypothesis.tokens[len(context[place]) :])
                if view.stop < len(sources[n]) and (not new or steps_of(new[-1]) is None):
                    new.append(SEP)  # an unclosed segment must not run into the next view
                written[n][view.new] = new
                finished[n] &= hypothesis.finished
            done, at_hand = done + at_hand, 0
            report(0, 0.0)
    return [
        ViewTranslation(tuple(tuple(parts[at]) for at in sorted(parts)), end)
        for parts, end in zip(written, finished, strict=True)
    ]


def _turns(views: Sequence[Sequence[View]]) -> Iterator[list[tuple[int, View]]]:
    """Groups of views that can be translated together: a view comes after those that it needs."""
    if all(view.start == view.new for of_one in views for view in of_one):
        yield [(n, view) for n, of_one in enumerate(views) for view in of_one]
        return
    for turn in range(max(len(of_one) for of_one in views)):
        yield [(n, of_one[turn]) for n, of_one in enumerate(views) if turn < len(of_one)]


def _decode(
    model: DecodableModel,
    read: Sequence[Sequence[int]],
    context: Sequence[Sequence[int]],
    places: Sequence[int],
    config: DecodingConfig,
    device: torch.device,
    progress: Callable[[int, float], None],
) -> list[Hypothesis]:
    """The best hypothesis of each view, in one batch."""
    prefixes, *_ = pad([context[i] for i in places], device)
    prefixed = PrefixedModel(model, prefixes, torch.tensor([len(context[i]) for i in places], device=device))
    found = decode(prefixed, *pad([[*read[i], EOS] for i in places], device), config, progress=progress)
    return [hypotheses[0] for hypotheses in found]
