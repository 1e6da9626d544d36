"""Measure what the coverage of the source by attention adds to the signs of confidence.

    scaleformer evaluate checkpoint=RUN split=valid ...                 # and split=test
    python -m scripts.coverage_sign RUN RESULTS/bleu-valid.jsonl RESULTS/bleu-test.jsonl [--documents 12]

Calibrates on the first file and measures on the second, as `scaleformer confidence` does, with the signs of there and
with two more: for each piece of a segment's source the attention that it gets from the pieces of the translation, the
mean of all layers and heads, summed to at most 1 [Wu 2016, equation 14] and the greatest one. Each segment is read by
itself. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from sacrebleu.metrics import CHRF

from scaleformer.evaluation.attention_maps import attention_maps
from scaleformer.evaluation.confidence import assess, fit
from scaleformer.system.errors import one_line_errors
from scaleformer.translation.confidence import Array, signs_of
from scaleformer.translation.translator import Translator
from scripts.bench_training.tables import markdown


def coverage(weights: Array) -> tuple[float, float]:
    """Of attention (L, S) from the pieces of a translation to those of its source: the mean logarithm of the sums, at
    most 1, and of the greatest."""
    most = weights.max(0).clip(1e-6)
    return float(np.log(weights.sum(0).clip(1e-6, 1.0)).mean()), float(np.log(most).mean())


def coverages(translator: Translator, source: str, translation: str) -> tuple[float, float]:
    """Those of one segment, without the ends of both."""
    maps = attention_maps(translator, [source], [translation], max_tokens=4096)
    weights = maps.weights["cross"].astype(float).mean((0, 1))
    return coverage(weights[:-1, :-2]) if min(weights[:-1, :-2].shape) else (0.0, 0.0)


def measured(translator: Translator, path: str, documents: int | None) -> tuple[Array, Array]:
    """The signs (segments, signs), coverage last, and the chrF++ of the segments of a file of `evaluate`."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()[:documents]
    read = [d for d in map(json.loads, lines) if len(d["source"]) == len(d["target"]) == len(d["hypothesis"])]
    if left := len(lines) - len(read):
        print(f"{path}: {left} of {len(lines)} documents are left out: their sides differ in segments", file=sys.stderr)
    rows: list[Array] = []
    scores: list[float] = []
    chrf = CHRF(word_order=2)
    own = signs_of(translator, [d["source"] for d in read], [d["hypothesis"] for d in read])
    for document, signs in zip(read, own, strict=True):
        for source, target, written, some in zip(
            document["source"], document["target"], document["hypothesis"], signs, strict=True
        ):
            if source.strip() and target.strip():
                rows.append(np.array([*some, *coverages(translator, source, written)]))
                scores.append(chrf.sentence_score(written, [target]).score)
    return np.stack(rows), np.array(scores)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("calibrate", help="file of translations to calibrate on")
    parser.add_argument("test", help="file of translations to measure on")
    parser.add_argument("--documents", type=int, help="of each file, the first ones; by default all")
    given = parser.parse_args(arguments)
    translator = Translator.load(given.checkpoint)
    (signs, scores), (others, real) = (
        measured(translator, path, given.documents) for path in (given.calibrate, given.test)
    )
    rows = []
    for name, last in (("without coverage", -2), ("with the sums", -1), ("with the sums and the greatest", None)):
        found = fit(signs[:, :last], scores, translator.sha256)
        told = assess(found.expect(others[:, :last]), real)
        rows.append([name, f"{len(real):,}", *(f"{told[key]:.3f}" for key in ("pearson", "auc", "found"))])
    print(markdown(["signs", "segments", "Pearson", "AUC", "found"], rows))


if __name__ == "__main__":
    with one_line_errors():
        main()
