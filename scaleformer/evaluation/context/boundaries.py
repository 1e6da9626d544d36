"""The cost of missing segment boundaries: one side of a document has fewer, as some of its segments are merged.

Segment-aware attention matches segments by number. After a missing boundary the numbers of the two sides differ, unless
the separators of the target say how many source segments they consume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from scaleformer.data.batching import Example
from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.length.documents import TestDocument
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.evaluation.scores import MetricScore, bleu_report
from scaleformer.system.bars import Progress
from scaleformer.system.display import ranged
from scaleformer.translation.request import Listener, Request
from scaleformer.translation.scoring import target_losses
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import EOS, SEP, SEP0, SEP2, steps_of

Missing = Literal["one", "tenth", "paragraphs"]
LEAST = 3  # segments: two merged ones and one after them
DISTANCES = ((1, 1), (2, 2), (3, 4), (5, 8), (9, None))


@dataclass(frozen=True)
class BoundaryLoss:
    """Loss, in nats per target token, of the segments up to a distance after the merged ones.

    distance  in segments: "1", "2", "3-4", "5-8", "9 and more", or "all"
    whole     with every `<sep>`
    source    with one missing in the source; target likewise
    """

    distance: str
    tokens: int
    whole: float
    source: float
    target: float


@dataclass(frozen=True)
class JoinedLoss:
    """Loss, in nats per target token, of documents with every `<sep>` and with some missing in the source; separators
    and `</s>` are not counted.

    boundaries  how many are missing
    """

    tokens: int
    boundaries: int
    whole: float
    source: float


@dataclass(frozen=True)
class BoundaryTranslation:
    """d-BLEU of the same documents, translated unchanged and with merged source segments.

    more, fewer  documents whose translation then has more or fewer segments than the source
    """

    whole: MetricScore
    source: MetricScore
    more: int
    fewer: int


def boundary_place(segments: int) -> int:
    """The index of the segment to merge with the next: the last of the first third, at least 0."""
    return max(segments // 3 - 1, 0)


def missing_boundaries(segments: int, missing: Missing, rng: np.random.Generator) -> list[int]:
    """The indices of segments to merge with the next: "one" `boundary_place`, "tenth" each with probability 1/10,
    "paragraphs" all but the last of every 3 to 8."""
    if missing == "one":
        return [boundary_place(segments)]
    if missing == "tenth":
        return np.flatnonzero(rng.random(segments - 1) < 0.1).tolist()
    ends = np.cumsum(rng.integers(3, 9, segments))
    return sorted(set(range(segments - 1)) - set((ends - 1).tolist()))


def joined_losses(
    translator: Translator,
    documents: Sequence[TestDocument],
    places: Sequence[Sequence[int]],
    *,
    both: bool,
    progress: Progress | None = None,
) -> JoinedLoss:
    """The loss of the same tokens with every `<sep>`, and with those of `places` missing in the source.

    both: they are missing in the target too, as where a paragraph is a segment; otherwise the target's separators there
    say that they consume nothing. Raises ValueError as `boundary_losses`.
    """
    _check(documents)
    examples = []
    for document, lacking in zip(documents, places, strict=True):
        source = translator.source_tokenizer.encode_batch(list(document.source))
        target = translator.target_tokenizer.encode_batch(list(document.target))
        for some in (set(), set(lacking)):
            ends: list[int | None] = [None if i in some else SEP for i in range(len(source))]
            written = ends if both else [SEP0 if end is None else SEP for end in ends]
            examples.append(Example(document.id, _tokens(source, ends), _tokens(target, written)))
    losses = target_losses(translator.model, examples, translator.decoding.batch_tokens, progress)
    words = [
        loss[[steps_of(token) is None and token != EOS for token in example.target.tolist()]]
        for loss, example in zip(losses, examples, strict=True)
    ]
    whole, joined = (np.concatenate(words[n::2]) for n in (0, 1))
    return JoinedLoss(len(whole), sum(map(len, places)), float(whole.mean()), float(joined.mean()))


def boundary_losses(
    translator: Translator, documents: Sequence[TestDocument], *, progress: Progress | None = None
) -> list[BoundaryLoss]:
    """The loss of the same tokens with every `<sep>`, and with the one at `boundary_place` missing on either side.

    The merged segments and the `</s>` are not counted. Documents have at least `LEAST` segments.
    Raises ValueError for a document with fewer segments, without documents, and where the model gives NaN.
    """
    _check(documents)
    examples, kept, distances = [], [], []
    for document in documents:
        place = boundary_place(len(document.source))
        source = translator.source_tokenizer.encode_batch(list(document.source))
        target = translator.target_tokenizer.encode_batch(list(document.target))
        for name, source_ends, target_ends in _ends(len(document.source), place):
            sides = _tokens(source, source_ends), _tokens(target, target_ends)
            examples.append(Example(f"{document.id} {name}", *sides))
        lengths = [len(tokens) + 1 for tokens in target]
        bounds = list(accumulate(lengths, initial=0))[place + 2 :]
        kept.append(bounds)
        distances.append(np.repeat(np.arange(1, len(bounds)), np.diff(bounds)))
    losses = target_losses(translator.model, examples, translator.decoding.batch_tokens, progress)
    after = {
        name: np.concatenate(
            [loss[bounds[0] - shift : bounds[-1] - shift] for loss, bounds in zip(losses[n::3], kept, strict=True)]
        )
        for n, (name, shift) in enumerate((("whole", 0), ("source", 0), ("target", 1)))
    }
    distance = np.concatenate(distances)
    found = []
    for first, last in (*DISTANCES, (1, None)):
        at = (distance >= first) & (distance <= (last or distance.max()))
        if at.any():
            means = {name: float(values[at].mean()) for name, values in after.items()}
            name = "all" if (first, last) == (1, None) else ranged(first, last)
            found.append(BoundaryLoss(name, int(at.sum()), **means))
    return found


def boundary_translations(
    translator: Translator,
    documents: Sequence[TestDocument],
    places: Sequence[Sequence[int]],
    decoding: DecodingConfig,
    metrics: Metrics,
    progress: Callable[[str], Progress] | None = None,
) -> BoundaryTranslation:
    """Translate documents unchanged, and with the source segments at `places` of each joined to the next by a space.

    progress: called with a description, returns the function to call with the share and the tokens so far. Raises
    ValueError for a document of fewer than `LEAST` segments, and without documents.
    """
    _check(documents)
    joined = [_joined(document.source, some) for document, some in zip(documents, places, strict=True)]
    scores, counts = [], np.zeros(0, dtype=np.int64)
    for name, sources in (("whole", [list(document.source) for document in documents]), ("joined", joined)):
        bar = progress(f"translating, {name}") if progress else None
        request = Request(sources, decoding, [document.id for document in documents])
        translations = translator.translate_documents(request, Listener(bar))
        report = bleu_report(
            [
                TranslatedDocument(d.id, d.source, d.target, translation.segments, translation.finished)
                for d, translation in zip(documents, translations, strict=True)
            ],
            metrics,
            ter=False,
        )
        scores.append(report.score("d-BLEU"))
        counts = np.array([len(t.segments) - len(s) for t, s in zip(translations, sources, strict=True)])
    return BoundaryTranslation(scores[0], scores[1], int((counts > 0).sum()), int((counts < 0).sum()))


def _check(documents: Sequence[TestDocument]) -> None:
    if not documents:
        raise ValueError(f"no document has {LEAST} segments: join some with segments=N")
    for document in documents:
        if len(document.source) < LEAST:
            raise ValueError(f"document {document.id!r} has {len(document.source)} segments, wanted at least {LEAST}")


def _ends(segments: int, place: int) -> Iterator[tuple[str, list[int | None], list[int | None]]]:
    """The token that ends each segment of both sides: with all, and with the one at `place` missing on either side."""
    whole: list[int | None] = [SEP] * segments
    lacking = [*whole[:place], None, *whole[place + 1 :]]
    yield "whole", whole, whole
    yield "source", lacking, [*whole[:place], SEP0, *whole[place + 1 :]]
    yield "target", whole, [*whole[:place], None, SEP2, *whole[place + 2 :]]


def _tokens(segments: Sequence[Sequence[int]], ends: Sequence[int | None]) -> np.ndarray[Any, np.dtype[np.int64]]:
    tokens: list[int] = []
    for segment, end in zip(segments, ends, strict=True):
        tokens += segment if end is None else (*segment, end)
    return np.array([*tokens, EOS], dtype=np.int64)


def _joined(segments: Sequence[str], places: Sequence[int]) -> list[str]:
    joined: list[str] = []
    lacking = set(places)
    for number, segment in enumerate(segments):
        if number - 1 in lacking:
            joined[-1] = f"{joined[-1]} {segment}"
        else:
            joined.append(segment)
    return joined
