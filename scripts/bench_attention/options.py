"""The settings of the benchmark of attention, and the names of what it compares."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import torch

from scaleformer.system.schema import NonEmpty, OneOf, Positive, from_mapping
from scripts.arguments import Parser

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
    """The settings; `python -m scripts.bench_attention --help` describes them."""

    part: Literal["compare", "terms", "long"]
    cases: NonEmpty[Annotated[str, OneOf(CASES)]] | None
    lengths: NonEmpty[Positive] | None
    batch: Positive
    heads: Positive
    width: Positive
    horizon: int
    near: int
    kept: int
    segments: tuple[Positive, ...]
    mechanisms: NonEmpty[Annotated[str, OneOf(MECHANISMS)]]
    softmax_limit: int
    cross_limit: int
    quadratic_limit: int
    paper_limit: int
    pair_limit: int
    repeats: Positive
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


def parse(given: Sequence[str] | None, program: str, description: str | None = None, **usual: Any) -> Options:
    """The settings of a command line; `usual` are other defaults.

    Raises ValueError for unknown ones, and for values of a wrong type or out of bounds.
    """
    parser = Parser(program, description)
    parser.add_argument("--part", default="compare", help="what to measure: compare, terms or long")
    cases = f"of {', '.join(f'{case!r}' for case in CASES)}; None is those of the part"
    parser.add_argument("--cases", nargs="*", metavar="CASE", help=cases)
    tokens: dict[str, Any] = {"nargs": "*", "type": int, "metavar": "TOKENS"}
    parser.add_argument("--lengths", help="of a document; None is those of the part", **tokens)
    parser.add_argument("--batch", type=int, default=1, help="rows of a batch")
    parser.add_argument("--heads", type=int, default=8, help="of the attention")
    parser.add_argument("--width", type=int, default=64, help="of a head")
    parser.add_argument("--horizon", type=int, default=16, help="R, tokens beyond which all distances count the same")
    parser.add_argument("--near", type=int, default=3, help="of segment-recall, in segments")
    parser.add_argument("--kept", type=int, default=64, help="keys that segment-recall keeps of the far segments")
    parser.add_argument("--segments", default=(25,), help="of a segment of segment-recall", **tokens)
    mechanisms = f"of {', '.join(MECHANISMS)}; {KERNEL} is always included"
    parser.add_argument("--mechanisms", nargs="*", default=MECHANISMS, metavar="NAME", help=mechanisms)
    longest = {
        "--softmax-limit": (16384, "for softmax"),
        "--cross-limit": (2048, "for cross-attention"),
        "--quadratic-limit": (2048, "for explicit scores"),
        "--paper-limit": (2048, "for the paper's own algorithms"),
        "--pair-limit": (1024, "at which each system alternates with softmax only"),
    }
    for name, (default, words) in longest.items():
        parser.add_argument(name, type=int, default=default, metavar="TOKENS", help=f"the longest length {words}")
    parser.add_argument("--repeats", type=int, default=5, help="fewest timed calls")
    parser.add_argument("--seconds", type=float, default=0.4, help="least time spent on a comparison")
    parser.add_argument("--threads", type=int, help="of the CPU; None is torch's default")
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16, float16 or float64")
    parser.add_argument("--memory", action=BooleanOptionalAction, default=True, help="measure the peak memory too")
    parser.add_argument("--seed", type=int, default=0, help="of the random tensors")
    parser.add_argument("--output", default="runs/benchmarks", help="folder of the results and figures")
    parser.set_defaults(**usual)
    return from_mapping(Options, vars(parser.parse_args(given)), "")
