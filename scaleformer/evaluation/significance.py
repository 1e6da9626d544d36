"""Is one system better than another, or is it chance? sacrebleu's two paired tests against the first system.

Paired bootstrap resampling [Koehn 2004] and approximate randomization [Riezler & Maxwell 2005] over lines: segments, or
documents of one line each. The fewer lines, the less either test can show: n differing lines have 2^n exchanges, two of
which (all and none) give the observed difference, so that no p-value of randomization is below 2 / 2^n.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text
from sacrebleu.metrics.base import Score, Signature
from sacrebleu.significance import PairedTest

from scaleformer.evaluation.metrics import Metrics
from scaleformer.system.tables import plain_table


@dataclass(frozen=True)
class ComparedSystem:
    """One system in one metric.

    score            of all lines, 0 to 100
    difference       score minus that of the first system; 0 for the first itself
    mean, interval   mean of the bootstrap resamples, and half the width of their 95% confidence interval
    bootstrap_p      p-value of the paired bootstrap against the first system
    randomization_p  p-value of the approximate randomization, at least 2 / 2^n where n lines differ. Both are None for
                     the first system, and for one with exactly its lines: there is nothing to test
    """

    system: str
    metric: str
    score: float
    difference: float
    mean: float
    interval: float
    bootstrap_p: float | None
    randomization_p: float | None

    def significant(self) -> bool:
        """Whether both tests give a p-value below 0.05."""
        return all(p is not None and p < 0.05 for p in (self.bootstrap_p, self.randomization_p))


@dataclass(frozen=True)
class SystemComparison:
    """All systems in all metrics; rows metric by metric, in the given order of systems.

    signatures  of sacrebleu: metric -> "bootstrap" or "randomization" -> signature
    """

    baseline: str
    lines: int
    rows: tuple[ComparedSystem, ...]
    signatures: dict[str, dict[str, str]]


class Accuracy:
    """A metric for `compare_systems`: percent of right cases. Lines are documents, each the numbers of right and of all
    its cases; references are not read."""

    def _extract_corpus_statistics(self, lines: Sequence[tuple[int, int]], references: Any) -> list[tuple[int, int]]:
        return list(lines)

    def _compute_score_from_stats(self, counts: Any) -> Score:
        return Score("accuracy", 100 * float(counts[0]) / float(counts[1]))

    def _aggregate_and_compute(self, counts: Any) -> Score:
        return self._compute_score_from_stats(np.sum(counts, axis=0))

    def get_signature(self) -> Signature:
        """What the tests add seeds and numbers of trials to."""
        return Signature({"num_refs": 1})


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95% interval of a share of `count` [Wilson 1927]."""
    z, n = 1.959964, count
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return middle - half, middle + half


def compare_systems(
    hypotheses: Mapping[str, Sequence[Any]],
    references: Sequence[str],
    metrics: Metrics | Accuracy | None = None,
    *,
    bootstrap_samples: int = 1000,
    randomization_trials: int = 10_000,
) -> SystemComparison:
    """BLEU and chrF++ of each system, or its accuracy, and whether they differ significantly from the first system's.

    hypotheses  name of a system -> its lines, as many as `references`; the others are tested against the first
    metrics     how texts are compared; `Accuracy` for lines of counts
    Seeded by sacrebleu's SACREBLEU_SEED (12345 if not set): every call gives the same numbers.
    Raises ValueError for fewer than two systems, differing line counts, empty references, and no samples or trials.
    """
    chosen = metrics or Metrics()
    for what, number in (("bootstrap_samples", bootstrap_samples), ("randomization_trials", randomization_trials)):
        if number < 1:  # 0 would mean sacrebleu's own default
            raise ValueError(f"{what} is {number}: it must be at least 1")
    seed = os.environ.get("SACREBLEU_SEED", "12345")
    if seed.lower() != "none" and not (seed.isascii() and seed.isdigit()):
        raise ValueError(f"SACREBLEU_SEED is {seed}: it must be an int of at least 0, or none")
    if len(hypotheses) < 2:
        raise ValueError(f"{len(hypotheses)} systems to compare: wanted at least 2")
    if not references:
        raise ValueError("there are no references to compare the systems with")
    for name, lines in hypotheses.items():
        if len(lines) != len(references):
            raise ValueError(f"system {name!r} has {len(lines)} lines, but there are {len(references)} references")
    if isinstance(chosen, Metrics):
        chosen.check(references)
    systems: list[tuple[str, Sequence[Any]]] = [(name, list(lines)) for name, lines in hypotheses.items()]
    found: dict[str, dict[str, Any]] = {}
    names = ("accuracy",) if isinstance(chosen, Accuracy) else ("BLEU", "chrF++")
    signatures: dict[str, dict[str, str]] = {name: {} for name in names}
    for test, kind, samples in (("bootstrap", "bs", bootstrap_samples), ("randomization", "ar", randomization_trials)):
        made = (chosen,) if isinstance(chosen, Accuracy) else (chosen.bleu(), chosen.chrf())
        by_name: dict[str, Any] = dict(zip(names, made, strict=True))
        signed, scores = PairedTest(systems, by_name, [list(references)], kind, samples)()
        found[test] = scores
        for (metric, texts), signature in zip(signatures.items(), signed.values(), strict=True):
            texts[test] = str(signature)
            found[test][metric] = scores["chrF2++" if metric == "chrF++" else metric]
    baseline, first_lines = systems[0]
    rows = []
    for metric in signatures:
        first = found["bootstrap"][metric][0]
        for place, (name, lines) in enumerate(systems):
            result = found["bootstrap"][metric][place]
            tested = place > 0 and lines != first_lines
            # sacrebleu counts exceedances: without any difference it would report the smallest p
            same = result.score == first.score
            differing = sum(line != other for line, other in zip(lines, first_lines, strict=True))
            bootstrap_p, randomization_p = (
                (1.0 if same else max(float(found[test][metric][place].p_value), least)) if tested else None
                for test, least in (("bootstrap", 0.0), ("randomization", 2.0 ** (1 - differing)))
            )
            rows.append(
                ComparedSystem(
                    system=name,
                    metric=metric,
                    score=float(result.score),
                    difference=float(result.score - first.score),
                    mean=float(result.mean),
                    interval=float(result.ci),
                    bootstrap_p=bootstrap_p,
                    randomization_p=randomization_p,
                )
            )
    return SystemComparison(baseline, len(references), tuple(rows), signatures)


def comparison_table(comparison: SystemComparison, title: str | None = None) -> Table:
    """The comparison as a table: a * marks a difference that both tests find significant (p < 0.05)."""
    numbers = ("score", "± (95%)", "difference", "p bootstrap", "p random.")
    table = plain_table(title, ("system", "metric"), numbers)
    for row in comparison.rows:
        cells = [f"{row.score:.2f}", f"{row.interval:.2f}"]
        if row.system == comparison.baseline:
            cells += ["", "", ""]
        else:
            mark = " *" if row.significant() else ""
            cells += [f"{row.difference:+.2f}{mark}", _p(row.bootstrap_p), _p(row.randomization_p)]
        table.add_row(Text(row.system), row.metric, *cells)
    return table


def _p(value: float | None) -> str:
    return "same lines" if value is None else f"{value:.4f}"
