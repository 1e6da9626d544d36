"""A run from its settings to its scores: check, build, fit, evaluate."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
from rich.console import Console

from scaleformer.checkpoints.lightning_io import SafeCheckpointIO
from scaleformer.checkpoints.model_file import LoadedModel, load_origin
from scaleformer.checkpoints.package import make_package, read_tokenizers
from scaleformer.checkpoints.run_config import from_here, trained_mode
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.quality.training import corpus_warnings
from scaleformer.data.report import DataReport
from scaleformer.data.several import data_module
from scaleformer.model.adapter import add_adapters
from scaleformer.model.transformer import Transformer
from scaleformer.report.curves import plot_learning_curves
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import Interrupted
from scaleformer.system.provenance import provenance, write_result
from scaleformer.training.callbacks import build_callbacks
from scaleformer.training.carried_memory import check_consecutive
from scaleformer.training.emphasis import Emphasis
from scaleformer.training.freezing import freeze
from scaleformer.training.guard import StepGuard
from scaleformer.training.initialization import (
    check_tokenizers,
    extend_parent,
    inherited,
    load_parent,
    origin_of,
    shut_gates,
    tokenizer_settings,
    transfer_weights,
)
from scaleformer.training.interruption import SignalWatch
from scaleformer.training.loggers import build_loggers, log_results, start_loggers
from scaleformer.training.module import TranslationModule
from scaleformer.training.readiness import check_lengths, check_searches, fingerprints, prepare
from scaleformer.training.resume import candidates, check_settings, open_checkpoint, record_overrides, refuse_held
from scaleformer.training.run_folder import FINISHED, claimed, write_config, write_environment, write_status
from scaleformer.training.run_results import evaluate_test_split, results_of
from scaleformer.training.saving import BestCheckpoint
from scaleformer.training.settings import Settings, read_settings
from scaleformer.training.stages import stage_notes
from scaleformer.training.trainer import build_trainer, fast_precision, fit, quieten


@dataclass(frozen=True)
class Run:
    """The parts of a training.

    checkpoint  to resume from, at `step`; None for a new run, which begins at step 0
    notes       lines for the user on the initial weights and the frozen ones
    """

    directory: Path
    config: Mapping[str, Any]
    settings: Settings
    checkpoint: Path | None
    step: int
    data: DocumentDataModule
    loggers: list[Any]
    trainer: pl.Trainer
    module: TranslationModule
    notes: list[str]


@dataclass(frozen=True)
class Start:
    """How the command line started a run; recorded in its folder.

    runs       the folder in which a repetition of the run would get its own
    overrides  of the command line; a resume starts with them
    record     Hydra's record of the start
    """

    runs: str
    overrides: Sequence[str]
    record: Mapping[str, Any]


def run(config: Mapping[str, Any], start: Start | None = None) -> float | None:
    """Train and evaluate. Returns the best value of `callbacks.checkpoint.monitor`, None without a validation. Wrong
    input is reported before the first step.

    config  the whole configuration, plain keys and values; `run_dir` is the folder of the run

    Raises ValueError for wrong settings and data, and `Interrupted` after a signal, when everything is saved.
    """
    quieten()
    with SignalWatch() as signals:
        # the config.yaml of a run, which is not composed of groups, gives all
        defaults = start is not None and "experiment" in start.record["hydra"]["runtime"]["choices"]
        parts = build(config, signals, start.overrides if start is not None and defaults else None)
        if not parts.trainer.is_global_zero:
            _fit(parts)
            return None
        report = examine(parts)
        with claimed(parts.directory):
            refuse_held(parts.directory, parts.checkpoint)  # another one may have begun and ended since
            start_loggers(parts.loggers, dict(parts.config))
            record(parts, start)
            with _status(parts, signals):
                write_counts(parts, report)
                train(parts)
                evaluate(parts)
    return best_value(parts)


def best_value(parts: Run) -> float | None:
    """The best value of the monitored metric, from best.ckpt; None without a validation."""
    best = next(c for c in parts.trainer.callbacks if isinstance(c, BestCheckpoint))  # type: ignore[attr-defined]
    return None if best.best_model_score is None else float(best.best_model_score)


def build(config: Mapping[str, Any], signals: SignalWatch, given: Sequence[str] | None = None) -> Run:
    """Build and check all parts of a training; writes nothing into the folder of the run.

    given  overrides of the command line: with `init_from` all other sizes are those of the parent. None: all is given
    """
    settings = read_settings(config)
    directory = Path(settings.run_dir)
    checkpoint, package = open_checkpoint(settings.resume) if settings.resume else (None, None)
    refuse_held(directory, checkpoint)
    if config["trainer"]["precision"] == "auto":  # a run goes on with what it began with, on whatever machine
        precision = (
            package["config"]["trainer"]["precision"] if package else fast_precision(config["trainer"]["accelerator"])
        )
        config = {**config, "trainer": {**config["trainer"], "precision": precision}}
    parent: LoadedModel | None = None
    notes: list[str] = []
    if package is not None:
        config = {**config, "data": from_here(config["data"], package["config"])}
        if settings.init_from:  # the parent may be gone: its sizes are those of the run
            config, _ = inherited(config, package["model"], package["config"]["tokenizer"], given)
            config, _ = shut_gates(config, package["model"]["attention"].get("shut", False), given)
        check_settings(package, config)
    elif settings.init_from:
        parent = load_parent(settings.init_from)
        config, notes = inherited(config, asdict(parent.model.config), tokenizer_settings(parent), given)
        config, shut = shut_gates(config, trained_mode(parent.config) == "segment", given)
        notes += shut
    settings = read_settings(config)
    check_searches(settings, given or () if package is None else ())  # older versions began runs with such settings
    step = 0 if package is None else package["step"]
    set_up_cpu(settings.threads)

    tokenizers = read_tokenizers(package) if package else None
    if parent is not None:
        check_tokenizers(parent, settings.tokenizer)
        if settings.tokenizer.extend is not None:
            parent, note = extend_parent(parent, settings.tokenizer)
            notes.append(note)
        tokenizers = parent.source_tokenizer, parent.target_tokenizer
    data = data_module(settings.data, settings.tokenizer, tokenizers)
    loggers = build_loggers(settings.logger, directory, None if package is None else step)
    files = SafeCheckpointIO()
    trainer = build_trainer(
        settings.trainer,
        callbacks=build_callbacks(settings.callbacks, directory, data, settings.seed, signals, settings.metrics),
        logger=loggers,
        plugins=[files],
    )
    notes += [*stage_notes(settings.data, trainer), *settings.schedule.notes(trainer)]
    prepare(data, settings)

    pl.seed_everything(settings.seed, verbose=False)
    model_config = replace(
        settings.model,
        source_vocabulary=data.source_tokenizer.vocab_size,
        target_vocabulary=data.target_tokenizer.vocab_size,
    )
    model = Transformer(model_config)
    check_consecutive(model, data, trainer.world_size)
    origin = package["parent"] if package is not None else None
    if package is not None and origin is not None:  # its path is relative to the folder where the run began
        origin = {**origin, "path": str(Path(package["config"].get("folder", ""), origin["path"]))}
    if parent is not None:
        origin = origin_of(parent)
        notes.append(f"init_from {parent.path}: {transfer_weights(parent, model).describe()}")
    if settings.adapter.rank:
        if parent is None:
            parent = load_origin(package or {}, settings.resume or "")
            transfer_weights(parent, model)
        frozen = add_adapters(model, parent.model.state_dict(), settings.adapter)
        files.kept = {f"model.{name}": tensor for name, tensor in frozen.items()}
    notes += freeze(model, settings.freeze)
    if settings.adapter.rank:
        free = sum(p.numel() for p in model.parameters() if p.requires_grad)
        notes.append(f"adapter.rank={settings.adapter.rank}: {free:,} parameters train, the parent's stay")
    emphasis = Emphasis(forms, data.target_tokenizer) if (forms := settings.emphasis.forms()) else None
    if emphasis is not None and not data.parts and not settings.data.streaming:
        notes += emphasis.notes(data.encoded("train").target)
    here = {**config, "folder": str(Path.cwd())}
    module = TranslationModule(
        model, make_package(model_config, here, data.source_tokenizer, data.target_tokenizer, origin),
        settings.optimizer, settings.schedule, settings.label_smoothing, StepGuard(settings.callbacks.max_bad_steps),
        settings.trainer["compile"] == "auto", emphasis, settings.emphasis.weight,
    )  # fmt: skip
    return Run(directory, config, settings, checkpoint, step, data, loggers, trainer, module, notes)


def train(parts: Run) -> None:
    """Fit, then record which data were read. Raises ValueError where no step was trained."""
    parameters = sum(p.numel() for p in parts.module.parameters())
    device, precision = parts.trainer.accelerator.__class__.__name__, parts.trainer.precision
    print(
        "\n".join([f"run {parts.directory}: {parameters:,} parameters on {device} in {precision}", *parts.notes]),
        flush=True,
    )
    try:
        _fit(parts)
    finally:
        with suppress(OSError):  # for a full disk, training itself has reported the error
            if (report := parts.data.trained_report) is not None:
                write_counts(parts, report)
    if parts.settings.callbacks.early_stopping.patience and best_value(parts) is None:
        warnings.warn("callbacks.early_stopping: training ended before its first validation", stacklevel=2)
    if not parts.trainer.global_step:
        given = {name: parts.config["trainer"].get(name) for name in ("max_time", "max_epochs", "limit_train_batches")}
        limits = ", ".join(f"trainer.{name}={value}" for name, value in given.items() if value is not None)
        raise ValueError(f"a limit ({limits}) was reached before the first step: raise it")


def _fit(parts: Run) -> None:
    fit(parts.trainer, parts.module, parts.data, parts.checkpoint, parts.directory)


def evaluate(parts: Run) -> None:
    """Plot the curves, translate the test split with the best checkpoint, and hand both to the loggers."""
    curves = plot_learning_curves(parts.directory)
    print(f"trained to step {parts.trainer.global_step:,}: {parts.directory}", flush=True)
    write_status(parts.directory, "evaluating", parts.trainer.global_step)
    evaluations = (
        evaluate_test_split(parts.settings, parts.directory, parts.data) if parts.settings.test.enabled else {}
    )
    results = results_of(evaluations, curves, parts.trainer.global_step)
    log_results(parts.loggers, results)


@contextmanager
def _status(parts: Run, signals: SignalWatch) -> Iterator[None]:
    """Record in status.json the step at which the block starts and how it ends; an interruption says how to resume."""

    def leave(state: str) -> None:
        with suppress(OSError):  # a full disk, for example, is reported already
            step = max(parts.trainer.global_step, parts.step)  # 0 before the checkpoint is read
            write_status(parts.directory, state, step)

    signals.ending = lambda: leave("interrupted")
    try:
        write_status(parts.directory, "training", parts.step)
        yield
    except Interrupted as error:
        leave("interrupted")
        if "resume=" in str(error) or not candidates(parts.directory):
            raise
        raise Interrupted(f"{error}: continue with resume={parts.directory}") from error
    except BaseException:
        leave("failed")
        raise
    write_status(parts.directory, FINISHED, parts.trainer.global_step)


def examine(parts: Run) -> DataReport:
    """The counts of the data. Raises ValueError for texts that the model cannot take."""
    parts.data.trainer = parts.trainer  # the report needs its processes before Lightning attaches it
    check_lengths(parts.module.model, parts.settings, parts.data)
    report = parts.data.report  # raises ValueError where data.overlong=error
    corpora = {}
    for name, part in (parts.data.parts or {"": parts.data}).items():  # splits that are not read may be missing
        read = fingerprints(part, parts.settings)
        corpora[name] = part.config, {split: part.sources[split] for split in read}
    report.leaks, lines = corpus_warnings(corpora)
    for line in lines:
        warnings.warn(line, stacklevel=2)
    return report


def record(parts: Run, start: Start | None) -> None:
    """Write the command line, the configuration and the environment into the run's folder."""
    if start is not None:
        record_overrides(parts.directory, start.overrides, start.record)
    write_config(parts.directory, parts.config, start.runs if start is not None else None)
    seeds = {"seed": parts.config["seed"], "data.seed": parts.config["data"]["seed"]}
    device, processes = parts.trainer.strategy.root_device, parts.trainer.world_size
    fingerprint, parent = fingerprints(parts.data, parts.settings), parts.module.package["parent"]
    write_environment(parts.directory, device, processes, seeds, fingerprint, parent)


def write_counts(parts: Run, report: DataReport) -> None:
    """Write a report of the data into the run's folder, and show it."""
    parent = parts.module.package["parent"]
    conditions = provenance(parts.trainer.strategy.root_device, parts.config["seed"], parent=parent)
    content = {**conditions, "fingerprint": fingerprints(parts.data, parts.settings), **report.to_dict()}
    write_result(parts.directory / "results" / "data.json", content)
    Console().print(report.table())
