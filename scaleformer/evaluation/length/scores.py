"""Scores the translations of one length: metrics, missing segments, and quality by position."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from scaleformer.evaluation.length.documents import TestDocument, TestText
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.positions import by_tenth
from scaleformer.evaluation.saved_translations import TranslatedDocument, lines_of
from scaleformer.evaluation.scores import bleu_report
from scaleformer.text.documents import one_line
from scaleformer.text.words import words

SIZES = (1, 2, 4, 8, 16)  # bounds of document lengths, as multiples of the trained one
SIZE_KEYS = (
    *("d_bleu", "s_bleu", "chrf", "brevity_penalty", "length_ratio"),
    *("repeated_4grams", "reference_repeated_4grams", "missing_segments"),
)


def score_translations(documents: Sequence[TranslatedDocument], metrics: Metrics) -> dict[str, Any]:
    """The member `decode` of a result, without files, sizes and cost; docs/result-files.md describes its keys."""
    report = bleu_report(documents, metrics, ter=False)
    lines = lines_of(documents, "document")
    counts = [(len(d.hypothesis), len(d.target)) for d in documents]
    blank = [(_blank(d.hypothesis), _blank(d.target)) for d in documents]
    extra = [max(found - wanted, 0) for found, wanted in counts]
    empty = [max(found - wanted - more, 0) for (found, wanted), more in zip(blank, extra, strict=True)]
    return {
        "scores": [asdict(score) for score in report.scores],
        "document_bleu": sentence_bleu(lines.hypotheses, lines.references, metrics),
        "reference_segments": report.reference_segments,
        "hypothesis_segments": report.hypothesis_segments,
        "missing_segments": sum(max(wanted - found, 0) for found, wanted in counts),
        "extra_segments": sum(extra),
        "empty_segments": sum(empty),
        "count_mismatches": report.count_mismatches,
        "mismatch_rate": report.mismatch_rate,
        "unfinished": list(report.unfinished),
        "repeated_4grams": repeated_4grams(lines.hypotheses),
        "reference_repeated_4grams": repeated_4grams(lines.references),
        "by_decile": by_tenth(documents, metrics),
    }


def _blank(segments: Sequence[str]) -> int:
    return sum(not segment.strip() for segment in segments)


def sentence_bleu(hypotheses: Sequence[str], references: Sequence[str], metrics: Metrics) -> list[float]:
    """BLEU of each line by itself, with the effective order, as sacrebleu recommends for single lines."""
    metric = metrics.bleu(effective_order=True)
    return [float(metric.sentence_score(h, [r]).score) for h, r in zip(hypotheses, references, strict=True)]


def repeated_4grams(lines: Sequence[str]) -> float:
    """Share of sequences of four words that occurred earlier in the same line, as seq-rep-4 of [Welleck 2020]."""
    total = repeated = 0
    for line in lines:
        own = words(line)
        found = [tuple(own[i : i + 4]) for i in range(len(own) - 3)]
        total += len(found)
        repeated += len(found) - len(set(found))
    return repeated / total if total else 0.0


def by_size(
    documents: Sequence[TestDocument],
    trained_tokens: int,
    metrics: Metrics,
    translated: Sequence[TranslatedDocument] | None,
    losses: Mapping[str, Sequence[float]] | None,
) -> list[dict[str, Any]]:
    """Scores and losses of documents grouped by length, in multiples of the trained one. Groups without documents are
    left out; values are None without translations or losses.

    losses: "documents" (mean of each) and "document_tokens", or None.
    """
    found = []
    for above, up_to in zip((0, *SIZES), (*SIZES, None), strict=True):
        places = [
            i
            for i, d in enumerate(documents)
            if above * trained_tokens < d.tokens and (up_to is None or d.tokens <= up_to * trained_tokens)
        ]
        if not places:
            continue
        translation: dict[str, Any] = dict.fromkeys(SIZE_KEYS)
        if translated is not None:
            translation = _of_size([translated[i] for i in places], metrics)
        loss = None
        if losses is not None:
            tokens = [losses["document_tokens"][i] for i in places]
            loss = sum(losses["documents"][i] * n for i, n in zip(places, tokens, strict=True)) / sum(tokens)
        size = {"above": above, "up_to": up_to, "documents": len(places)}
        found.append({**size, **translation, "nats_per_token": loss})
    return found


def _of_size(documents: Sequence[TranslatedDocument], metrics: Metrics) -> dict[str, Any]:
    scored = score_translations(documents, metrics)
    scores = {score["metric"]: score for score in scored["scores"]}
    details = scores["d-BLEU"]["details"]
    numbers = [
        *(scores[name]["score"] for name in ("d-BLEU", "s-BLEU", "chrF++")),
        *(details[name] for name in ("brevity_penalty", "length_ratio")),
        *(scored[name] for name in ("repeated_4grams", "reference_repeated_4grams", "missing_segments")),
    ]
    return dict(zip(SIZE_KEYS, numbers, strict=True))


def original_documents(text: TestText, documents: Sequence[TestDocument], segments: Sequence[str]) -> dict[int, str]:
    """The test documents, by number, whose segments all lie in `documents`; each rebuilt as one line from its aligned
    segments."""
    rows = iter(segments)
    at = {d.start + i: next(rows) for d in documents for i in range(len(d.target))}
    found = {}
    for number, (start, stop) in enumerate(zip(text.starts[:-1], text.starts[1:], strict=True)):
        if all(place in at for place in range(start, stop)):
            found[number] = one_line([at[place] for place in range(start, stop)])
    return found


def paired_t_test(first: Sequence[float], second: Sequence[float]) -> tuple[float, float] | None:
    """t and the two-sided p-value of Student's paired test; None for fewer than two pairs or constant differences.

    The p-value is the integral of the density: with t = sqrt(n) tan(a), that is cos(a) ** (n - 1) for n degrees of
    freedom. Gauss-Legendre quadrature gives about ten digits.
    """
    difference = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    n = len(difference) - 1
    if n < 1 or np.ptp(difference) < 1e-12:
        return None
    t = float(difference.mean() / (difference.std(ddof=1) / math.sqrt(n + 1)))
    start = math.atan(abs(t) / math.sqrt(n))
    stop = min(math.pi / 2, start + 40 / math.sqrt(n))  # beyond that the density vanishes in floating point
    nodes, weights = np.polynomial.legendre.leggauss(256)
    angles = start + (stop - start) * (nodes + 1) / 2
    tail = float((weights * np.cos(angles) ** (n - 1)).sum()) * (stop - start) / 2
    whole = math.sqrt(math.pi) * math.exp(math.lgamma(n / 2) - math.lgamma((n + 1) / 2))
    return t, min(2 * tail / whole, 1.0)
