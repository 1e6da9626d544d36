"""Evaluate models on documents of many lengths, beyond those of their training.

scaleformer extrapolation checkpoint=RUN [lengths=[256,512,1024,2048,4096]] [modes=[pass]]
scaleformer extrapolation checkpoint=[RUN1,RUN2,RUN3] names=[a,b,c] output=DIR [segments=[1,8,32,100]]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from scaleformer.decoding.config import choose_decoding
from scaleformer.evaluation.corpus import choose_corpus, file_name
from scaleformer.evaluation.length.documents import TestText, choose_lengths, default_lengths, parse_lengths
from scaleformer.evaluation.length.extrapolation import FORMAT, Cache, Protocol, System, default_window, measure_all
from scaleformer.evaluation.length.report import assemble
from scaleformer.evaluation.length.tables import print_tables
from scaleformer.evaluation.length.views import Unit, ViewMode, Window
from scaleformer.evaluation.metrics import choose_metrics
from scaleformer.evaluation.translation_run import results_folder
from scaleformer.report.extrapolation import plot_quality
from scaleformer.report.names import run_names
from scaleformer.system.bars import translation_bar
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import Natural, NonEmpty, Positive, listed
from scaleformer.translation.translator import Translator


@dataclass(frozen=True)
class WindowOptions:
    """The group `window`."""

    unit: Unit | None
    size: Positive | None
    context: Natural | None


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/extrapolation.yaml describes them."""

    checkpoint: str | tuple[str, ...]
    names: str | tuple[str, ...] | None
    lengths: Any
    segments: Any
    modes: ViewMode | NonEmpty[ViewMode]
    window: WindowOptions
    documents: Positive | None
    max_documents: Positive | None
    split: str
    metrics: dict[str, Any]
    loss: bool
    decode: bool
    bootstrap_samples: Natural
    randomization_trials: Natural
    loss_tokens: Positive
    output: str | None
    device: str
    threads: Positive | None
    seed: int
    decoding: dict[str, Any]
    data: dict[str, Any] | None = None


def main(options: Options, given: Sequence[str]) -> None:
    systems = _systems(options)
    first = systems[0].translator
    if options.output is None and len(systems) > 1:
        raise ValueError("several systems: set output=DIR for their results")
    output = Path(str(options.output or results_folder(first.path)))
    corpus = choose_corpus(first.config, options.data, options.split)
    protocol = _protocol(systems, options, given, corpus.language)
    text = TestText.of(
        list(islice(corpus.source.read(), options.max_documents)), first.source_tokenizer, first.target_tokenizer
    )
    specs = parse_lengths(listed(options.lengths), listed(options.segments), systems[0].trained)
    chosen = bool(specs)
    if not chosen and systems[0].trained is None:
        raise ValueError("the checkpoint does not give the length of its training examples: set lengths or segments")
    if not chosen and systems[0].trained is not None:
        specs = default_lengths(systems[0].trained)
    sets, left_out = choose_lengths(text, specs, chosen, options.documents, options.seed)
    name = "extrapolation" if corpus.own_test else f"extrapolation-{corpus.label}"
    folder = output / name
    measurements = measure_all(systems, sets, protocol, Cache(folder / "cache"), translation_bar)
    trials = options.bootstrap_samples, options.randomization_trials
    found = assemble(measurements, sets, text, protocol.metrics, folder, *trials)
    signatures = {s["metric"]: s["signature"] for r in found["results"] if r["decode"] for s in r["decode"]["scores"]}
    path, sha256, parent = (first.path, first.sha256, first.parent) if len(systems) == 1 else (None, None, None)
    payload = {
        **provenance(first.device, options.seed, path, sha256, signatures, parent),
        "format": FORMAT,
        "corpus": {**corpus.to_dict(), "documents": len(text.ids), "segments": len(text)},
        "settings": {
            "modes": list(protocol.modes),
            "metrics": asdict(protocol.metrics),
            "decoding": asdict(protocol.decoding),
            "documents": options.documents,
            "window": asdict(protocol.window) if protocol.window else None,
            "loss": protocol.loss,
            "decode": protocol.decode,
        },
        "systems": [system.to_dict() for system in systems],
        "left_out": left_out,
        **found,
    }
    written = write_result(output / f"{name}.json", payload)
    plot_quality(payload, output / f"{name}.png")
    print_tables(payload)
    print(f"written to {written}")


def _systems(options: Options) -> list[System]:
    paths = [str(path) for path in listed(options.checkpoint)]
    if not paths:
        raise ValueError("checkpoint=[]: wanted at least one")
    names = [str(name) for name in listed(options.names)] or run_names([Path(path) for path in paths])
    if len(names) != len(paths):
        raise ValueError(f"names: {len(names)} names for {len(paths)} checkpoints")
    if len({file_name(name) for name in names}) < len(names):
        raise ValueError(f"names={names}: two systems have the same name: set names=[...]")
    return [System(name, Translator.load(path, options.device)) for name, path in zip(names, paths, strict=True)]


def _protocol(systems: list[System], options: Options, given: Sequence[str], language: str | None) -> Protocol:
    first = systems[0]
    run = replace(first.translator.decoding, strategy="greedy", n_best=1)
    return Protocol(
        decoding=choose_decoding(run, options.decoding, given),
        modes=tuple(listed(options.modes)),
        window=_window(first.trained, options.window),
        loss=options.loss,
        decode=options.decode,
        metrics=choose_metrics(first.translator.config, options.metrics, given, language),
        loss_tokens=options.loss_tokens,
    )


def _window(trained: tuple[Unit, int] | None, settings: WindowOptions) -> Window | None:
    window = default_window(trained)
    if settings.size is None and settings.unit is not None:
        raise ValueError(f"window.unit={settings.unit}: needs a size: set window.size too")
    if settings.size is None:
        if settings.context is not None and window is not None:
            window = replace(window, context=settings.context)
        return window
    unit = settings.unit or (window.unit if window else "tokens")
    return Window(unit, settings.size, settings.size // 2 if settings.context is None else settings.context)
