"""Figures of attention-*.json (`scaleformer.evaluation.attention_maps`): heat maps by site, layer and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from numpy.typing import NDArray

from scaleformer.evaluation.attention_maps import SIDES, AttentionMaps
from scaleformer.report.style import save

TITLES = {
    "cross": "cross-attention: the translation looks at the source",
    "encoder": "encoder: the source looks at itself",
    "decoder": "decoder: the translation looks back at itself",
}
SIZE, SITE_SIZE = 7.0, 5.0  # font sizes in points of the pieces on the axes: large map, maps by layer and head


def plot_attention(maps: AttentionMaps, folder: str | Path, name: str = "attention") -> dict[str, Path]:
    """NAME-mean.png, a large map of cross-attention averaged over layers and heads; NAME-SITE.png, all of them.

    Darker is more; each map is scaled from 0 to its own 99.5th percentile, to keep faint ones readable.
    """
    folder, weights = Path(folder), maps.weights
    pieces = {"source": maps.source_pieces, "target": maps.target_pieces}
    found = {}
    if "cross" in weights:
        mean = weights["cross"].mean((0, 1))  # (L, S)
        title = f"cross-attention ({maps.mechanisms['cross']}), mean of all layers and heads"
        found["Attention of the translation to the source"] = _plot_mean(
            mean, pieces, title, folder / f"{name}-mean.png"
        )
    for site in TITLES:
        if site in weights:
            title = f"{TITLES[site]} ({maps.mechanisms[site]})"
            path = folder / f"{name}-{site}.png"
            found[TITLES[site].capitalize()] = _plot_site(site, weights[site], pieces, title, path)
    return found


def _plot_mean(mean: NDArray[Any], pieces: Mapping[str, Sequence[str]], title: str, path: Path) -> Path:
    """One large map with the pieces on its axes."""
    tall, wide = min(0.17 * mean.shape[0] + 1.2, 14), min(0.2 * mean.shape[1] + 1.8, 16)
    figure, axis = pyplot.subplots(figsize=(max(5.4, wide), max(2.2, tall)), layout="constrained")
    image = _draw(axis, mean)
    _name_pieces(axis, pieces["source"], pieces["target"], (wide - 1.8, tall - 1.2), SIZE)
    axis.set_xlabel("source piece", fontsize=9)
    axis.set_ylabel("piece read by the decoder", fontsize=9)
    axis.set_title(fill(title, int(11 * max(5.4, wide))), fontsize=10)
    bar = figure.colorbar(image, ax=axis, fraction=0.03, pad=0.02)
    bar.set_label("weight", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return save(figure, path)


def _plot_site(site: str, weights: NDArray[Any], pieces: Mapping[str, Sequence[str]], title: str, path: Path) -> Path:
    """A row of maps for each layer, one for each head."""
    beside, below = SIDES[site]
    layers, heads, queries, keys = weights.shape
    wide = min(max(2.1, 0.035 * keys), 3.4)
    tall = min(max(1.6, wide * queries / keys), 4.5)
    size = (wide * heads + 0.9, tall * layers + 0.9)
    figure, axes = pyplot.subplots(layers, heads, figsize=size, squeeze=False, layout="constrained")
    for layer in range(layers):
        for head in range(heads):
            axis = axes[layer, head]
            _draw(axis, weights[layer, head])
            axis.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=8)
            _name_pieces(axis, pieces[below], pieces[beside], (wide, tall), SITE_SIZE)
    figure.suptitle(fill(title, int(12 * size[0])), fontsize=10)
    figure.supxlabel(f"{below} piece", fontsize=8)
    figure.supylabel(f"{beside} piece", fontsize=8)
    return save(figure, path)


def _draw(axis: Axes, weights: NDArray[Any]) -> Any:
    top = float(np.quantile(weights, 0.995)) or 1.0
    return axis.imshow(weights, cmap="Greys", vmin=0, vmax=top, aspect="auto", interpolation="nearest")


def _name_pieces(
    axis: Axes, below: Sequence[str], beside: Sequence[str], inches: tuple[float, float], size: float
) -> None:
    """Label an axis of so many inches with its pieces: all of them, or every n-th, numbered, where space is short."""
    axis.tick_params(labelsize=size)
    for side, pieces, room in ((axis.xaxis, below, inches[0]), (axis.yaxis, beside, inches[1])):
        most = max(1, int(room * 72 / (1.35 * size)))  # a line of text each
        every = -(-len(pieces) // most)
        places = range(0, len(pieces), every)
        side.set_ticks(places, [pieces[i] if every == 1 else f"{i} {pieces[i]}" for i in places])
    axis.tick_params(axis="x", rotation=90)
