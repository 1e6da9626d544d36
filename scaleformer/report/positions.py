"""Figures of the `positions` of bleu-*.json (docs/result-files.md): quality by position and by document length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scaleformer.report.style import band, label, legend_below, line_styles, panels, save

SCORES = {"s_bleu": "s-BLEU", "chrf": "chrF++"}
PARTS = {"tenths": "tenth of the document", "lengths": "segments of the document"}


def plot_positions(results: Mapping[str, Mapping[str, Any]], path: str | Path, **how: Any) -> Path | None:
    """A panel for each score by tenth and by length of document, a line for each result, with the 95% interval over
    documents as a band; None without data.

    results  name of a line -> the content of a bleu-*.json; how: as in `save`
    Raises ValueError for positions in an unknown form.
    """
    try:
        found = {name: result["positions"] for name, result in results.items() if result.get("positions")}
        parts = [part for part in PARTS if any(len(positions[part]) > 1 for positions in found.values())]
        if not parts:
            return None
        drawn = [(part, score) for part in parts for score in SCORES]
        figure, axes = panels(len(drawn))
        styles = line_styles(list(found))
        for axis, (part, score) in zip(axes, drawn, strict=True):
            rows = [row for positions in found.values() for row in positions[part]]
            places = {start: place for place, start in enumerate(sorted({row["from"] for row in rows}))}
            for name, positions in found.items():
                points = [(places[row["from"]], row[score]) for row in positions[part] if row[score] is not None]
                axis.plot([x for x, _ in points], [y for _, y in points], label=name, **styles[name, ""])
                bounds = [(places[row["from"]], row.get(f"{score}_interval")) for row in positions[part]]
                band(axis, bounds, styles[name, ""])
            ticks = {place: _tick(part, start, rows) for start, place in places.items()}
            axis.set_xticks(list(ticks), list(ticks.values()), fontsize=8)
            label(axis, f"{SCORES[score]} by {PARTS[part]}", f"{PARTS[part]} (number of documents)", SCORES[score])
        legend_below(figure)
        return save(figure, path, **how)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{', '.join(results)}: not the quality by position of an evaluation ({error!r})") from error


def _tick(part: str, start: float, rows: Sequence[Mapping[str, Any]]) -> str:
    """The place, and in how many documents it is; several numbers where the results differ."""
    own = [row for row in rows if row["from"] == start]
    first, last = own[0]["from"], own[0]["to"]
    place = str(round(10 * last)) if part == "tenths" else f"{first}+" if last is None else f"{first}-{last}"
    counts = sorted({row["documents"] for row in own if "documents" in row})
    return f"{place}\n({'/'.join(map(str, counts))})" if counts else place
