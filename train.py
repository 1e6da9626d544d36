"""Train and evaluate a model: `python train.py [experiment=NAME] [key=value ...]` is `scaleformer train`."""

from __future__ import annotations

from scaleformer.commands import run

if __name__ == "__main__":
    run("train")
