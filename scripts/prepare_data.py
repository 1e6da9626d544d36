"""Starts `scaleformer prepare`."""

from __future__ import annotations

from scaleformer.commands import run

if __name__ == "__main__":
    run("prepare")
