"""Choose from n-best lists or samples the translation most similar to all: minimum Bayes risk, by chrF++ or BLEU.

scaleformer rerank input=TRANSLATIONS.jsonl output=CHOSEN.jsonl [metric=bleu] [level=segment]

The input is what `translate` writes with decoding.n_best: one document per line with `n_best`, a list of objects with
`segments`. The method works best on samples (decoding=sample).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scaleformer.commands.score import read_records
from scaleformer.evaluation.metrics import choose_metrics
from scaleformer.evaluation.minimum_risk import Metric, best_segments, expected_utilities
from scaleformer.system.errors import DataError
from scaleformer.system.files import check_file
from scaleformer.text.documents import Level, one_line
from scaleformer.translation.files.lines import translation_writer


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/rerank.yaml describes them."""

    input: str
    output: str
    metric: Metric
    level: Level
    metrics: dict[str, Any]


def main(options: Options, given: Sequence[str]) -> None:
    check_file("output", options.output)
    metrics = choose_metrics({}, options.metrics, given)
    metric = metrics.chrf() if options.metric == "chrf" else metrics.bleu(effective_order=True)  # of single sentences
    records, _ = read_records(options.input, "n_best")
    moved = 0
    with translation_writer(options.output) as file:
        for record in records:
            lists = [tuple(entry["segments"]) for entry in record["n_best"]]
            if not lists:
                raise DataError(f"{options.input}: the n-best list of document {record['id']} is empty")
            kept = {key: record[key] for key in ("id", "source", "target") if key in record}
            if options.level == "segment":
                try:
                    chosen, utilities = best_segments(lists, metric)
                except ValueError as error:
                    raise DataError(f"{options.input}: document {record['id']}: {error}") from None
                found: dict[str, Any] = {"hypothesis": chosen, "utilities": utilities}
            else:
                scored = zip(lists, expected_utilities(list(map(one_line, lists)), metric), strict=True)
                ranked = sorted(scored, key=lambda entry: -entry[1])
                found = {"hypothesis": ranked[0][0], "utility": ranked[0][1]}
                found["n_best"] = [{"segments": segments, "score": utility} for segments, utility in ranked]
            moved += tuple(found["hypothesis"]) != lists[0]
            file.write(json.dumps(kept | found, ensure_ascii=False) + "\n")
    print(f"chose a translation other than the first in {moved} of {len(records)} documents", file=sys.stderr)
