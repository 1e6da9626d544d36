"""What it costs that one side of a document lacks a segment boundary, in loss by distance and in d-BLEU.

python scripts/evaluate_boundaries.py checkpoint=RUN [segments=8] [documents=100] [decode=false]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from scaleformer.evaluation.context.boundaries import (
    LEAST,
    BoundaryLoss,
    BoundaryTranslation,
    boundaries_to_dict,
    boundary_losses,
    boundary_translations,
)
from scaleformer.evaluation.corpus import choose_corpus
from scaleformer.evaluation.length.documents import LengthSpec, TestText, make_length, parse_lengths
from scaleformer.evaluation.scores import preset
from scaleformer.evaluation.translation_run import results_folder
from scaleformer.system.bars import translation_bars
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import NAME, one_line_errors, run_command
from scaleformer.system.files import check_folder
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import check_types, listed
from scaleformer.translation.config import choose_decoding
from scaleformer.translation.translator import Translator


@hydra.main(version_base="1.3", config_path="../conf", config_name="evaluate_boundaries")
@one_line_errors()
def main(config: DictConfig) -> None:
    set_up_cpu(config.threads)
    check_types(config, split=str, metrics=str | None, output=NAME)
    check_types(config, decode=bool, documents=(int | None, 1), segments=(int | None, LEAST))
    translator = Translator.load(str(config.checkpoint), config.device)
    greedy = replace(translator.decoding, strategy="greedy", n_best=1)
    decoding = choose_decoding(greedy, dict(config.decoding), list(HydraConfig.get().overrides.task))
    metrics = config.metrics or (translator.config.get("test") or {}).get("metrics", "default")
    data: Any = OmegaConf.to_container(config.data, resolve=True) if config.get("data") else None
    corpus = choose_corpus(translator.config, data, config.split)
    text = TestText.of(list(corpus.read()), translator.source_tokenizer, translator.target_tokenizer)
    spec = parse_lengths(None, listed(config.segments), None) or [LengthSpec("document", None)]
    made = make_length(text, spec[0]).documents
    documents = list(islice((d for d in made if len(d.source) >= LEAST), config.documents))
    folder = Path(str(config.output or results_folder(translator.path)))
    check_folder(folder)
    with translation_bars() as bar:
        losses = boundary_losses(translator, documents, progress=bar("scoring"))
        found = boundary_translations(translator, documents, decoding, preset(metrics), bar) if config.decode else None
    signatures = {"d-BLEU": found.whole.signature} if found else {}
    name = f"boundaries-{config.split}" + (f"-{config.segments}" if config.segments else "")
    payload = {
        **provenance(translator.device, translator.config.get("seed"), translator.path, translator.sha256, signatures),
        "kind": "boundaries",
        "corpus": {"where": corpus.where, "split": config.split, "sha256": corpus.fingerprint()},
        "segments": config.segments,
        "decoding": asdict(decoding) if found else None,
        "documents": len(documents),
        "left_out": sum(len(d.source) < LEAST for d in made),
        **boundaries_to_dict(losses, found),
    }
    path = write_result(folder / f"{name}.json", payload)
    console = Console()
    console.print(_table(losses, len(documents)))
    if found:
        console.print(_in_words(found), highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"{payload['left_out']} documents of fewer than {LEAST} segments left out\nwritten to {path}",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip


def _table(losses: Sequence[BoundaryLoss], documents: int) -> Table:
    title = f"{documents} documents: nats a token in the segments after two that run together"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for column in ("segments after", "tokens", "every <sep>", "source lacks one", "target lacks one"):
        table.add_column(column, justify="left" if column == "segments after" else "right")
    for loss in losses:
        values = (f"{value:.3f}" for value in (loss.whole, loss.source, loss.target))
        table.add_row(loss.distance, f"{loss.tokens:,}", *values)
    return table


def _in_words(found: BoundaryTranslation) -> str:
    return (
        f"d-BLEU {found.whole.score:.2f}, with two segments of the source run together {found.source.score:.2f} "
        f"({found.more} translations with more segments than that, {found.fewer} with fewer)\n{found.whole.signature}"
    )


if __name__ == "__main__":
    run_command(main)
