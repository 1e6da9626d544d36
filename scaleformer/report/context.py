"""Figures of context-*.json (docs/result-files.md): shares of right answers by distance in segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scaleformer.report.style import label, legend_below, line_styles, panels, save

SHARES = {"contrastive": "the right one is the most probable", "generative": "the right one is written"}


def plot_context(results: Mapping[str, Mapping[str, Any]], path: str | Path) -> Path | None:
    """A panel for each kind of phenomenon and score, a line for each result; None without data.

    results  name of a line -> the content of a context-*.json. Raises ValueError for other content.
    """
    try:
        kinds = list(dict.fromkeys(s["kind"] for result in results.values() for s in result["scores"]))
        kinds = [kind for kind in kinds if kind != "all"] or kinds
        drawn = [
            (kind, share, lines)
            for share in SHARES
            for kind in kinds
            if (lines := {name: _rows(result, kind, share) for name, result in results.items()}) and any(lines.values())
        ]
        if not drawn:
            return None
        figure, axes = panels(len(drawn), columns=max(1, len(drawn) // len({share for _, share, _ in drawn})))
        places = _places([row["distance"] for _, _, lines in drawn for rows in lines.values() for row in rows])
        styles = line_styles(list(results))
        for axis, (kind, share, lines) in zip(axes, drawn, strict=True):
            for number, (name, rows) in enumerate(lines.items()):
                if not rows:
                    continue
                x = [places[row["distance"]] + 0.08 * (number - (len(lines) - 1) / 2) for row in rows]
                y = [100 * row[share] for row in rows]
                intervals = [row[f"{share}_interval"] for row in rows]
                low = [max(value - 100 * pair[0], 0) for value, pair in zip(y, intervals, strict=True)]
                high = [max(100 * pair[1] - value, 0) for value, pair in zip(y, intervals, strict=True)]
                axis.errorbar(x, y, yerr=[low, high], elinewidth=0.7, capsize=2, label=name, **styles[name, ""])
            chance = next(iter(rows for rows in lines.values() if rows))
            if share == "contrastive":
                axis.plot(
                    [places[row["distance"]] for row in chance],
                    [100 * row["chance"] for row in chance],
                    color="0.55",
                    linestyle=":",
                    linewidth=1.2,
                    marker="_",  # a single distance makes no line
                    markersize=12,
                    label="by chance",
                )
            title = SHARES[share] if kind == "all" else f"{kind}: {SHARES[share]}"
            label(axis, title, "segments back to the deciding one", "% of the phenomena")
            axis.set_xticks(list(places.values()), list(places), fontsize=8)
            axis.set_xlim(-0.4, len(places) - 0.6)
            axis.set_ylim(-3, 103)
        legend_below(figure)
        return save(figure, path)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{', '.join(results)}: not the result of an evaluation of context ({error!r})") from error


def _rows(result: Mapping[str, Any], kind: str, share: str) -> list[Mapping[str, Any]]:
    """The scores of a kind at single distances that have this share."""
    found = result["scores"]
    return [s for s in found if s["kind"] == kind and s["distance"] != "all" and s[share] is not None]


def _places(distances: Sequence[str]) -> dict[str, int]:
    """The x position of each distance ("3", "9-16", "?")."""
    ordered = sorted(set(distances), key=lambda d: (d == "?", int(d.split("-")[0]) if d != "?" else 0))
    return {distance: place for place, distance in enumerate(ordered)}
