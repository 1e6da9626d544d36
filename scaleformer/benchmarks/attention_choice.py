"""The choice of `algorithm=auto` at each length, and the time of every algorithm that it could have chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from scaleformer.benchmarks.attention import (
    Arguments,
    Runner,
    forward,
    forward_backward,
    make_arguments,
    recall,
    segment_numbers,
)
from scaleformer.benchmarks.attention_options import ALL, CLOCKS, KERNEL, PASSES, Options
from scaleformer.ops import choose_algorithm, relative_kernel_attention
from scaleformer.system.timing import alternate

TOO_SLOW = 4.0  # stop measuring explicit scores once they take so many times as long as the best


@dataclass(frozen=True)
class Measured:
    """One length: seconds of each algorithm, the choice of `auto`, and the reason.

    excess  time of the choice divided by that of the best, minus 1
    """

    mechanism: str
    case: str
    passes: str
    length: int
    seconds: dict[str, float]
    choice: str
    reason: str
    excess: float


Run = Callable[[], Tensor]


def algorithms(options: Options, mechanism: str, x: Arguments, case: str) -> dict[str, Run]:
    """Both algorithms of a mechanism."""
    causal, rel = case == "causal", None if case == "cross" else x.rel
    call: Callable[..., Tensor]
    if mechanism == KERNEL:
        call = partial(relative_kernel_attention, x.q, x.k, x.v, rel, causal=causal)
    else:
        numbers = segment_numbers(options, x.q.shape[2], options.segments[0])
        call = recall(options, x, rel, numbers, causal)
    return {ALL: partial(call, algorithm="quadratic"), "linear": partial(call, algorithm="linear")}


def measure_choices(options: Options, say: Callable[[str], None]) -> list[Measured]:
    """All mechanisms and cases over all lengths; `say` receives the current step."""
    rows = []
    for mechanism in options.mechanisms:
        for case in options.cases or ():
            slow: set[str] = set()
            for length in sorted(options.lengths or ()):
                say(f"{mechanism}, {case}, {length} tokens")
                x = make_arguments(options, length)
                found = algorithms(options, mechanism, x, case)
                runs: tuple[Runner, Runner] = (forward, partial(forward_backward, leaves=x.leaves))
                for passes, run in zip(PASSES, runs, strict=True):
                    choice = choose_algorithm(
                        mechanism.replace("-", "_"), length, length, options.width,
                        rows=options.heads * options.batch, relative=case != "cross",
                        causal=case == "causal", backward=passes != "forward",
                    )  # fmt: skip
                    name = ALL if choice.algorithm == "quadratic" else "linear"
                    wanted = {n: f for n, f in found.items() if n == name or n != ALL or passes not in slow}
                    functions: dict[str, Callable[[], object]] = {n: partial(run, f) for n, f in wanted.items()}
                    times = alternate(functions, options.repeats, options.seconds, CLOCKS[options.clock])
                    best = min(times.values())
                    if times.get(ALL, 0.0) > TOO_SLOW * best:
                        slow.add(passes)
                    excess = times[name] / best - 1
                    rows.append(Measured(mechanism, case, passes, length, dict(times), name, choice.reason, excess))
    return rows


def worst(rows: list[Measured]) -> Mapping[str, float]:
    """The largest excess of each mechanism."""
    return {m: max(row.excess for row in rows if row.mechanism == m) for m in dict.fromkeys(r.mechanism for r in rows)}
