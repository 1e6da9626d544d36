"""The choice of `algorithm=auto` at each length, and the time of every algorithm that it could have chosen.

    python -m scripts.algorithm_choice [--repeats 3] [--lengths 16 128 1024] [--mechanisms segment-recall] ...

Settings are those of `python -m scripts.bench_attention`; segment-recall has the first of `segments`. Prints tables and
writes OUTPUT/attention_auto.json and OUTPUT/attention_auto.png.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path

from rich.console import Console
from torch import Tensor

from scaleformer.ops import choose_algorithm, relative_kernel_attention
from scaleformer.report.style import label, legend_below, line_styles, panels, save
from scaleformer.system.allocator import use_huge_pages
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import one_line_errors
from scaleformer.system.provenance import provenance, write_result
from scripts.bench_attention.cost import (
    Arguments,
    Runner,
    forward,
    forward_backward,
    make_arguments,
    recall,
    segment_numbers,
)
from scripts.bench_attention.options import ALL, KERNEL, PASSES, Options, parse
from scripts.bench_attention.report import device_in_words, set_scales
from scripts.bench_training.tables import Result, Rows, distinct, markdown
from scripts.timing import alternate

USUAL = {
    "cases": ["causal", "bidirectional", "cross"],
    "lengths": [16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 4096, 16384],
}
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
                    times = alternate(functions, options.repeats, options.seconds)
                    best = min(times.values())
                    if times.get(ALL, 0.0) > TOO_SLOW * best:
                        slow.add(passes)
                    excess = times[name] / best - 1
                    rows.append(Measured(mechanism, case, passes, length, dict(times), name, choice.reason, excess))
    return rows


def worst(rows: list[Measured]) -> Mapping[str, float]:
    """The largest excess of each mechanism."""
    return {m: max(row.excess for row in rows if row.mechanism == m) for m in dict.fromkeys(r.mechanism for r in rows)}


def choice_tables(result: Result) -> list[str]:
    """For each mechanism the milliseconds of every algorithm, the choice of `auto`, and its excess over the best."""
    tables, rows = [], result["rows"]
    for (mechanism,) in distinct(rows, "mechanism"):
        chosen = [row for row in rows if row["mechanism"] == mechanism]
        lengths = sorted({row["length"] for row in chosen})
        lines = []
        for case, passes in distinct(chosen, "case", "passes"):
            found = {row["length"]: row for row in chosen if (row["case"], row["passes"]) == (case, passes)}
            names = dict.fromkeys(name for row in found.values() for name in row["seconds"])
            for name in names:
                times = {n: row["seconds"][name] for n, row in found.items() if name in row["seconds"]}
                cells = (f"{times[n] * 1e3:.3g}" if n in times else "" for n in lengths)
                lines.append([f"{case}, {passes}: {name}", *cells])
            picked = (f"{found[n]['choice']} +{found[n]['excess']:.0%}" if n in found else "" for n in lengths)
            lines.append([f"{case}, {passes}: auto", *picked])
        tables.append(markdown([f"{mechanism}: ms", *(f"{n:,}" for n in lengths)], lines))
    worst = ", ".join(f"{name} {excess:.0%}" for name, excess in result["worst"].items())
    return [*tables, f"Largest excess of `auto` over the best: {worst}."]


def draw_choices(rows: Rows, path: Path, conditions: str) -> None:
    """Time of each algorithm relative to the best, against length; rings mark the choice of `auto`."""
    mechanisms = [name for (name,) in distinct(rows, "mechanism")]
    kinds = distinct(rows, "case", "passes")
    names = list(dict.fromkeys(name for row in rows for name in row["seconds"]))
    styles = line_styles(names)
    figure, axes = panels(len(mechanisms) * len(kinds), columns=len(kinds), width=3.2, height=3.0)
    for (mechanism, kind), axis in zip(product(mechanisms, kinds), axes, strict=True):
        wanted = (mechanism, *kind)
        chosen = sorted(
            (r for r in rows if (r["mechanism"], r["case"], r["passes"]) == wanted), key=lambda row: row["length"]
        )
        for name in dict.fromkeys(n for row in chosen for n in row["seconds"]):
            points = [(r["length"], r["seconds"][name] / min(r["seconds"].values())) for r in chosen
                      if name in r["seconds"]]  # fmt: skip
            axis.plot(*zip(*points, strict=True), label=name, **styles[name, ""])
        taken = [(row["length"], 1 + row["excess"]) for row in chosen]
        axis.plot(*zip(*taken, strict=True), "ko", fillstyle="none", markersize=8, label="auto")
        set_scales(axis)
        label(axis, f"{mechanism}, {kind[0]},\n{kind[1]}", "tokens", "time / best time" if kind == kinds[0] else "")
    legend_below(figure)
    figure.suptitle(conditions, fontsize=9)
    save(figure, path, beside=())


def main(given: Sequence[str] | None = None) -> None:
    """Measure, print and write."""
    options = parse(given, "python -m scripts.algorithm_choice", __doc__, **USUAL)
    if not options.segments:
        raise ValueError("segments is []: it must have one")
    set_up_cpu(options.threads)
    with Console().status("") as status:
        rows = measure_choices(options, status.update)
    conditions = provenance("cpu", options.seed)
    found = {"worst": worst(rows), "rows": [asdict(row) for row in rows]}
    result = {**conditions, "settings": asdict(options), **found}
    output = Path(options.output)
    written = write_result(output / "attention_auto.json", result)
    print("\n\n".join(choice_tables(result)))
    words = device_in_words(conditions["device"])
    words += f", {options.dtype}, batch {options.batch}, {options.heads} heads of {options.width}, R={options.horizon}"
    draw_choices(result["rows"], output / "attention_auto.png", words)
    print(f"{words}\n{written} and attention_auto.png")


if __name__ == "__main__":
    use_huge_pages()  # as commands do
    with one_line_errors():
        main()
