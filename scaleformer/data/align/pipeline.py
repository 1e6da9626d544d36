"""Turns folders of documents into a corpus: blocks, segments, beads with their confidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scaleformer.data.align.beads import Bead
from scaleformer.data.align.files import Pair, pairs_of_folders, pairs_of_list, read_file
from scaleformer.data.align.passes import LABELS, Segments, align_corpus
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.system import html
from scaleformer.system.bars import with_bar
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document, from_parts

# The confidence of a bead is a logistic function of its log-odds per character, relative to their median over the
# one-to-one beads of the corpus: of those with `HALF` the median, half were right in English and Spanish manuals.
HALF, STEEPNESS = 0.25, 5.0
SHOWN = 2000  # beads of each list of the page
LEAST_MEDIAN = 0.1  # nats per character; below it most beads of the corpus are wrong

Translate = Callable[[Sequence[Sequence[str]]], Sequence[Sequence[str]]]


@dataclass(frozen=True)
class Match:
    """A bead to show: its two sides, its confidence (None for text without a partner), and whether it was kept."""

    document: str
    source: str
    target: str
    confidence: float | None
    fate: str = "kept"


@dataclass
class RawCorpus:
    """Documents with beads; all beads in order, including those left out; counts of what was left out."""

    documents: list[Document] = field(default_factory=list)
    matches: list[Match] = field(default_factory=list)
    beads: Counter[str] = field(default_factory=Counter)
    dropped_segments: Counter[str] = field(default_factory=Counter)
    dropped_documents: Counter[str] = field(default_factory=Counter)


def align_files(config: PrepareConfig, translate: Translate | None = None) -> RawCorpus:
    """The corpus of two folders or of a list of pairs (`format=raw`).

    translate: translates documents segment by segment; the translations are then aligned with the target.
    Raises DataError for files that cannot be read or do not match.
    """
    corpus = RawCorpus()
    texts = _read(config, corpus)
    if translate is None:
        compared = [(source, target) for _, source, target in texts]
    else:
        translations = translate([source[0] for _, source, _ in texts])
        compared = [((found, s[1]), t) for found, (_, s, t) in zip(translations, texts, strict=True)]
    aligned = align_corpus(compared, config.seed)
    scale = _median(texts, aligned)
    for (name, source, target), beads in zip(texts, aligned, strict=True):
        parts: list[tuple[Sequence[str], Sequence[str]]] = []
        for match, part in _judged(config, name, source[0], target[0], beads, scale):
            corpus.matches.append(match)
            if match.fate == "kept":
                parts.append(part)
                corpus.beads["-".join(str(len(side)) for side in part)] += 1
            else:
                corpus.dropped_segments[match.fate] += 1
        if parts:
            corpus.documents.append(from_parts(name, parts))
        else:
            corpus.dropped_documents["no bead is left"] += 1
    return corpus


def _languages(config: PrepareConfig) -> tuple[str, str]:
    return config.source_language or "", config.target_language or ""


def _read(config: PrepareConfig, corpus: RawCorpus) -> list[tuple[str, Segments, Segments]]:
    """Names and segments of the documents with text on both sides."""
    if config.input is not None:
        pairs = pairs_of_list(Path(config.input))
    else:
        folders = Path(config.source or ""), Path(config.target or "")
        pairs = pairs_of_folders(*folders, _languages(config), corpus.dropped_documents)
    texts = []
    for pair in with_bar(pairs, "Reading documents"):
        source, target = _segments(config, pair, corpus)
        if source[0] and target[0]:
            texts.append((pair[0], source, target))
        else:
            corpus.dropped_documents["no text on a side"] += 1
    if not texts:
        raise DataError(f"none of the {len(pairs)} documents has text on both sides")
    return texts


def _segments(config: PrepareConfig, pair: Pair, corpus: RawCorpus) -> list[Segments]:
    """The segments of both sides: those that a model reads in translation, but unmasked."""
    sides: list[Segments] = []
    for path, language in zip(pair[1:], _languages(config), strict=True):
        texts, labels = [], []
        for block, segments in zip(*read_file(path, language, config.split or "sentence"), strict=True):
            if block.kind == "code":
                corpus.dropped_segments["blocks of code"] += 1
            for number, segment in enumerate(segments):
                texts.append(segment.unmasked)
                labels.append(LABELS.index("inside" if number else block.kind))
        sides.append((texts, labels))
    return sides


def _median(texts: Sequence[tuple[str, Segments, Segments]], aligned: Sequence[Sequence[Bead]]) -> float:
    odds = [
        bead.score / (len(source[0][bead.i]) + len(target[0][bead.j]))
        for (_, source, target), beads in zip(texts, aligned, strict=True)
        for bead in beads
        if bead.s == bead.t == 1
    ]
    return max(LEAST_MEDIAN, float(np.median(odds))) if odds else LEAST_MEDIAN


def confidence(score: Any, characters: Any, scale: float) -> Any:
    """The confidence of beads, 0 to 1; characters: of both sides; scale: the median log-odds per character."""
    steps = STEEPNESS * (score / characters / scale - HALF)
    return 1 / (1 + np.exp(-np.clip(steps, -30, 30)))


def _judged(
    config: PrepareConfig, name: str, source: Sequence[str], target: Sequence[str], beads: Sequence[Bead], scale: float
) -> Iterator[tuple[Match, tuple[Sequence[str], Sequence[str]]]]:
    """The beads and whether they are kept; beads with too little confidence are split into their two sides."""
    for bead in beads:
        ours, theirs = source[bead.i : bead.i + bead.s], target[bead.j : bead.j + bead.t]
        one, other = " ".join(ours), " ".join(theirs)
        sure = float(confidence(bead.score, len(one) + len(other), scale)) if ours and theirs else None
        if sure is not None and sure >= config.min_confidence:
            yield Match(name, one, other, sure), (ours, theirs)
        elif sure is not None and config.unmatched == "drop":
            yield Match(name, one, other, sure, "confidence"), (ours, theirs)
        else:
            fate = "kept" if config.unmatched == "keep" else "unmatched"
            alone: list[tuple[Sequence[str], Sequence[str]]] = [(ours, ()), ((), theirs)]
            for part in alone:
                if any(part):
                    yield Match(name, " ".join(part[0]), " ".join(part[1]), sure, fate), part


def alignment_page(matches: Sequence[Match], languages: Sequence[str]) -> str:
    """HTML without scripts: beads by confidence, then texts without a partner, at most `SHOWN` of each."""
    sure = sorted((m for m in matches if m.confidence is not None), key=lambda m: m.confidence or 0.0)
    alone = [m for m in matches if m.confidence is None]
    columns = ("confidence", "left out", "document", f"source ({languages[0]})", f"target ({languages[1]})")

    def sections() -> Iterator[tuple[str, str]]:
        for title, found in (("Beads, least confident first", sure), ("Text without a partner", alone)):
            count = f"{len(found):,}" if len(found) <= SHOWN else f"the first {SHOWN:,} of {len(found):,}"
            rows = [
                (m.confidence, "" if m.fate == "kept" else m.fate, m.document, m.source, m.target)
                for m in found[:SHOWN]
            ]
            yield title, html.note(count) + html.table(columns, rows) if rows else ""

    return html.page("Alignment", sections())
