"""Greedy search of documents from drafts: the same texts as segment by segment from the first to the last, in fewer
calls of the model.

A draft has a text for source segments. The model reads the whole draft at once. A segment of which every token is what
the search would have chosen stays; all others are decoded, beside each other, each after the present texts of those
before it. This is repeated until nothing changes. Then every segment is what greedy search writes after those before
it, and so is the document. At least the first wrong segment becomes right each time, and where context changes little
nearly all do. Segments without a draft are empty at first, and the first round translates all of them beside each
other, each with the whole source in view. Related: [Stern 2018], [Xia 2022], [Santilli 2023].

Only models that can go on from the middle of a text (`Transformer.resumes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from scaleformer.decoding.active import Watch
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.drafted import DraftedDocument, Row, final_tokens, make_document
from scaleformer.decoding.rules import follow_rules
from scaleformer.decoding.search import DecodableModel, Hypothesis, decode
from scaleformer.decoding.state import Rows, SourceSegments, pad
from scaleformer.vocabulary import BOS, EOS, PAD, consumed, steps_of

MOST_ROWS = 256  # segments decoded beside each other


class DraftableModel(DecodableModel, Protocol):
    """What drafts need beside the interface of the search; see `scaleformer.model.transformer`. `encode` gives a named
    tuple of tensors with the documents first."""

    cross_states: Callable[[Any], list[Any]]
    read_target: Callable[..., tuple[list[Tensor], Tensor]]
    logit_parts: Callable[[Tensor], Iterator[Tensor]]
    states_before: Callable[..., Any]


@dataclass
class Counts:
    """How far drafts carry: tokens of the translations, those of them in segments that stayed as drafted, or as the
    first round wrote them without a draft, and the calls of the model."""

    tokens: int = 0
    kept: int = 0
    calls: int = 0


class _Read(NamedTuple):
    """What the model makes of the present texts: target (B, L) with `<s>`, its segments, the inputs of the layers and
    the decoder states; by document its tokens, and where the texts of segments begin, and the end."""

    target: Tensor
    segments: Tensor
    inputs: list[Tensor]
    states: Tensor
    tokens: list[list[int]]
    starts: list[dict[int, int]]


class _Continued(NamedTuple):
    """inner: the state of the model; tokens (rows,): what each row reads first, None later; numbers (rows,): of the
    segment that it writes."""

    inner: Any
    tokens: Tensor | None
    numbers: Tensor


class _Segments:
    """A model for `decode` whose sources are segments of documents, each after the present texts before it."""

    def __init__(self, model: DraftableModel, cross: Sequence[Any], read: _Read, rows: Sequence[Row]) -> None:
        self.model, self.cross, self.read = model, cross, read
        self.most_target_tokens = model.most_target_tokens
        device = read.target.device
        self.texts = torch.tensor([row.document for row in rows], device=device)
        self.numbers = torch.tensor([row.number for row in rows], device=device)
        self.starts = torch.tensor([read.starts[n][number] - 1 + begun for n, number, begun in rows], device=device)
        self.calls = 0

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> None:
        """Nothing: the documents are encoded already."""

    def init_state(self, encoded: None, beams: int) -> _Continued:
        read = self.read
        inner = self.model.states_before(self.cross, read.inputs, read.segments, self.texts, self.starts)
        return _Continued(inner, read.target[self.texts, self.starts], self.numbers)

    def step(self, tokens: Tensor, segments: Tensor, state: _Continued) -> tuple[Tensor, _Continued]:
        self.calls += 1
        tokens = tokens if state.tokens is None else state.tokens
        logits, inner = self.model.step(tokens, state.numbers, state.inner)
        return logits, _Continued(inner, None, state.numbers)

    def reorder(self, state: _Continued, rows: Tensor, documents: Tensor | None) -> _Continued:
        return _Continued(self.model.reorder(state.inner, rows, rows), None, state.numbers[rows])


@torch.inference_mode()
def decode_drafts(
    model: DraftableModel,
    sources: Sequence[Sequence[int]],
    drafts: Sequence[Sequence[Sequence[int] | None]],
    config: DecodingConfig,
    device: torch.device,
    *,
    forced: Sequence[Mapping[int, Sequence[int]]] = (),
    progress: Callable[[int, float], None] | None = None,
    watch: Watch | None = None,
    counts: Counts | None = None,
) -> list[list[Hypothesis]]:
    """The hypothesis that greedy `decode` finds for each document, from drafts; but for tokens whose probabilities
    differ by less than rounding.

    sources  tokens of each document, `<sep>` after each segment, `</s>` at the end
    drafts   for each source segment of each document the tokens of a text, with or without its separator; None: none
    config   greedy, with match_segments and without a repetition penalty
    counts   is added to
    progress gets half of the share of the first round, and a half in later ones

    The others are as in `decode`; `watch` gets the tokens of segments as they become final.
    """
    counts = counts or Counts()
    source = pad(sources, device)
    documents = [
        make_document(tokens, draft, forced[n] if forced else {})
        for n, (tokens, draft) in enumerate(zip(sources, drafts, strict=True))
    ]
    limits = Rows(SourceSegments(*source, forced), config, model.most_target_tokens).limits.tolist()
    encoded = model.encode(*source)
    cross = model.cross_states(encoded)
    found: dict[int, list[Hypothesis]] = {}
    shown = [0] * len(documents)
    places, turn, before = list(range(len(documents))), 0, None
    while places:
        turn += 1
        present = [documents[place] for place in places]
        read = _read(model, encoded, present, before)
        counts.calls += 1
        rows = _mark(model, read, present, turn, config)
        for n, place in enumerate(places):
            document = documents[place]
            tokens = final_tokens(document)
            wanted = watch is None or watch(place, tokens[shown[place] :])
            shown[place] = len(tokens)
            if not wanted:
                found[place] = [Hypothesis(tuple(tokens), 0.0, 0.0, False)]
            elif all(row.document != n for row in rows):
                if len(tokens) >= limits[place]:  # placeholders that exceed the limits: the search ends before them
                    given = forced[place : place + 1]
                    [found[place]] = decode(model, *pad([sources[place]], device), config, forced=given)
                    continue
                found[place] = [_hypothesis(model, read, n, document, config)]
                kept = [text for text, draft in zip(document.texts, document.first, strict=True) if text == draft]
                counts.tokens += len(tokens)
                counts.kept += sum(len(text) for text in kept if text is not None)
        rows, done = [row for row in rows if places[row.document] not in found], 0
        for batch in _batches(rows, present, config):
            ask = None if watch is None else lambda n, places=places: watch(places[n], [])
            share = (done / len(rows), len(batch) / len(rows)) if turn == 1 else (1.0, 0.0)
            report = None if progress is None else partial(_half, progress, *share)
            _decode_again(model, cross, read, present, batch, config, turn, counts, report, ask)
            done += len(batch)
        for document in present:
            document.join()
        keep = [n for n, place in enumerate(places) if place not in found]
        if len(keep) < len(places) and keep:
            index = torch.tensor(keep, device=device)
            encoded = encoded._make(part[index] for part in encoded)
            cross = [state.reorder(index) for state in cross]
            read = read._replace(
                inputs=[x[index] for x in read.inputs],
                tokens=[read.tokens[n] for n in keep],
                starts=[read.starts[n] for n in keep],
            )
        places, before = [places[n] for n in keep], read
    return [found[place] for place in range(len(documents))]


def _half(progress: Callable[[int, float], None], begun: float, of_all: float, tokens: int, share: float) -> None:
    progress(tokens, (begun + of_all * share) / 2)


def _read(model: DraftableModel, encoded: Any, documents: Sequence[DraftedDocument], before: _Read | None) -> _Read:
    """before: what was read of the same documents, if anything."""
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
        stood.append(places)
        starts.append({**at, len(document.texts): len(tokens)})
    length = max(map(len, texts))
    device = encoded[0].device
    target = torch.tensor([[*tokens, *[PAD] * (length - len(tokens))] for tokens in texts], device=device)
    mask = torch.arange(length, device=device) < torch.tensor([[len(tokens)] for tokens in texts], device=device)
    segments = consumed(target).cumsum(1)
    known = torch.tensor([[*places, *[-1] * (length - len(places))] for places in stood], device=device)
    inputs, states = model.read_target(encoded, target, segments, mask, before and (before.inputs, known))
    return _Read(target, segments, inputs, states, texts, starts)


def _mark(
    model: DraftableModel, read: _Read, documents: Sequence[DraftedDocument], turn: int, config: DecodingConfig
) -> list[Row]:
    """Mark the segments of documents that are what the model writes; returns all others: the document, the number of
    the segment, and how many of its tokens are so."""
    rows: list[Row] = []
    again: dict[Row, list[int]] = {}
    for n, (document, starts) in enumerate(zip(documents, read.starts, strict=True)):
        open_ones = [number for number, settled in enumerate(document.settled()) if not settled]
        first = starts[open_ones[0]] - 1 if open_ones else starts[max(starts)]
        parts = [logits.argmax(1) for logits in model.logit_parts(read.states[n, first : starts[max(starts)]])]
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
    for batch in _batches(list(again), documents, config):
        texts = [documents[n].texts[number] or () for n, number, _ in batch]
        of, begins = torch.tensor([(n, read.starts[n][number] - 1) for n, number, _ in batch]).T.to(read.states.device)

        def logits_of(chosen: Tensor, place: int, of: Tensor = of, begins: Tensor = begins) -> Tensor:
            return torch.cat(list(model.logit_parts(read.states[of[chosen], begins[chosen] + place])))

        rests = [documents[n].rest(number) for n, number, _ in batch]
        found = follow_rules(rests, texts, [again[row] for row in batch], logits_of, config, of.device)
        for row, text, (same, cut) in zip(batch, texts, found, strict=True):
            if same == len(text):
                documents[row.document].decoded[row.number], documents[row.document].cut[row.number] = turn, cut
            else:
                rows.append(row._replace(begun=same))
    return rows


def _hypothesis(
    model: DraftableModel, read: _Read, n: int, document: DraftedDocument, config: DecodingConfig
) -> Hypothesis:
    tokens = [token for text in document.texts for token in text or ()]
    states = read.states[n, : len(tokens) + 1]
    following = torch.tensor([*tokens, EOS], device=states.device)
    parts, done = [], 0
    for logits in model.logit_parts(states):
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


def _batches(rows: Sequence[Row], documents: Sequence[DraftedDocument], config: DecodingConfig) -> Iterator[list[Row]]:
    """Segments in batches of like length, by `config.batch_tokens`."""
    lengths = {row: documents[row.document].length(row.number) - row.begun for row in rows}
    waiting = sorted(rows, key=lengths.__getitem__, reverse=True)
    while waiting:
        size = max(1, min(MOST_ROWS, config.batch_tokens // (lengths[waiting[0]] + 1)))
        yield waiting[:size]
        waiting = waiting[size:]


def _decode_again(
    model: DraftableModel,
    cross: Sequence[Any],
    read: _Read,
    documents: Sequence[DraftedDocument],
    rows: Sequence[Row],
    config: DecodingConfig,
    turn: int,
    counts: Counts,
    progress: Callable[[int, float], None] | None,
    watch: Callable[[int], bool] | None,
) -> None:
    """Decode segments of documents after the present texts before them. watch: whether a document is still wanted."""
    segments = _Segments(model, cross, read, rows)
    rests = [documents[row.document].rest(row.number) for row in rows]
    present = [documents[row.document].texts[row.number] or () for row in rows]
    begun = [text[: row.begun] for row, text in zip(rows, present, strict=True)]
    ask = None if watch is None else lambda row, _: watch(rows[row].document)
    found = decode(
        segments,
        *pad([tokens for tokens, _ in rests], read.target.device),
        config,
        forced=[given for _, given in rests],
        progress=progress,
        watch=ask,
        begun=begun,
    )
    counts.calls += segments.calls
    for row, first, [hypothesis] in zip(rows, begun, found, strict=True):
        document, tokens = documents[row.document], hypothesis.tokens
        if tokens and steps_of(tokens[-1]):
            document.cut[row.number] = not hypothesis.finished
            document.change(row.number, (*first, *tokens), turn)
