"""The choice of `algorithm="auto"`: by measured cost, from shapes alone."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor, is_grad_enabled

from scaleformer.ops.common.checks import check_choice


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


# By device, mechanism and kind of scores: for forward, and for forward and backward. Those of scaleformer are a
# compromise between an Intel Xeon with AVX-512 and AMD EPYCs of Zen 3, 4 and 5: each loses less than a tenth, except
# near the crossing itself.
_CPU: dict[str, dict[str, tuple[_Cost, _Cost]]] = {
    "scaleformer": {
        "causal": (_Cost(215, 0, 450), _Cost(207, 0, 250)),
        "bidirectional": (_Cost(200, 0, 220), _Cost(180, 0, 190)),
        "without positions": (_Cost(112, 0, 360), _Cost(106, 0, 380)),
    },
    "segment_recall": {
        "causal": (_Cost(757, 0, 1120), _Cost(660, 0, 1710)),
        "bidirectional": (_Cost(655, 0, 750), _Cost(630, 0, 940)),
        "without positions": (_Cost(675, 0, 215), _Cost(570, 0, 1410)),
    },
}
# On a GPU, operator calls are most of the cost of the linear forms (docs/log/054-choice-of-algorithm-on-a-gpu.md).
_CASES = ("causal", "bidirectional", "without positions")
_GPU: dict[str, dict[str, tuple[_Cost, _Cost]]] = {
    "scaleformer": dict.fromkeys(_CASES, (_Cost(650, 36_000_000, 0), _Cost(400, 66_000_000, 0))),
    "segment_recall": dict.fromkeys(_CASES, (_Cost(1000, 81_000_000, 0), _Cost(550, 71_000_000, 0))),
}
_COSTS = {"cpu": _CPU, "cuda": _GPU}
_ROWS = {"cpu": (4, 64), "cuda": (8, 128)}  # the constants were not checked against measured times beyond these
# For forward, and for forward and backward, where each layer keeps its scores. On a GPU that would be worth the time at
# lengths where it is no longer worth the memory.
_MOST_SCORES = {"cpu": (math.inf, math.inf), "cuda": (2.0**28, 2.0**26)}
MECHANISMS = tuple(_CPU)


def choose_algorithm(
    mechanism: str, queries: int, keys: int, width: int, *, rows: int = 1, relative: bool = True, causal: bool = False,
    backward: bool = True, device: str = "cpu",
) -> Choice:  # fmt: skip
    """The algorithm that `algorithm="auto"` takes for these shapes, and why; print the result to read it.

        quadratic  if  L_Q L_K <= s L + (w + z L) / rows      L = sqrt(L_Q L_K)      s grows with 16 + d

    The quadratic form has a cost for each score; the linear form has a cost for each position, a start-up cost, and a
    cost for each of its steps. s is the length at which the scores of a row cost as much as its positions; w / rows and
    z / rows are the costs of the start and of the steps for one position, in scores. They are fitted to the times that
    `python -m scripts.algorithm_choice` prints, for d = 64 and segments of 25 tokens; it also prints how far the
    choice is from the best.

    CPU: batch=1 and batch=4, float32. They also serve bfloat16: on an EPYC with AVX2 alone, which has no bfloat16
    products, the crossings are at 0.8 to 1.2 times the lengths of float32, and the choice loses 35% at most (27% in
    float32; near a crossing, on a machine with other load). CPUs with bfloat16 products were not measured.
    GPU: batch=1, 4 and 16, bfloat16, and batch=4 in float32, on one NVIDIA H200. At most 2^28 scores are computed
    at once, 2^26 with gradients, whatever the time.

    mechanism      scaleformer (`relative_kernel_attention`) or segment_recall
    queries, keys  L_Q and L_K
    width          d, of a head
    rows           batch times heads: rows computed together; fewer than 4 (GPU: 8) count as 4 (8), more than 64 (128)
                   as 64 (128)
    relative       whether there are relative positions
    backward       whether gradients will be needed
    device         device type of the tensors: cpu | cuda; others count as cuda

    Raises ValueError for an unknown mechanism.
    """
    check_choice("mechanism", mechanism, MECHANISMS)
    case = "without positions" if not relative else "causal" if causal else "bidirectional"
    kind = device if device in _COSTS else "cuda"
    cost = _COSTS[kind][mechanism][case][1 if backward else 0]
    mean = math.sqrt(queries * keys)
    fewest, most = _ROWS[kind]
    shared = min(max(rows, fewest), most)
    slope = cost.same * (16 + width) / 80 + cost.steps / shared
    bound = (slope + math.sqrt(slope**2 + 4 * cost.start / shared)) / 2  # where L^2 = s L + (w + z L) / rows
    why = "all scores take less time"
    if (most_scores := _MOST_SCORES[kind][1 if backward else 0]) < rows * bound**2:
        bound, why = math.sqrt(most_scores / rows), f"there are at most {most_scores:,.0f} scores"
    algorithm, word = ("quadratic", "within") if mean <= bound else ("linear", "beyond")
    passes = "forward and backward" if backward else "forward"
    return Choice(
        algorithm,
        f"a mean length of {mean:,.0f} is {word} the {bound:,.0f} up to which {why} "
        f"({mechanism}, {case}, {passes}, {rows} rows of width {width})",
    )


def wants_gradients(*tensors: Tensor | None) -> bool:
    """Whether a backward pass may follow a call with these arguments."""
    return is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
