"""Score what only earlier segments decide: pronouns and terms of the synthetic corpus, or your own examples.

scaleformer context checkpoint=RUN [input=EXAMPLES.jsonl] [context=0] [segments=[32,32] max_distance=16]
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scaleformer.checkpoints.run_config import trained_mode
from scaleformer.data.config import DataConfig
from scaleformer.data.sources import SPLITS
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.decoding.config import DecodingConfig, Mode, choose_decoding
from scaleformer.evaluation.context.contrastive import ContextDocument, context_report
from scaleformer.evaluation.context.examples import contrastive_documents, labelled_documents, read_contrastive
from scaleformer.evaluation.translation_run import provenance_of, results_folder
from scaleformer.system.bars import translation_bars
from scaleformer.system.files import atomic_writer, check_folder
from scaleformer.system.provenance import write_result
from scaleformer.system.schema import Natural, Positive, from_mapping
from scaleformer.system.tables import print_rows
from scaleformer.translation.translator import Translator


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/context.yaml describes them."""

    checkpoint: str
    input: str | None
    split: str
    documents: Positive
    segments: tuple[int, int] | None
    max_distance: Positive | None
    context: Natural | None
    contrastive: bool
    generative: bool
    mode: Mode | None
    output: str | None
    device: str
    threads: Positive | None
    decoding: dict[str, Any]


def main(options: Options, given: Sequence[str]) -> None:
    translator = Translator.load(options.checkpoint, options.device)
    decoding = choose_decoding(translator.decoding, options.decoding, given)
    mode = options.mode or trained_mode(translator.config)
    documents, corpus = _documents(translator, options, decoding, given)
    with translation_bars() as bar:
        report = context_report(
            translator, documents, contrastive=options.contrastive, generative=options.generative,
            context=options.context, mode=mode, decoding=decoding, progress=bar,
        )  # fmt: skip
    name = f"context-{options.split}"
    if options.input is not None:
        stem = Path(options.input).name.split(".")[0]
        name = f"context-{f'{Path(options.input).resolve().parent.name}-' if stem in SPLITS else ''}{stem}"
    name += "" if options.context is None else f"-context{options.context}"
    name += "" if mode == trained_mode(translator.config) else f"-{mode}"
    folder = Path(str(options.output or results_folder(translator.path)))
    check_folder(folder)
    conditions = provenance_of(translator)
    settings = {"kind": "context", "mode": mode, "decoding": {**asdict(decoding), "match_segments": True, "n_best": 1}}
    payload = {**conditions, **settings, "corpus": corpus, "documents": len(documents), **report.to_dict()}
    path = write_result(folder / f"{name}.json", payload)
    with atomic_writer(folder / f"{name}.jsonl") as file:
        file.writelines(json.dumps(asdict(outcome), ensure_ascii=False) + "\n" for outcome in report.outcomes)
    seen = "all segments before" if report.context is None else f"{report.context} segments before"
    print_rows(f"{len(documents)} documents, with {seen}", [asdict(score) for score in report.scores], 2)
    print(f"written to {path}")


def _documents(
    translator: Translator, options: Options, decoding: DecodingConfig, given: Sequence[str]
) -> tuple[list[ContextDocument], dict[str, Any]]:
    """The documents to score, and their origin."""
    if options.input is not None:
        name = options.input
        corpus = ("split", "documents", "segments", "max_distance")
        if ignored := [k for k in corpus if any(o.startswith(f"{k}=") for o in given)]:
            raise ValueError(
                f"{', '.join(ignored)}: only for the synthetic corpus, and input={name} is used whole: leave out"
            )
        return contrastive_documents(read_contrastive(name), translator, decoding), {"input": name}
    run = translator.config.get("data")
    data = from_mapping(DataConfig, run, "data") if isinstance(run, dict) else None
    if data is None or data.format != "synthetic":
        raise ValueError(
            "the corpus of the run has no labels (only the synthetic one does): give examples with input=FILE.jsonl"
        )
    requested = {"segments": options.segments, "max_distance": options.max_distance}
    changed = {name: value for name, value in requested.items() if value is not None}
    synthetic = from_mapping(SyntheticConfig, {**asdict(data.synthetic), **changed}, "")
    documents = labelled_documents(generate(synthetic, options.split, options.documents))
    return documents, {"where": "synthetic", "split": options.split, "synthetic": asdict(synthetic)}
