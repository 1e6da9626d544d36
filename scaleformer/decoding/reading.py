"""What a model makes of the present texts of documents, read at once: which of their segments are what it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.drafted import DraftedDocument, Row
from scaleformer.decoding.rules import follow_rules
from scaleformer.decoding.search import DecodableModel, Hypothesis
from scaleformer.decoding.state import pad
from scaleformer.vocabulary import BOS, EOS, consumed

MOST_ROWS = 256  # segments decoded beside each other


class DraftableModel(DecodableModel, Protocol):
    """What drafts need beside the interface of the search; see `scaleformer.model.transformer`. `encode` gives a named
    tuple of tensors with the documents first."""

    cross_states: Callable[[Any], list[Any]]
    read_target: Callable[..., tuple[list[Tensor], Tensor]]
    logit_parts: Callable[[Tensor, Tensor], Iterator[Tensor]]
    states_before: Callable[..., Any]
    only: Callable[[Sequence[int]], Any]


class Reading(NamedTuple):
    """What the model makes of the present texts: target (B, L) with `<s>`, its segments, the inputs of the layers and
    the decoder states; by document its tokens, and where the texts of segments begin, and the end."""

    target: Tensor
    segments: Tensor
    inputs: list[Tensor]
    states: Tensor
    tokens: list[list[int]]
    starts: list[dict[int, int]]


def read_texts(
    model: DraftableModel, encoded: Any, documents: Sequence[DraftedDocument], before: Reading | None
) -> Reading:
    """What the model makes of the present texts of B documents. before: of their last ones; None at first."""
    starts, texts, stood = [], [], []
    for row, document in enumerate(documents):
        tokens, at = [BOS], {}
        places: list[int] = []
        for n, text in enumerate(document.texts):
            at[n] = len(tokens)
            tokens += text or ()
            if text is not None:
                own = tokens[at[n] - 1 : -1]  # the separator before belongs to it, its own does not
                old = before.starts[row][n] - 1 if before else 0
                same = before is not None and before.tokens[row][old : old + len(text) + 1] == [*own, tokens[-1]]
                places += range(old, old + len(own)) if same else [-1] * len(own)
        texts.append(tokens)
        stood.append([*places, -1])  # what stands after the last separator
        starts.append({**at, len(document.texts): len(tokens)})
    target, mask, _ = pad(texts, encoded[0].device)
    segments = consumed(target).cumsum(1)
    known = pad(stood, target.device)[0]
    inputs, states = model.read_target(encoded, target, segments, mask, before and (before.inputs, known))
    return Reading(target, segments, inputs, states, texts, starts)


def mark_texts(
    model: DraftableModel, read: Reading, documents: Sequence[DraftedDocument], turn: int, config: DecodingConfig
) -> list[Row]:
    """Mark the segments of documents that are what the model writes; returns all others: the document, the number of
    the segment, and how many of its tokens are so."""
    rows: list[Row] = []
    again: dict[Row, list[int]] = {}
    for n, (document, starts) in enumerate(zip(documents, read.starts, strict=True)):
        open_ones = [number for number, settled in enumerate(document.settled()) if not settled]
        first = starts[open_ones[0]] - 1 if open_ones else starts[max(starts)]
        parts = [logits.argmax(1) for logits in _logits(model, read.states[n, first : starts[max(starts)]], document)]
        choices = torch.cat(parts).tolist() if parts else []
        for number in open_ones:
            if (text := document.texts[number]) is None:
                continue
            begun = len(document.forced.get(number, ()))
            likeliest = choices[starts[number] - 1 - first :][: len(text)]
            pairs = zip(text[begun:], likeliest[begun:], strict=True)
            same = begun + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            if document.given(number) or (same == len(text) and document.decoded[number] >= 0):
                document.decoded[number], document.cut[number] = turn, False
            elif document.first[number] is None:
                rows.append(Row(n, number, 0))
            else:  # a draft may break the rules, and what was decoded is not the likeliest where these forbid that
                again[Row(n, number, same)] = likeliest
    for batch in batched(list(again), documents, config):
        texts = [documents[n].texts[number] or () for n, number, _ in batch]
        which = [(n, read.starts[n][number] - 1, documents[n].number) for n, number, _ in batch]
        at = torch.tensor(which, device=read.states.device)

        def logits_of(chosen: Tensor, place: int, at: Tensor = at) -> Tensor:
            of, begins, numbers = at[chosen].T
            return torch.cat(list(model.logit_parts(read.states[of, begins + place], numbers)))

        rests = [documents[n].rest(number) for n, number, _ in batch]
        found = follow_rules(rests, texts, [again[row] for row in batch], logits_of, config, at.device)
        for row, text, (same, cut) in zip(batch, texts, found, strict=True):
            if same == len(text):
                documents[row.document].decoded[row.number], documents[row.document].cut[row.number] = turn, cut
            else:
                rows.append(row._replace(begun=same))
    return rows


def read_hypothesis(
    model: DraftableModel, read: Reading, n: int, document: DraftedDocument, config: DecodingConfig
) -> Hypothesis:
    """Document n, of which all texts are final, with the scores that the search would give it."""
    tokens = [token for text in document.texts for token in text or ()]
    states = read.states[n, : len(tokens) + 1]
    following = torch.tensor([*tokens, EOS], device=states.device)
    parts, done = [], 0
    for logits in _logits(model, states, document):
        parts.append(logits.log_softmax(1).gather(1, following[done : done + len(logits), None])[:, 0])
        done += len(logits)
    logs = torch.cat(parts)
    free = torch.ones_like(logs, dtype=torch.bool)
    for number, given in document.forced.items():
        start = read.starts[n][number] - 1
        free[start : start + len(given)] = False
    logs = logs.double()
    score = float(logs[free].sum()) / max(int(free.sum()), 1) ** config.length_penalty
    return Hypothesis(tuple(tokens), float(logs.sum()), score, not any(document.cut))


def _logits(model: DraftableModel, states: Tensor, document: DraftedDocument) -> Iterator[Tensor]:
    return model.logit_parts(states, torch.full(states.shape[:1], document.number, device=states.device))


def batched(rows: Sequence[Row], documents: Sequence[DraftedDocument], config: DecodingConfig) -> Iterator[list[Row]]:
    """Segments in batches of like length, by `config.batch_tokens`."""
    lengths = {row: documents[row.document].length(row.number) - row.begun for row in rows}
    waiting = sorted(rows, key=lengths.__getitem__, reverse=True)
    while waiting:
        size = max(1, min(MOST_ROWS, config.batch_tokens // (lengths[waiting[0]] + 1)) // config.rows)
        yield waiting[:size]
        waiting = waiting[size:]
