"""Figures from the files of a run; nothing is computed here."""

from __future__ import annotations

import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # a run has no screen

from matplotlib import pyplot  # noqa: E402

CURVES = (
    ("loss in nats a token", ("train/loss", "val/loss")),
    ("validation BLEU", ("val/bleu",)),
    ("learning rate", ("train/learning_rate",)),
    ("tokens a second", ("train/tokens_per_second",)),
)
STYLES = ("-", "--", ":", "-.")


def plot_learning_curves(run: str | Path) -> Path | None:
    """metrics.csv -> plots/learning_curves.png; None where nothing has been logged yet."""
    run = Path(run)
    if not (run / "metrics.csv").is_file():
        return None
    with (run / "metrics.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    present = [(label, [n for n in names if rows and n in rows[0]]) for label, names in CURVES]
    present = [(label, names) for label, names in present if names]
    if not present:
        return None
    figure, axes = pyplot.subplots(1, len(present), figsize=(4.2 * len(present), 3.4), squeeze=False)
    for axis, (label, names) in zip(axes[0], present, strict=True):
        for name, style in zip(names, STYLES, strict=False):
            points = [(int(row["step"]), float(row[name])) for row in rows if row[name] != ""]
            steps, values = zip(*points, strict=True) if points else ((), ())
            axis.plot(steps, values, style, color="black", linewidth=1.2, label=name)
        axis.set_xlabel("step")
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
        if len(names) > 1:
            axis.legend()
    figure.tight_layout()
    target = run / "plots" / "learning_curves.png"
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=120)
    pyplot.close(figure)
    return target
