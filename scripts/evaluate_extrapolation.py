"""Evaluate models on documents of many lengths, beyond those that they were trained on.

python scripts/evaluate_extrapolation.py checkpoint=RUN [lengths=[256,512,1024,2048,4096]] [modes=[pass]]
python scripts/evaluate_extrapolation.py checkpoint=[RUN1,RUN2,RUN3] names=[a,b,c] output=DIR [segments=[1,8,32,100]]
"""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from scaleformer.evaluation.corpus import choose_corpus
from scaleformer.evaluation.length.documents import TestText, choose_lengths, default_lengths, parse_lengths
from scaleformer.evaluation.length.extrapolation import FORMAT, Cache, Options, System, default_window, measure_all
from scaleformer.evaluation.length.report import assemble, file_name
from scaleformer.evaluation.length.tables import print_tables
from scaleformer.evaluation.length.views import Window
from scaleformer.evaluation.translation_run import results_folder
from scaleformer.report.extrapolation import plot_overview
from scaleformer.system.bars import translation_bar
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import NAME, one_line_errors, run_command
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import check_type, check_types, listed
from scaleformer.translation.config import choose_decoding
from scaleformer.translation.search import DecodingConfig
from scaleformer.translation.translator import Translator


@hydra.main(version_base="1.3", config_path="../conf", config_name="evaluate_extrapolation")
@one_line_errors()
def main(config: DictConfig) -> None:
    set_up_cpu(config.threads)
    check_types(config, split=str, metrics=str | None, output=NAME)
    check_types(config, loss=bool, decode=bool, loss_only=bool)
    check_types(config, documents=(int | None, 1), max_documents=(int | None, 1), loss_tokens=(int, 1), seed=int)
    check_types(config, bootstrap_samples=(int, 0), randomization_trials=(int, 0))
    systems = _systems(config)
    first = systems[0].translator
    if config.output is None and len(systems) > 1:
        raise ValueError("several systems: say where the results go with output=DIR")
    output = Path(str(config.output or results_folder(first.path)))
    options = _options(systems, config)
    data: Any = OmegaConf.to_container(config.data, resolve=True) if config.get("data") else None
    corpus = choose_corpus(first.config, data, config.split)
    text = TestText.of(
        list(islice(corpus.read(), config.max_documents)), first.source_tokenizer, first.target_tokenizer
    )
    specs = parse_lengths(listed(config.lengths), listed(config.segments), systems[0].trained)
    chosen = bool(specs)
    if not chosen and systems[0].trained is None:
        raise ValueError("the checkpoint does not say how long its training examples were: set lengths or segments")
    if not chosen and systems[0].trained is not None:
        specs = default_lengths(systems[0].trained)
    sets, left_out = choose_lengths(text, specs, chosen, config.documents, config.seed)
    folder = output / "extrapolation"
    measurements = measure_all(systems, sets, options, Cache(folder / "cache"), translation_bar)
    trials = config.bootstrap_samples, config.randomization_trials
    found = assemble(measurements, sets, text, options.metrics, folder, *trials)
    signatures = {s["metric"]: s["signature"] for r in found["results"] if r["decode"] for s in r["decode"]["scores"]}
    path, sha256 = (first.path, first.sha256) if len(systems) == 1 else (None, None)
    payload = {
        **provenance(first.device, config.seed, path, sha256, signatures),
        "format": FORMAT,
        "corpus": {
            "where": corpus.where,
            "split": config.split,
            "sha256": corpus.fingerprint(),
            "documents": len(text.ids),
            "segments": len(text),
        },
        "settings": {
            "modes": list(options.modes),
            "metrics": options.metrics,
            "decoding": asdict(options.decoding),
            "documents": config.documents,
            "window": asdict(options.window) if options.window else None,
            "loss": options.loss,
            "decode": options.decode,
        },
        "systems": [system.to_dict() for system in systems],
        "left_out": left_out,
        **found,
    }
    written = write_result(output / "extrapolation.json", payload)
    plot_overview(payload, output / "extrapolation.png")
    print_tables(payload)
    print(f"written to {written}")


def _systems(config: DictConfig) -> list[System]:
    paths = [str(path) for path in listed(config.checkpoint)]
    if not paths:
        raise ValueError("checkpoint=[]: wanted at least one")
    names = [str(name) for name in listed(config.names)] or [Path(path).resolve().name for path in paths]
    if len(names) != len(paths):
        raise ValueError(f"names: {len(names)} names for {len(paths)} checkpoints")
    if len({file_name(name) for name in names}) < len(names):
        raise ValueError(f"names={names}: two systems have one name: set names=[...]")
    return [System(name, Translator.load(path, config.device)) for name, path in zip(names, paths, strict=True)]


def _options(systems: list[System], config: DictConfig) -> Options:
    first = systems[0]
    overrides = list(HydraConfig.get().overrides.task)
    run = replace(first.translator.decoding, strategy="greedy", n_best=1)
    decoding: DecodingConfig = choose_decoding(run, dict(config.decoding), overrides)
    modes = tuple(str(mode) for mode in listed(config.modes))
    test = first.translator.config.get("test") or {}
    return Options(
        decoding=decoding,
        modes=modes,
        window=_window(first.trained, config.window),
        loss=config.loss,
        decode=config.decode and not config.loss_only,
        metrics=config.metrics or test.get("metrics", "default"),
        loss_tokens=config.loss_tokens,
    )


def _window(trained: tuple[str, int] | None, settings: DictConfig) -> Window | None:
    if not OmegaConf.is_dict(settings):
        raise ValueError(f"window={settings}: it has parts, set window.size, window.context and window.unit")
    for name in ("size", "context"):
        check_type(f"window.{name}", settings[name], int | None)
    window = default_window(trained)
    if settings.size is None and settings.unit is not None:
        raise ValueError(f"window.unit={settings.unit}: says nothing without a size, set window.size too")
    if settings.size is None:
        if settings.context is not None and window is not None:
            window = replace(window, context=settings.context)
        return window
    unit = settings.unit or (window.unit if window else "tokens")
    return Window(unit, settings.size, settings.size // 2 if settings.context is None else settings.context)


if __name__ == "__main__":
    run_command(main)
