"""The command line of `resume=RUN`: that which the run was started with, and what is given now."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import yaml

from scaleformer.training.resume import OVERRIDES, last_checkpoint, merge_overrides, refuse_held
from scaleformer.training.run_folder import is_claimed, is_finished

RUNS = Path("runs")  # / experiment / time, as conf/config.yaml has it


def resumed_arguments(arguments: list[str]) -> list[str]:
    """The command line of `resume=RUN`: the overrides that RUN was started with, then those given now.

    The run goes on in RUN unless the command line names another hydra.run.dir. `resume=auto` is the run in
    hydra.run.dir where that is given, else the newest of the experiment in runs/ that is not finished; where there is
    none with a checkpoint, a new run begins. Hydra is told not to write its record of overrides (`record_overrides`
    does, once they are known to be right). Arguments without resume= come back as they are.
    Raises ValueError where RUN is no run directory, where hydra.run.dir is one and nothing is resumed, and where
    several processes would each make a folder of their own.
    """
    chosen = _last_value(arguments, "resume")
    folder = _last_value(arguments, "hydra.run.dir")
    if chosen == "auto":
        arguments = [argument for argument in arguments if not argument.startswith("resume=")]
        found = unfinished_run(_last_value(arguments, "experiment") or "default", folder)
        chosen = None if found is None else str(found)
        if found is not None:
            arguments = [*arguments, f"resume={quoted(str(found))}"]
    if chosen in (None, "", "null"):
        if folder is None and int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS") or 1) > 1:
            raise ValueError("several processes were started (torchrun, srun): name their folder by hydra.run.dir=RUN")
        if folder is not None:
            refuse_held(Path(folder))  # before Hydra writes its record over that of the run
        return arguments
    run = Path(str(chosen))
    saved = run / OVERRIDES
    try:
        before = yaml.safe_load(saved.read_text(encoding="utf-8")) or []
        if not isinstance(before, list) or not all(isinstance(override, str) for override in before):
            raise ValueError(f"{saved} is no list of overrides")
        last_checkpoint(run)
    except (OSError, yaml.YAMLError, ValueError) as error:
        what = f"{saved} is missing" if not saved.is_file() else " ".join(str(error).split())
        if run.suffix == ".ckpt":
            what = f"wanted the folder of the run, not a checkpoint: resume={run.parent.parent}"
        raise ValueError(f"resume={run}: no run to go on with ({what})") from error
    flags, arguments = _split_flags(arguments)
    place = [] if folder is not None else [f"hydra.run.dir={quoted(str(run))}"]
    settings = [*merge_overrides([*before, *arguments]), *place, "hydra.output_subdir=null"]
    return [*(flags or _composed_from(run)), *settings]


def unfinished_run(experiment: str, folder: str | None = None) -> Path | None:
    """The run in `folder`, else the newest run of the experiment, that has a checkpoint and is not finished, None if
    there is none; runs in which a training is at work are left alone."""
    if folder is not None:
        return Path(folder) if list(Path(folder).glob("checkpoints/*.ckpt")) else None
    runs = [path.parent.parent for path in (RUNS / experiment).glob("*/checkpoints/*.ckpt")]
    newest = sorted(set(runs), key=lambda run: (max(p.stat().st_mtime for p in run.glob("checkpoints/*.ckpt")), run))
    for run in reversed(newest):
        if (run / OVERRIDES).is_file() and not is_finished(run) and not is_claimed(run):
            return run
    return None


def _last_value(arguments: Iterable[str], key: str) -> str | None:
    values = [unquoted(a.split("=", 1)[1]) for a in arguments if a.startswith(f"{key}=")]
    return values[-1] if values else None


def _split_flags(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Hydra's --config-path and --config-name with their values, and the rest, which has to follow them."""
    flags: list[str] = []
    rest = iter(arguments)
    others: list[str] = []
    for argument in rest:
        if argument in ("--config-path", "-cp", "--config-name", "-cn"):
            flags += [argument, next(rest, "")]
        else:
            (flags if argument.startswith("--config-") else others).append(argument)
    return flags, others


def _composed_from(run: Path) -> list[str]:
    """The flags with which a run was started from the config.yaml of another run: its own now, which is the same."""
    try:
        record = yaml.safe_load((run / ".hydra" / "hydra.yaml").read_text(encoding="utf-8"))
        choices = record["hydra"]["runtime"]["choices"]
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return []
    if "experiment" in choices:  # composed of the groups of conf/
        return []
    return ["--config-path", str(run.resolve()), "--config-name", "config"]


def quoted(value: str) -> str:
    """A value as the grammar of Hydra's command line wants it."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def unquoted(value: str) -> str:
    """The inverse of `quoted`, for either kind of quotes; other values as they are."""
    if len(value) < 2 or value[0] not in "'\"" or value[-1] != value[0]:
        return value
    return value[1:-1].replace("\\" + value[0], value[0]).replace("\\\\", "\\")
