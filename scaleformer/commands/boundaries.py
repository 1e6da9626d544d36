"""Measure the cost of missing segment boundaries on one side of a document, in loss and d-BLEU.

scaleformer boundaries checkpoint=RUN [missing=tenth] [segments=8] [documents=100] [decode=false]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from rich.table import Table

from scaleformer.decoding.config import choose_decoding
from scaleformer.evaluation.context.boundaries import (
    LEAST,
    BoundaryLoss,
    JoinedLoss,
    Missing,
    boundary_losses,
    boundary_translations,
    joined_losses,
    missing_boundaries,
)
from scaleformer.evaluation.corpus import choose_corpus
from scaleformer.evaluation.length.documents import LengthSpec, TestText, make_length, parse_lengths
from scaleformer.evaluation.metrics import choose_metrics
from scaleformer.evaluation.translation_run import provenance_of, results_folder
from scaleformer.system.bars import translation_bars
from scaleformer.system.files import check_folder
from scaleformer.system.provenance import write_result
from scaleformer.system.schema import Natural, Positive, Range, listed
from scaleformer.system.tables import plain_table, print_table
from scaleformer.translation.translator import Translator


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/boundaries.yaml describes them."""

    checkpoint: str
    missing: Missing
    segments: Annotated[int, Range(ge=LEAST)] | None
    documents: Positive | None
    split: str
    metrics: dict[str, Any]
    decode: bool
    seed: Natural
    output: str | None
    device: str
    threads: Positive | None
    decoding: dict[str, Any]
    data: dict[str, Any] | None = None


def main(options: Options, given: Sequence[str]) -> None:
    translator = Translator.load(options.checkpoint, options.device)
    # the question is how many segments the model writes by itself
    greedy = replace(translator.decoding, strategy="greedy", n_best=1, match_segments=False)
    decoding = choose_decoding(greedy, options.decoding, given)
    corpus = choose_corpus(translator.config, options.data, options.split)
    metrics = choose_metrics(translator.config, options.metrics, given, corpus.language)
    text = TestText.of(list(corpus.source.read()), translator.source_tokenizer, translator.target_tokenizer)
    spec = parse_lengths(None, listed(options.segments), None) or [LengthSpec("document", None)]
    made = make_length(text, spec[0]).documents
    documents = list(islice((d for d in made if len(d.source) >= LEAST), options.documents))
    folder = Path(str(options.output or results_folder(translator.path)))
    check_folder(folder)
    rng = np.random.default_rng(options.seed)
    places = [missing_boundaries(len(document.source), options.missing, rng) for document in documents]
    losses: list[BoundaryLoss] | JoinedLoss
    with translation_bars() as bar:
        if options.missing == "one":
            losses = boundary_losses(translator, documents, progress=bar("scoring"))
        else:
            both = options.missing == "paragraphs"
            losses = joined_losses(translator, documents, places, both=both, progress=bar("scoring"))
        found = None
        if options.decode:
            found = boundary_translations(translator, documents, places, decoding, metrics, bar)
    signatures = {"d-BLEU": found.whole.signature} if found else {}
    parts = ["boundaries", corpus.label, options.missing if options.missing != "one" else "", options.segments]
    name = "-".join(str(part) for part in parts if part)
    payload = {
        **provenance_of(translator, signatures),
        "kind": "boundaries",
        "corpus": corpus.to_dict(),
        "metrics": asdict(metrics),
        "missing": options.missing,
        "draw_seed": options.seed,
        "segments": options.segments,
        "decoding": asdict(decoding) if found else None,
        "documents": len(documents),
        "left_out": sum(len(d.source) < LEAST for d in made),
        "losses": asdict(losses) if isinstance(losses, JoinedLoss) else [asdict(loss) for loss in losses],
        "translation": asdict(found) if found else None,
    }
    path = write_result(folder / f"{name}.json", payload)
    if isinstance(losses, JoinedLoss):
        print(
            f"{len(documents)} documents: {losses.whole:.3f} nats per token, {losses.source:.3f} without "
            f"{losses.boundaries:,} boundaries of the source"
        )
    else:
        print_table(_table(losses, len(documents)))
    if found:
        print(
            f"d-BLEU {found.whole.score:.2f}, with merged source segments {found.source.score:.2f} ({found.more} "
            f"translations with more segments than these, {found.fewer} with fewer)\n{found.whole.signature}"
        )
    print(f"{payload['left_out']} documents with fewer than {LEAST} segments left out\nwritten to {path}")


def _table(losses: Sequence[BoundaryLoss], documents: int) -> Table:
    title = f"{documents} documents: nats per token in the segments after two merged ones"
    table = plain_table(title, ("segments after",), ("tokens", "every <sep>", "source lacks one", "target lacks one"))
    for loss in losses:
        values = (f"{value:.3f}" for value in (loss.whole, loss.source, loss.target))
        table.add_row(loss.distance, f"{loss.tokens:,}", *values)
    return table
