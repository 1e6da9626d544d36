"""Log-probabilities of given translations by document and segment, with n-best lists reranked; or, without a model,
scores of any system's output against a reference, whatever its segments.

    scaleformer score checkpoint=RUN input=TRANSLATIONS.jsonl output=SCORES.jsonl [field=target]
    scaleformer score input=OUTPUT.txt reference=DATA/test.jsonl.gz output=SCORES.json

The input is what translate and evaluate write: one document per line with `source` and `hypothesis` (or `target`), or
`n_best`, a list of objects with `segments` and `score`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from scaleformer.evaluation.evaluate import print_positions, print_report
from scaleformer.evaluation.metrics import choose_metrics
from scaleformer.evaluation.plain import read_plain, read_references, score_plain, write_plain
from scaleformer.formats.json_lines import parse_object
from scaleformer.formats.lines import Input
from scaleformer.system.bars import translation_bar
from scaleformer.system.display import counted
from scaleformer.system.errors import DataError
from scaleformer.system.files import check_file
from scaleformer.system.schema import Positive, Range, fits
from scaleformer.translation.files.lines import translation_writer
from scaleformer.translation.log_probabilities import DocumentScore, perplexity, rescore
from scaleformer.translation.translations import DocumentHypothesis
from scaleformer.translation.translator import Translator

FIELDS = ("n_best", "hypothesis", "target")
OF_REFERENCE = ("ter", "metrics")
OF_MODEL = ("checkpoint", "tag", "length_penalty", "old_weight", "batch_tokens")


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/score.yaml describes them."""

    checkpoint: str | None
    input: str
    output: str
    reference: str | None
    ter: bool
    metrics: dict[str, Any]
    field: Literal["auto", "n_best", "hypothesis", "target"]
    tag: str | None
    length_penalty: Annotated[float, Range(ge=0, le=10)] | None
    old_weight: float
    batch_tokens: Positive | None
    device: str
    threads: Positive | None


def main(options: Options, given: Sequence[str]) -> None:
    check_file("output", options.output)
    if options.reference is not None:
        _score_plain(options, given)
        return
    if options.checkpoint is None:
        raise ValueError("checkpoint= is missing: give a model for log-probabilities, or reference=FILE.jsonl for BLEU")
    if foreign := [name for name in OF_REFERENCE if any(one.split("=")[0].split(".")[0] == name for one in given)]:
        raise ValueError(f"{', '.join(foreign)}: only for reference=FILE.jsonl, which is not given: leave it out")
    records, field = read_records(options.input, options.field)
    if options.old_weight and field != "n_best":
        raise ValueError(f"old_weight={options.old_weight}: of scores in n_best, and {field} is read: leave it out")
    translator = Translator.load(options.checkpoint, options.device, options.tag)
    alpha = translator.decoding.length_penalty if options.length_penalty is None else options.length_penalty
    sources = [record["source"] for record in records]
    with translation_writer(options.output) as file, translation_bar("scoring") as progress:
        listed = field == "n_best"
        entries = [record["n_best"] if listed else [{"segments": record[field]}] for record in records]
        lists = [
            [DocumentHypothesis(tuple(e["segments"]), 0.0, e.get("score", 0.0), True) for e in some]  # its score counts
            for some in entries
        ]
        ranked = rescore(
            translator, sources, lists, length_penalty=alpha, old_weight=options.old_weight,
            batch_tokens=options.batch_tokens, progress=progress,
        )  # fmt: skip
        for record, hypotheses in zip(records, ranked, strict=True):
            first, *_ = hypotheses
            output = {"id": record["id"], "source": record["source"], "hypothesis" if listed else field: first.segments}
            output |= {"score": first.score, **_numbers(first.own)}
            if listed:
                output["n_best"] = [
                    {"segments": h.segments, "score": h.score, "old_score": h.old_score, **_numbers(h.own)}
                    for h in hypotheses
                ]
            file.write(json.dumps(output, ensure_ascii=False) + "\n")
    best = [hypotheses[0].own for hypotheses in ranked]
    moved = sum(found[0].segments != given[0].segments for found, given in zip(ranked, lists, strict=True))
    summary = f"the best hypothesis changed in {moved} of {len(records)} documents; " if listed else ""
    tokens = sum(score.tokens for score in best)
    mean = sum(score.log_probability for score in best) / max(1, tokens)  # a public model writes nothing for no segment
    print(
        f"{summary}{counted(len(records), 'translation')} ({field}), {tokens:,} tokens: log-probability "
        f"{mean:.4f} nats/token" + (f", perplexity {perplexity(best):.3f}" if tokens else ""),
        file=sys.stderr,
    )


def _score_plain(options: Options, given: Sequence[str]) -> None:
    """BLEU and other scores of the output of any system."""
    if foreign := [name for name in OF_MODEL if any(one.split("=")[0] == name for one in given)]:
        raise ValueError(f"{', '.join(foreign)}: for log-probabilities, and reference= takes no model: leave it out")
    if not options.output.endswith(".json"):
        raise ValueError(f"output is {options.output}: it must be FILE.json; the aligned texts go to FILE.jsonl")
    assert options.reference is not None
    texts = os.path.realpath(Path(options.output).with_suffix(".jsonl"))
    if texts in (os.path.realpath(options.input), os.path.realpath(options.reference)):
        raise ValueError(f"output={options.output}: its texts would replace {texts}: give another name")
    documents = read_references(options.reference)
    metrics = choose_metrics({}, options.metrics, given)
    hypotheses = read_plain(options.input, documents, options.field)
    scores = score_plain(documents, hypotheses, metrics, ter=options.ter)
    conditions = {"input": options.input, "reference": options.reference, "metrics": asdict(metrics)}
    path = write_plain(options.output, scores, conditions)
    print_report(scores.report, f"{counted(len(documents), 'document')}, {scores.aligned} realigned")
    print_positions(scores.positions)
    found = scores.difference.to_dict()
    print(
        f"omitted: {found['omitted']:.2%} of the tokens of the reference, {found['omitted_segments']} whole segments\n"
        f"added: {found['added']:.2%} of the tokens of the text\n"
        f"written to {path}"
    )


def _numbers(score: DocumentScore) -> dict[str, Any]:
    return {
        "log_probability": score.log_probability,
        "tokens": score.tokens,
        "end": score.end,
        "segment_scores": [{"log_probability": s.log_probability, "tokens": s.tokens} for s in score.segments],
    }


def read_records(name: str, field: str) -> tuple[list[dict[str, Any]], str]:
    """The documents, and which of their fields to score."""
    source = Input(name)
    where = source.name
    records = []
    for number, line in source.lines():
        record = parse_object(line, f"{where}:{number}", "source")
        if not _texts(record.get("source")):
            raise DataError(f"{where}:{number}: wanted an object with 'source', a list of texts")
        records.append({**record, "id": str(record.get("id", number))})
    if not records:
        raise DataError(f"{where}: no documents")
    chosen = next((f for f in FIELDS if f in records[0]), None) if field == "auto" else field
    if chosen is None:
        raise DataError(f"{where}:1: nothing to score: wanted a field {', '.join(FIELDS)}")
    for number, record in enumerate(records, 1):
        value = record.get(chosen)
        if chosen == "n_best":
            right = isinstance(value, list) and bool(value) and all(map(_is_hypothesis, value))
        else:
            right = _texts(value)
        if not right:
            wanted = (
                "a list of objects with 'segments' and a finite 'score'" if chosen == "n_best" else "a list of texts"
            )
            raise DataError(f"{where}:{number}: {chosen!r} is {value!r:.60}, wanted {wanted}")
    return records, chosen


def _is_hypothesis(entry: Any) -> bool:
    return isinstance(entry, dict) and _texts(entry.get("segments")) and fits(entry.get("score", 0.0), float)


def _texts(value: Any) -> bool:
    """Whether this is a list of texts that UTF-8 can encode; a lone surrogate cannot."""
    return isinstance(value, Sequence) and not isinstance(value, str) and all(fits(item, str) for item in value)
