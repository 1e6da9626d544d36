"""Greedy search of documents from drafts: the same texts as segment by segment in order, in fewer model calls.

A draft has a text for source segments. The model reads the whole draft at once. A segment of which every token is what
the search would have chosen stays; all others are decoded, beside each other, each after the present texts of those
before it. This is repeated until nothing changes. Then every segment is what greedy search writes after those before
it, and so is the document. At least the first wrong segment becomes right each time, and where context changes little
nearly all do. Segments without a draft are empty at first, and the first round translates all of them beside each
other, each with the whole source in view. Related: [Stern 2018], [Xia 2022], [Santilli 2023].

With beams, each segment is then searched once more, all beside each other, each after what greedy search wrote before
it. A beam over the whole document takes a step for each token, and its hypotheses differ in their last words alone.

Only models that can go on from the middle of a text (`Transformer.resumes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaleformer.decoding.active import Watch
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.drafted import DraftedDocument, Row, final_tokens, make_document
from scaleformer.decoding.reading import DraftableModel, Reading, batched, mark_texts, read_hypothesis, read_texts
from scaleformer.decoding.search import Hypothesis, decode
from scaleformer.decoding.state import Rows, SourceSegments, pad
from scaleformer.vocabulary import steps_of


@dataclass
class Counts:
    """How far drafts carry: tokens of the translations, those of them in segments that stayed as drafted, or as the
    first round wrote them without a draft, and the calls of the model."""

    tokens: int = 0
    kept: int = 0
    calls: int = 0


class _Continued(NamedTuple):
    """inner: the state of the model; tokens (rows,): what each row reads first, None later; numbers (rows,): of the
    segment that it writes."""

    inner: Any
    tokens: Tensor | None
    numbers: Tensor


class _Segments:
    """A model for `decode` whose sources are segments of documents, each after the present texts before it."""

    def __init__(
        self, model: DraftableModel, cross: Sequence[Any], read: Reading, rows: Sequence[Row], documents: Sequence[int]
    ) -> None:
        self.model, self.cross, self.read = model, cross, read
        self.most_target_tokens = model.most_target_tokens
        device = read.target.device
        self.texts = torch.tensor([row.document for row in rows], device=device)
        self.numbers = torch.tensor([row.number for row in rows], device=device)
        self.starts = torch.tensor([read.starts[n][number] - 1 + begun for n, number, begun in rows], device=device)
        self.documents = torch.tensor(documents, device=device)
        self.calls = 0

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> None:
        """Nothing: the documents are encoded already."""

    def init_state(self, encoded: None, beams: int) -> _Continued:
        read = self.read
        where = self.texts, self.starts, self.documents
        inner = self.model.states_before(self.cross, read.inputs, read.segments, *where)
        rows = torch.arange(len(self.texts), device=self.texts.device).repeat_interleave(beams)
        inner = self.model.reorder(inner, rows, None) if beams > 1 else inner  # the beams of a segment share its source
        return _Continued(inner, read.target[self.texts, self.starts][rows], self.numbers[rows])

    def step(self, tokens: Tensor, segments: Tensor, state: _Continued) -> tuple[Tensor, _Continued]:
        self.calls += 1
        tokens = tokens if state.tokens is None else state.tokens
        logits, inner = self.model.step(tokens, state.numbers, state.inner)
        return logits, _Continued(inner, None, state.numbers)

    def reorder(self, state: _Continued, rows: Tensor, documents: Tensor | None) -> _Continued:
        return _Continued(self.model.reorder(state.inner, rows, documents), None, state.numbers[rows])


@torch.inference_mode()
def decode_drafts(
    model: DraftableModel, sources: Sequence[Sequence[int]], drafts: Sequence[Sequence[Sequence[int] | None]],
    config: DecodingConfig, device: torch.device, *, forced: Sequence[Mapping[int, Sequence[int]]] = (),
    progress: Callable[[int, float], None] | None = None, watch: Watch | None = None, counts: Counts | None = None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The hypothesis that greedy `decode` finds for each document, from drafts; but for tokens whose probabilities
    differ by less than rounding. With a beam, the best one of each segment after those texts; a document of a single
    segment has that of `decode`.

    sources  tokens of each document, `<sep>` after each segment, `</s>` at the end
    drafts   for each source segment of each document the tokens of a text, with or without its separator; None: none
    config   one that `drafts`
    counts   is added to; tokens and kept are of the greedy search
    progress gets half of the share of the first round, and a half in later ones; then the other half of that of beams

    The others are as in `decode`; `watch` gets the tokens of segments as they become final.
    """
    counts, beam, config = counts or Counts(), config.strategy == "beam" and config, replace(config, strategy="greedy")
    source = pad(sources, device)
    documents = [
        make_document(tokens, draft, forced[n] if forced else {}, n)
        for n, (tokens, draft) in enumerate(zip(sources, drafts, strict=True))
    ]
    limits = Rows(SourceSegments(*source, forced), config, model.most_target_tokens).limits.tolist()
    encoded = model.encode(*source)
    whole: Any = encoded if beam else None
    cross = model.cross_states(encoded)
    found: dict[int, list[Hypothesis]] = {}
    final: list[int] = []
    shown = [0] * len(documents)
    places, turn, before = list(range(len(documents))), 0, None
    while places:
        turn += 1
        present = [documents[place] for place in places]
        read = read_texts(model, encoded, present, before)
        counts.calls += 1
        rows = mark_texts(model, read, present, turn, config)
        for n, place in enumerate(places):
            document = documents[place]
            tokens = final_tokens(document)
            stays = watch is None or watch(place, [] if beam else tokens[shown[place] :])
            shown[place] = len(tokens)
            if not stays:
                found[place] = [Hypothesis(tuple(tokens), 0.0, 0.0, False)]
            elif all(row.document != n for row in rows):
                if len(tokens) >= limits[place]:  # placeholders that exceed the limits: the search ends before them
                    given = forced[place : place + 1]
                    one = model.only([place])
                    [found[place]] = decode(one, *pad([sources[place]], device), beam or config, forced=given)
                    continue
                final.append(place)
                found[place] = [] if beam else [read_hypothesis(model, read, n, document, config)]
                kept = [text for text, draft in zip(document.texts, document.first, strict=True) if text == draft]
                counts.tokens += len(tokens)
                counts.kept += sum(len(text) for text in kept if text is not None)
        rows, done = [row for row in rows if places[row.document] not in found], 0
        for batch in batched(rows, present, config):
            ask = None if watch is None else lambda n, places=places: watch(places[n], [])
            share = (done / len(rows), len(batch) / len(rows)) if turn == 1 else (1.0, 0.0)
            report = progress and partial(_half, progress, *share)
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
    if beam and (single := [place for place in final if len(documents[place].parts) == 1]):
        given = [documents[place].forced for place in single]
        again = decode(model.only(single), *pad([sources[n] for n in single], device), beam, forced=given)
        found.update(zip(single, again, strict=True))
    if beam and (several := [place for place in final if len(documents[place].parts) > 1]):
        encoded, present = whole._make(part[several] for part in whole), [documents[place] for place in several]
        wanted = None if watch is None else lambda n: watch(several[n], [])
        again = _search_again(model, encoded, present, beam, turn, counts, progress, wanted)
        found.update(zip(several, again, strict=True))
    return [found[place] for place in range(len(documents))]


def _half(progress: Callable[[int, float], None], begun: float, of_all: float, tokens: int, share: float) -> None:
    progress(tokens, (begun + of_all * share) / 2)


def _search_again(
    model: DraftableModel, encoded: Any, documents: Sequence[DraftedDocument], config: DecodingConfig, turn: int,
    counts: Counts, progress: Callable[[int, float], None] | None, watch: Callable[[int], bool] | None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """What beams write of documents. A segment that another one translates no longer gets its turn after all others."""
    cross, tried, first = model.cross_states(encoded), set[Row](), 0
    while True:
        read, turn = read_texts(model, encoded, documents, None), turn + 1
        rows = [
            row
            for n, document in enumerate(documents)
            for number, text in enumerate(document.texts)
            if text is not None and not document.given(number) and (row := Row(n, number, 0)) not in tried
        ]
        if not rows:
            return [[read_hypothesis(model, read, n, document, config)] for n, document in enumerate(documents)]
        first = first or len(rows)
        for batch in batched(rows, documents, config):
            share = (1 + len(tried) / first, len(batch) / first) if len(tried) < first else (2.0, 0.0)
            report = progress and partial(_half, progress, *share)
            _decode_again(model, cross, read, documents, batch, config, turn, counts, report, watch)
            tried.update(batch)
        for document in documents:
            document.join()


def _decode_again(
    model: DraftableModel, cross: Sequence[Any], read: Reading, documents: Sequence[DraftedDocument],
    rows: Sequence[Row], config: DecodingConfig, turn: int, counts: Counts,
    progress: Callable[[int, float], None] | None, watch: Callable[[int], bool] | None,
) -> None:  # fmt: skip
    """Decode segments of documents after the present texts before them. watch: whether a document is still wanted."""
    segments = _Segments(model, cross, read, rows, [documents[row.document].number for row in rows])
    rests = [documents[row.document].rest(row.number) for row in rows]
    present = [documents[row.document].texts[row.number] or () for row in rows]
    begun = [text[: row.begun] for row, text in zip(rows, present, strict=True)]
    ask = None if watch is None else lambda row, _: watch(rows[row].document)
    found = decode(
        segments, *pad([tokens for tokens, _ in rests], read.target.device), config,
        forced=[given for _, given in rests], progress=progress, watch=ask, begun=begun,
    )  # fmt: skip
    counts.calls += segments.calls
    for row, first, hypotheses in zip(rows, begun, found, strict=True):
        document, tokens = documents[row.document], hypotheses[0].tokens if hypotheses else ()
        if tokens and steps_of(tokens[-1]):
            document.cut[row.number] = not hypotheses[0].finished
            document.change(row.number, (*first, *tokens), turn)
