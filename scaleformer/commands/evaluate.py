"""Translate a split and score it: d-BLEU, s-BLEU, chrF++, TER, each with its signature.

scaleformer evaluate checkpoint=RUN [data=jsonl data.path=DIR] [split=test]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from scaleformer.checkpoints.run_config import trained_mode
from scaleformer.decoding.config import MaxTokens, Mode, choose_decoding
from scaleformer.decoding.ensemble import Average
from scaleformer.evaluation.corpus import choose_corpora, training_split
from scaleformer.evaluation.evaluate import evaluate_translator
from scaleformer.evaluation.metrics import choose_metrics
from scaleformer.evaluation.translation_run import results_folder
from scaleformer.system.schema import Natural, Positive
from scaleformer.translation.request import Request
from scaleformer.translation.translator import Precision, Translator


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/evaluate.yaml describes them."""

    checkpoint: str | tuple[str, ...]
    ensemble: Average
    split: str
    metrics: dict[str, Any]
    ter: bool
    mode: Mode | None
    max_tokens: MaxTokens | None
    max_documents: Positive | None
    samples: Natural
    output: str | None
    device: str
    precision: Precision
    threads: Positive | None
    seed: int
    decoding: dict[str, Any]
    data: dict[str, Any] | None = None


def main(options: Options, given: Sequence[str]) -> None:
    if isinstance(options.checkpoint, tuple) and len(options.checkpoint) > 1 and options.output is None:
        raise ValueError("checkpoint= has several models: set output=FOLDER for their joint results")
    translator = Translator.load(options.checkpoint, options.device, None, options.ensemble, options.precision)
    decoding = choose_decoding(translator.decoding, options.decoding, given, seed=True)
    mode = options.mode or ("document" if options.max_tokens is not None else trained_mode(translator.config))
    for corpus in choose_corpora(translator.config, options.data, options.split):
        metrics = choose_metrics(translator.config, options.metrics, given, corpus.language)
        read = corpus.source.read()
        documents = list(islice(read, options.max_documents))
        if not documents:
            raise ValueError(f"{corpus.source.where}: no documents in the {options.split} split")
        sources, names = [document.source for document in documents], [document.id for document in documents]
        evaluate_translator(
            translator, documents, Request(sources, decoding, names, mode, options.max_tokens, corpus.tag),
            str(options.output or results_folder(translator.path)), split=options.split,
            partial=next(read, None) is not None, corpus=corpus.name, metrics=metrics, samples=options.samples,
            ter=options.ter, show_samples=False, training=training_split(translator.config, options.data),
            conditions={"corpus": corpus.to_dict()},
        )  # fmt: skip
