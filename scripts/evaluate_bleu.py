"""Translate a split and score it: d-BLEU, s-BLEU, chrF++, TER, each with its signature.

python scripts/evaluate_bleu.py checkpoint=RUN [data=jsonl data.path=DIR] [split=test]
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from scaleformer.evaluation.corpus import choose_corpus
from scaleformer.evaluation.final import evaluate_translations
from scaleformer.evaluation.translation_run import results_folder
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import NAME, one_line_errors, run_command
from scaleformer.system.schema import check_types
from scaleformer.translation.config import choose_decoding
from scaleformer.translation.translator import Translator


@hydra.main(version_base="1.3", config_path="../conf", config_name="evaluate_bleu")
@one_line_errors()
def main(config: DictConfig) -> None:
    set_up_cpu(config.threads)
    check_types(config, split=str, metrics=str | None, ter=bool, output=NAME)
    check_types(config, max_tokens=int | None, max_documents=(int | None, 1), samples=(int, 0))
    translator = Translator.load(str(config.checkpoint), config.device)
    # `seed` is that of the samples: a setting of the run itself like all of `decoding` unless it is given
    given = [f"decoding.{o}" if o.startswith("seed=") else o for o in HydraConfig.get().overrides.task]
    decoding = choose_decoding(translator.decoding, dict(config.decoding), given)
    settings: Any = OmegaConf.to_container(config.data, resolve=True) if config.get("data") else None
    corpus = choose_corpus(translator.config, settings, config.split)
    documents = list(islice(corpus.read(), config.max_documents))
    if not documents:
        raise ValueError(f"{corpus.where}: no documents in the {config.split} split")
    evaluate_translations(
        translator,
        documents,
        decoding,
        str(config.output or results_folder(translator.path)),
        split=config.split,
        metrics=config.metrics or (translator.config.get("test") or {}).get("metrics", "default"),
        samples=config.samples,
        ter=config.ter,
        mode=config.mode,
        max_tokens=config.max_tokens,
        show_samples=False,
        conditions={"corpus": {"where": corpus.where, "sha256": corpus.fingerprint()}},
    )


if __name__ == "__main__":
    run_command(main)
