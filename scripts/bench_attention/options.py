"""The settings of `benchmark attention`, and the names of what it compares."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch

from scaleformer.system.schema import NonEmpty, OneOf, Positive

SOFTMAX = "softmax (torch, fused)"
KERNEL = "scaleformer"
RECALL = "segment-recall"
MECHANISMS = (KERNEL, RECALL)
PAPER = "the paper's algorithms"
ALL = "all scores"
PASSES = ("forward", "forward+backward")
SLOPE_FROM = 2048  # length in tokens from which growth is measured
#: what is compared: self-attention, cross-attention to a source of the same length, and the terms of [Scaleformer]
#: Figures 4 and 5
CASES = ("causal", "bidirectional", "cross", "relative term", "kernel term", "kernel term, causal")


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/benchmark_attention.yaml describes them."""

    part: Literal["compare", "terms", "long"]
    cases: NonEmpty[Annotated[str, OneOf(CASES)]] | None
    lengths: NonEmpty[Positive] | None
    batch: int
    heads: int
    width: int
    horizon: int
    near: int
    kept: int
    segments: tuple[int, ...]
    mechanisms: NonEmpty[Annotated[str, OneOf(MECHANISMS)]]
    softmax_limit: int
    cross_limit: int
    quadratic_limit: int
    paper_limit: int
    pair_limit: int
    repeats: int
    seconds: float
    threads: Positive | None
    dtype: str
    memory: bool
    seed: int
    output: str

    def __post_init__(self) -> None:
        """Raises ValueError for settings that cannot be measured."""
        if not isinstance(getattr(torch, self.dtype, None), torch.dtype):
            raise ValueError(f"dtype is {self.dtype!r}: it must be the name of a torch type, such as bfloat16")

    def with_defaults(self) -> Options:
        """The options, with the defaults of the part where none were given."""
        usual = DEFAULTS[self.part]
        return replace(self, **{name: value for name, value in usual.items() if getattr(self, name) is None})


DEFAULTS: dict[str, dict[str, Any]] = {
    "compare": {"cases": ["causal", "bidirectional", "cross"], "lengths": [256, 512, 1024, 2048, 4096, 8192]},
    "terms": {
        "cases": ["relative term", "kernel term", "kernel term, causal"],
        "lengths": [256, 512, 1024, 2048, 4096],
    },
    "long": {"cases": ["causal", "bidirectional"], "lengths": [2048, 4096, 8192, 16384, 32768, 65536, 131072]},
}
