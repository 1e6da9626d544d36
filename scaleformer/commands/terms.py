"""Are requested terms used? Tests words of the test split that the training split translates in two ways.

scaleformer terms checkpoint=RUN data=jsonl data.path=DIR [count=300] [ask=other]

Each word is requested as in the reference, or in the other way, with two segments on either side. Prints and writes the
share of requested forms without and with the term, BLEU likewise, and how many segments without a term changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scaleformer.decoding.config import choose_decoding
from scaleformer.evaluation.corpus import choose_corpus
from scaleformer.evaluation.terminology import Ask, find_required, score_terms, two_ways
from scaleformer.evaluation.translation_run import provenance_of, results_folder
from scaleformer.system.files import check_file
from scaleformer.system.provenance import write_result
from scaleformer.system.schema import Positive
from scaleformer.translation.translator import Translator


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/terms.yaml describes them."""

    checkpoint: str
    count: Positive
    ask: Ask
    split: str
    output: str | None
    device: str
    threads: Positive | None
    seed: int
    decoding: dict[str, Any]
    data: dict[str, Any] | None = None


def main(options: Options, given: Sequence[str]) -> None:
    check_file("output", options.output)
    translator = Translator.load(options.checkpoint, options.device)
    decoding = choose_decoding(translator.decoding, options.decoding, given)
    train, test = (
        choose_corpus(translator.config, options.data, split).source.read() for split in ("train", options.split)
    )
    required = find_required(test, two_ways(train), options.count, options.ask)
    score = score_terms(translator, required, decoding)
    path = Path(options.output or results_folder(translator.path) / f"terms-{options.ask}-{options.split}.json")
    payload = provenance_of(translator)
    conditions = {"kind": "terms", "ask": options.ask, "split": options.split, "required": options.count}
    pieces = translator.source_tokenizer.has_terms
    write_result(path, {**payload, **conditions, "annotated": pieces, "scores": asdict(score)})
    print(f"{score.terms:,} terms, {score.words:,} words, requested as the {options.ask}")
    print(f"requested form: {score.before:.1%} without, {score.after:.1%} with ({score.inflected:.1%} with endings)")
    print(f"BLEU: {score.bleu_before:.2f} without terms, {score.bleu_after:.2f} with")
    print(f"segments without a term: {score.changed:,} of {score.others:,} changed")
    print(f"written to {path}")
