"""Cases, their inputs, and what an implementation makes of them.

B batch, H heads, L / S target and source length, D model width, d head width.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.base import Attention
from scaleformer.ops.segments.layout import SegmentLayout

#: attention, x (B, L, D), memory (B, S, D), layout -> (B, L, D); the attention's parameters are the weights of both
Call = Callable[[Attention, Tensor, Tensor, SegmentLayout], Tensor]

NUMBERS = Path(__file__).parent / "numbers.safetensors"
CASES: list[Case] = []
WIDTH, LENGTH, KEYS = 8, 12, 16
SEGMENTS = ((0, 0, 1, 1, 1, 2, 3, 3, 4, 4, 4, 5, 5, 6, 6, 7), (0, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 6, 6, 6, 7, 7))
REAL = (1.0, 0.7)  # share of tokens of the two examples that are no pads


@dataclass(frozen=True, eq=False)
class Case:
    """One mechanism at one site beside another implementation.

    choice     the name in conf/model/attention
    package    that has the other implementation: "torch" where its own function gets weights or a mask written out
    peer       what of it is called, and how
    pads       whether the other implementation knows pads
    tolerance  what the two may differ by, relative to the greatest number: those that compute in float32 need more
    prepare    what else is drawn from the generator, beside the parameters
    """

    choice: str
    site: str
    package: str
    peer: str
    theirs: Call
    pads: bool = True
    heads: int = 2
    tolerance: float = 1e-9
    name: str = ""
    prepare: Callable[[Any, np.random.RandomState], None] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.choice}-{self.site}"

    @property
    def module(self) -> str:
        return self.package.replace("-", "_")


def oracle(choice: str, package: str, peer: str, sites: str, **settings: Any) -> Callable[[Call], Call]:
    """Registers a function as the other implementation of a mechanism at `sites`, in words."""

    def register(theirs: Call) -> Call:
        CASES.extend(Case(choice, site, package, peer, theirs, **settings) for site in sites.split())
        return theirs

    return register


def ours(attention: Attention, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    out: Tensor = attention(x, memory, layout)
    return out


def results(case: Case, call: Call) -> dict[str, Tensor]:
    """The output of the case's input, pads left at zero, and the gradients of a weighted sum of it, by name.

    Every number comes from numpy's RandomState, whose streams never change.
    """
    generator = np.random.RandomState(zlib.crc32(case.id.encode()))

    def draw(*shape: int) -> Tensor:
        return torch.from_numpy(generator.standard_normal(shape))

    options = {"name": case.name or case.choice, **case.options}
    attention = build_attention(options, case.site, WIDTH, case.heads, strict=True).double().eval()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.copy_(0.4 * draw(*parameter.shape))
        if case.prepare is not None:
            case.prepare(attention, generator)
    keys = KEYS if case.site == "cross" else LENGTH
    x, weights = draw(2, LENGTH, WIDTH).requires_grad_(), draw(2, LENGTH, WIDTH)
    memory = draw(2, keys, WIDTH).requires_grad_() if case.site == "cross" else x
    counts = [int(share * keys) if case.pads else keys for share in REAL]
    mask = torch.arange(keys) < torch.tensor(counts)[:, None]  # (B, S)
    segments = torch.tensor(SEGMENTS)
    layout = SegmentLayout(segments[:, :LENGTH], segments[:, :keys], mask)
    out = call(attention, x, memory, layout)  # (B, L, D)
    if case.site != "cross":
        out = out.masked_fill(~mask[..., None], 0.0)
    leaves = {"x": x, **({"memory": memory} if memory is not x else {}), **dict(attention.named_parameters())}
    gradients = torch.autograd.grad((out * weights).sum(), list(leaves.values()), allow_unused=True)
    found = {f"d {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
    return {"output": out.detach(), **{n: torch.zeros(()) if g is None else g for n, g in found.items()}}


def errors(one: dict[str, Tensor], other: dict[str, Tensor]) -> tuple[float, float]:
    """The largest difference of the outputs and of the gradients, relative to the greatest number of the tensor.

    At least to a thousandth of the greatest of all gradients: what rounding leaves of zeros counts little.
    """
    assert one.keys() == other.keys()
    scales = {name: float(x.abs().amax()) for name, x in other.items()}
    gradients = one.keys() - {"output"}
    least = 1e-3 * max(scales[name] for name in gradients)
    found = {name: float((x - other[name]).abs().amax()) / max(scales[name], least) for name, x in one.items()}
    return found["output"], max(found[name] for name in gradients)


def heads_of(attention: Any, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (B, H, L, d), keys and values (B, H, S, d)."""
    pairs = ((attention.query, x), (attention.key, memory), (attention.value, memory))
    query, key, value = ((y @ f.weight.T).unflatten(-1, (attention.heads, -1)).transpose(1, 2) for f, y in pairs)
    return query, key, value


def output_of(attention: Any, out: Tensor) -> Tensor:
    """(B, H, L, d) -> (B, L, D)"""
    return out.transpose(1, 2).flatten(2) @ attention.output.weight.T


def seen_by(attention: Any, x: Tensor, layout: SegmentLayout) -> Tensor:
    """(B, 1, L, S) bool: no pads, and nothing later in causal attention."""
    seen = layout.mask[:, None, None].expand(-1, -1, x.shape[1], -1)
    return seen.tril() if attention.causal else seen


def additive(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape, dtype=torch.double).masked_fill(~seen, float("-inf"))
