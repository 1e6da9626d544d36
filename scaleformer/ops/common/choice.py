"""Which algorithm `algorithm="auto"` takes: by measured cost, from shapes alone."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor, is_grad_enabled

from scaleformer.ops.common.checks import check_choice
from scaleformer.system.processor import zen_generation


class Choice(NamedTuple):
    """`linear` or `quadratic`, and the reason in words, with the numbers compared."""

    algorithm: str
    reason: str

    def __str__(self) -> str:
        return f"{self.algorithm}: {self.reason}"


class _Cost(NamedTuple):
    """s, w and z of `choose_algorithm`."""

    same: int
    start: int
    steps: int


# By mechanism, and whether scores are causal and relative: forward, and forward and backward. These are of an Intel
# Xeon with AVX-512.
_CONSTANTS: dict[str, dict[str, tuple[_Cost, _Cost]]] = {
    "scaleformer": {
        "causal": (_Cost(235, 0, 704), _Cost(211, 0, 608)),
        "bidirectional": (_Cost(256, 0, 288), _Cost(246, 0, 139)),
        "without positions": (_Cost(130, 0, 501), _Cost(125, 0, 501)),
    },
    "segment_gated": {
        "causal": (_Cost(197, 143000, 1250), _Cost(217, 294000, 1120)),
        "bidirectional": (_Cost(257, 265000, 740), _Cost(201, 416000, 1460)),
        "without positions": (_Cost(193, 286000, 350), _Cost(155, 426000, 450)),
    },
    "segment_hybrid": {
        "causal": (_Cost(188, 0, 384), _Cost(223, 0, 597)),
        "bidirectional": (_Cost(274, 0, 373), _Cost(350, 0, 597)),
        "without positions": (_Cost(258, 0, 459), _Cost(339, 0, 768)),
    },
    "segment_recall": {
        "causal": (_Cost(757, 0, 1120), _Cost(748, 0, 1940)),
        "bidirectional": (_Cost(655, 0, 750), _Cost(715, 0, 1070)),
        "without positions": (_Cost(675, 0, 215), _Cost(650, 0, 1600)),
    },
}
_GATED_ON_ZEN = {
    "causal": (_Cost(173, 110000, 1100), _Cost(165, 170000, 850)),
    "bidirectional": (_Cost(245, 240000, 700), _Cost(165, 280000, 1200)),
}
# What AMD EPYCs have instead, by generation; what is not here serves there as it is, or was never compared with times.
_ON_ZEN: dict[int, dict[str, dict[str, tuple[_Cost, _Cost]]]] = {
    3: {
        "scaleformer": {
            "causal": (_Cost(208, 0, 608), _Cost(208, 0, 213)),
            "bidirectional": (_Cost(187, 0, 352), _Cost(162, 0, 352)),
            "without positions": (_Cost(108, 0, 430), _Cost(106, 0, 430)),
        },
    },
    4: {
        "scaleformer": {
            "causal": (_Cost(230, 0, 320), _Cost(222, 0, 45)),
            "bidirectional": (_Cost(202, 0, 170), _Cost(190, 0, 64)),
            "without positions": (_Cost(118, 0, 300), _Cost(108, 0, 340)),
        },
        "segment_gated": _GATED_ON_ZEN,
    },
    5: {
        "scaleformer": {
            "causal": (_Cost(207, 0, 280), _Cost(188, 0, 285)),
            "bidirectional": (_Cost(173, 0, 100), _Cost(154, 0, 205)),
            "without positions": (_Cost(97, 0, 235), _Cost(90, 0, 265)),
        },
        "segment_gated": {
            **_GATED_ON_ZEN,
            "without positions": (_Cost(220, 370000, 400), _Cost(165, 480000, 480)),
        },
        "segment_hybrid": {
            "causal": (_Cost(229, 0, 850), _Cost(303, 0, 530)),
            "bidirectional": (_Cost(397, 0, 750), _Cost(437, 0, 560)),
            "without positions": (_Cost(341, 0, 1200), _Cost(440, 0, 500)),
        },
    },
}
_FEWEST, _MOST = 4, 64  # rows: beyond these the constants were never compared with times
MECHANISMS = tuple(_CONSTANTS)


def choose_algorithm(
    mechanism: str,
    queries: int,
    keys: int,
    width: int,
    *,
    rows: int = 1,
    relative: bool = True,
    causal: bool = False,
    backward: bool = True,
) -> Choice:
    """What `algorithm="auto"` takes for these shapes, and why; print it to see.

        quadratic  if  L_Q L_K <= s L + (w + z L) / rows      L = sqrt(L_Q L_K)      s grows with 16 + d

    Making all scores costs so much a score; the way in linear time so much a position, and more to start and for every
    step that it takes. s is the length where the scores of a row cost what its positions do, w / rows and z / rows the
    scores that the start, and the steps for one position, are worth. They are fitted to the times that
    `python scripts/benchmark_attention.py part=auto` prints, for batch=1 and batch=4 (CPU, float32, d = 64, segments of
    25 tokens); it also shows how far from the best the choice is. There are constants for AMD's Zen 3, for Zen
    4, for Zen 5 and later, and for all other devices.

    mechanism      scaleformer (`relative_kernel_attention`), segment_gated, segment_hybrid or
                   segment_recall
    queries, keys  L_Q and L_K
    width          d, of a head
    rows           batch times heads, of segment_gated heads alone: how many are worked on together; fewer than 4 count
                   as 4, more than 64 as 64
    relative       whether there are relative positions
    backward       whether gradients will be asked for

    Raises ValueError for an unknown mechanism.
    """
    check_choice("mechanism", mechanism, MECHANISMS)
    case = "without positions" if not relative else "causal" if causal else "bidirectional"
    costs = _CONSTANTS[mechanism] | _ON_ZEN.get(zen_generation(), {}).get(mechanism, {})
    cost = costs[case][1 if backward else 0]
    mean = math.sqrt(queries * keys)
    shared = min(max(rows, _FEWEST), _MOST)
    slope = cost.same * (16 + width) / 80 + cost.steps / shared
    bound = (slope + math.sqrt(slope**2 + 4 * cost.start / shared)) / 2  # where L^2 = s L + (w + z L) / rows
    algorithm, word = ("quadratic", "within") if mean <= bound else ("linear", "beyond")
    passes = "forward and backward" if backward else "forward"
    return Choice(
        algorithm,
        f"a mean length of {mean:,.0f} is {word} the {bound:,.0f} up to which all scores take less time "
        f"({mechanism}, {case}, {passes}, {rows} rows of width {width})",
    )


def wants_gradients(*tensors: Tensor | None) -> bool:
    """Whether a backward pass may follow a call with these arguments."""
    return is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
