"""`scaleformer benchmark decoding` by its earlier name."""

from __future__ import annotations

from scaleformer.commands import run

if __name__ == "__main__":
    run("benchmark decoding")
