"""How confidence is calibrated and how far it can be trusted (`scaleformer.translation.confidence`), and a page of the
segments to read first."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from scaleformer.translation.confidence import Array, Confidence
from scaleformer.translation.translations import Translation

WORST = 0.2  # share of the segments that a reader should find


def fit(signs: Array, scores: Array, model: str) -> Confidence:
    """Calibrate: signs (segments, signs) and chrF++ (segments,). Raises ValueError for fewer than 50 segments,
    ModuleNotFoundError without scikit-learn."""
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LinearRegression

    if len(scores) < 50:
        raise ValueError(f"{len(scores)} segments: wanted 50 or more to calibrate on: name another split by calibrate=")
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
        "pearson": float(np.nan_to_num(np.corrcoef(expected, scores)[0, 1])),  # 0 where all are equal
        "auc": float(roc_auc_score(bad, -expected)),
        "found": float(bad[doubted[: int(bad.sum())]].mean()),
        "reliability": rows,
    }


def review_page(pairs: Sequence[tuple[str, Sequence[str], Translation]]) -> str:
    """An HTML page of all segments that were judged, those of least confidence first. pairs: the name of each document,
    its segments and its translation."""
    rows = [
        (judged.expected, name, place, source[place], translation.segments[place], judged.reasons)
        for name, source, translation in pairs
        for place, judged in enumerate(translation.judged)
        if judged
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
