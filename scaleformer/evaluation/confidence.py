"""How sure a model is of each segment that it wrote: a prediction of the segment's chrF++ from its probability, alone
and among its neighbours, and from what the texts themselves tell; and a page of the segments to read first.

Signs are turned so that more is better, weighed with no negative weight, and calibrated by a rising curve (isotonic
regression) on translations whose references are known. Related: [Fomicheva 2020, arXiv 2005.10608].
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scaleformer.evaluation.log_probabilities import score_documents
from scaleformer.system.errors import DataError
from scaleformer.system.files import atomic_writer
from scaleformer.translation.translator import Translator

NAME = "confidence.json"
WORST = 0.2  # share of the segments that a reader should find
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
#: The signs of a segment, and what a reader is told where one is bad.
SIGNS = {
    "probability": "improbable words",
    "least": "one very improbable word",
    "alone": "improbable without its neighbours",
    "length": "unusual length",
    "numbers": "numbers differ",
    "repeats": "words repeated",
    "copied": "same as the source",
}
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Confidence:
    """A calibration.

    means, deviations, weights  of the signs, in their order
    curve      the summed signs and the chrF++ expected there, both rising
    model      sha256 of the weights that it was made for
    """

    means: list[float]
    deviations: list[float]
    weights: list[float]
    curve: list[list[float]]
    model: str

    @classmethod
    def of(cls, translator: Translator) -> Confidence:
        """That of a model, beside its results. Raises DataError without one, or where it is of other weights."""
        path = place_of(translator)
        make = f"`scaleformer confidence checkpoint={translator.path}` makes it"
        try:
            found = cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise DataError(f"{path}: missing: {make}") from None
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: not a calibration ({error}): {make}") from None
        if found.model != translator.sha256:
            raise DataError(f"{path}: of another checkpoint: {make}")
        return found

    def write(self, path: Path) -> None:
        """Raises OSError."""
        with atomic_writer(path) as file:
            json.dump(asdict(self), file, indent=2)

    def expect(self, signs: Array) -> Array:
        """The chrF++ to be expected, from 0 to 100, of segments with these signs (segments, signs)."""
        values = (signs - self.means) / self.deviations @ np.array(self.weights)
        return np.interp(values, self.curve[0], self.curve[1])

    def reasons(self, signs: Array) -> list[str]:
        """What is bad about a segment: signs at least two deviations below their mean, the weightiest first."""
        below = -(signs - np.array(self.means)) / self.deviations
        order = np.argsort(-below * np.array(self.weights), kind="stable")
        names = list(SIGNS)
        return [SIGNS[names[i]] for i in order if below[i] >= 2]


def place_of(translator: Translator) -> Path:
    """Where the calibration of a model lies: in its folder, or next to the checkpoint."""
    path = translator.path
    return (path if path.is_dir() else path.parent) / NAME


def signs_of(translator: Translator, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[Array]:
    """The signs of each segment, (segments, signs) for each document; sources and targets match segment by segment."""
    whole = score_documents(translator, sources, targets)
    flat = ([[text] for document in documents for text in document] for documents in (sources, targets))
    alone = iter(score_documents(translator, *flat))
    found = []
    for source, target, document in zip(sources, targets, whole, strict=True):
        rows = []
        for s, t, score in zip(source, target, document.segments, strict=True):
            own = next(alone).segments[0]
            mean, mean_alone = score.log_probability / score.tokens, own.log_probability / own.tokens
            rows.append([mean, score.least, mean_alone, *_of_texts(s, t)])
        found.append(np.array(rows).reshape(len(rows), len(SIGNS)))
    return found


def _of_texts(source: str, target: str) -> list[float]:
    """The signs that need no model: length, numbers, repeats, copied."""
    words = target.split()
    repeated = len(words) - len(set(words)) if len(words) > 3 else 0
    here, there = (Counter(_NUMBER.findall(text)) for text in (source, target))
    differ = (here - there).total() + (there - here).total()
    return [
        -abs(math.log((len(target) + 5) / (len(source) + 5))),
        -float(min(differ, 5)),
        -repeated / max(len(words), 1),
        -float(source == target and any(map(str.isalpha, source))),
    ]


def fit(signs: Array, scores: Array, model: str) -> Confidence:
    """Calibrate: signs (segments, signs) and chrF++ (segments,). Raises ValueError for fewer than 50 segments,
    ModuleNotFoundError without scikit-learn."""
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LinearRegression

    if len(scores) < 50:
        raise ValueError(f"{len(scores)} segments: wanted 50 or more to calibrate on")
    means, deviations = signs.mean(0), signs.std(0) + 1e-6
    standard = (signs - means) / deviations
    weights = LinearRegression(positive=True).fit(standard, scores).coef_
    curve = IsotonicRegression(out_of_bounds="clip").fit(standard @ weights, scores)
    x, y = curve.X_thresholds_.tolist(), curve.y_thresholds_.tolist()
    return Confidence(means.tolist(), deviations.tolist(), weights.tolist(), [x, y], model)


def assess(expected: Array, scores: Array, bins: int = 5) -> dict[str, Any]:
    """How well expectations serve: Pearson's r, the area under the ROC curve for the worst fifth, how much of that
    fifth stands in the fifth of least confidence, and by fifths the expected and the real mean."""
    from sklearn.metrics import roc_auc_score

    order = np.argsort(scores, kind="stable")
    bad = np.zeros(len(scores), dtype=bool)
    bad[order[: max(1, round(WORST * len(scores)))]] = True
    doubted = np.argsort(expected, kind="stable")
    rows = [
        {"segments": len(part), "expected": float(expected[part].mean()), "real": float(scores[part].mean())}
        for part in np.array_split(doubted, bins)
        if len(part)
    ]
    return {
        "pearson": float(np.corrcoef(expected, scores)[0, 1]),
        "auc": float(roc_auc_score(bad, -expected)),
        "found": float(bad[doubted[: int(bad.sum())]].mean()),
        "reliability": rows,
    }


def review_page(
    names: Sequence[str],
    sources: Sequence[Sequence[str]],
    targets: Sequence[Sequence[str]],
    expected: Sequence[Array],
    reasons: Sequence[Sequence[Sequence[str]]],
) -> str:
    """An HTML page of all segments, those of least confidence first."""
    rows = [
        (float(value), name, place, source[place], target[place], some[place])
        for name, source, target, values, some in zip(names, sources, targets, expected, reasons, strict=True)
        for place, value in enumerate(values)
        if source[place].strip()
    ]
    rows.sort(key=lambda row: row[0])
    first = -(-len(rows) // 10)
    lines = [
        f"<tr><td>{value:.0f}<td>{escape(name)}<br>{place + 1}<td>{escape(s)}<td>{escape(t)}<td>{', '.join(why)}"
        for value, name, place, s, t, why in rows
    ]
    head = "<tr><th>expected chrF++<th>document, segment<th>source<th>translation<th>why"
    body = [f"<h1>Read these {first:,} first</h1><table>{head}", *lines[:first], "</table>"]
    body += [f"<h1>The other {len(rows) - first:,}</h1><table>{head}", *lines[first:], "</table>"]
    style = "body{font:16px/1.4 sans-serif;margin:2em auto;max-width:90em}td,th{text-align:left;vertical-align:top;"
    style += "padding:.3em .6em;border-bottom:1px solid #ccc}table{border-collapse:collapse}"
    return (
        f'<!DOCTYPE html><meta charset="utf-8"><title>Review</title><style>{style}</style>\n' + "\n".join(body) + "\n"
    )
