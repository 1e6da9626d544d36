"""Figures of attention-*.json (`scaleformer.evaluation.attention_maps`): heat maps by site, layer and head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from numpy.typing import NDArray

from scaleformer.report.style import save

TITLES = {
    "cross": "cross-attention: the translation looks at the source",
    "encoder": "encoder: the source looks at itself",
    "decoder": "decoder: the translation looks back at itself",
}
SIDES = {"cross": ("target", "source"), "encoder": ("source", "source"), "decoder": ("target", "target")}
#: more pieces than that on an axis cannot be read; they are numbered then
READABLE = 48


def plot_attention(
    weights: Mapping[str, NDArray[Any]],
    pieces: Mapping[str, Sequence[str]],
    mechanisms: Mapping[str, str],
    folder: str | Path,
    name: str = "attention",
) -> dict[str, Path]:
    """NAME-mean.png, cross-attention averaged over layers and heads, large; NAME-SITE.png, every layer and head.

    weights     site -> (layers, heads, queries, keys), rows summing to 1
    pieces      "source", "target" -> what stands on the axes
    mechanisms  site -> name
    Darker is more; each map reaches from 0 to its own 99.5th percentile, so that faint ones can be read.
    """
    folder = Path(folder)
    found = {}
    if "cross" in weights:
        mean = weights["cross"].mean((0, 1))  # (L, S)
        title = f"cross-attention ({mechanisms['cross']}), mean of all layers and heads"
        found["Attention of the translation to the source"] = _plot_mean(
            mean, pieces, title, folder / f"{name}-mean.png"
        )
    for site in TITLES:
        if site in weights:
            title = f"{TITLES[site]} ({mechanisms[site]})"
            found[TITLES[site].capitalize()] = _plot_site(site, weights[site], title, folder / f"{name}-{site}.png")
    return found


def _plot_mean(mean: NDArray[Any], pieces: Mapping[str, Sequence[str]], title: str, path: Path) -> Path:
    """One large map with the pieces on its axes."""
    height = min(max(2.2, 0.17 * mean.shape[0] + 1.2), 14)
    figure, axis = pyplot.subplots(figsize=(min(max(5.4, 0.2 * mean.shape[1] + 1.8), 16), height))
    image = _draw(axis, mean)
    _name_axis(axis, pieces["source"], pieces["target"], 7)
    axis.set_xlabel("source piece", fontsize=9)
    axis.set_ylabel("piece read by the decoder", fontsize=9)
    axis.set_title(title, fontsize=10)
    bar = figure.colorbar(image, ax=axis, fraction=0.03, pad=0.02)
    bar.set_label("weight", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    figure.tight_layout()
    return save(figure, path)


def _plot_site(site: str, weights: NDArray[Any], title: str, path: Path) -> Path:
    """A row of maps for each layer, one for each head."""
    layers, heads, queries, keys = weights.shape
    wide = min(max(2.1, 0.035 * keys), 3.4)
    tall = min(max(1.6, wide * queries / keys), 4.5)
    figure, axes = pyplot.subplots(layers, heads, figsize=(wide * heads + 0.6, tall * layers + 0.7), squeeze=False)
    for layer in range(layers):
        for head in range(heads):
            axis = axes[layer, head]
            _draw(axis, weights[layer, head])
            axis.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=8)
            axis.tick_params(labelsize=6)
    beside, below = SIDES[site]
    figure.suptitle(title, fontsize=10)
    figure.supxlabel(f"{below} piece, numbered", fontsize=8)
    figure.supylabel(f"{beside} piece, numbered", fontsize=8)
    figure.tight_layout()
    return save(figure, path)


def _draw(axis: Axes, weights: NDArray[Any]) -> Any:
    top = float(np.quantile(weights, 0.995)) or 1.0
    return axis.imshow(weights, cmap="Greys", vmin=0, vmax=top, aspect="auto", interpolation="nearest")


def _name_axis(axis: Axes, below: Sequence[str], beside: Sequence[str], size: int) -> None:
    axis.tick_params(labelsize=size)
    if len(below) <= READABLE:
        axis.set_xticks(range(len(below)), below, rotation=90, fontsize=size)
    if len(beside) <= READABLE:
        axis.set_yticks(range(len(beside)), beside, fontsize=size)
