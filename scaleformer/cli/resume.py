"""The command line of `resume=RUN`: that of the original start, followed by the new arguments."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from scaleformer.cli.line import SWEEP, flag_value, last_value, quoted, split_flags
from scaleformer.training.resume import OVERRIDES, RECORD, last_checkpoint, merge_overrides, refuse_held
from scaleformer.training.run_folder import is_claimed, is_finished

CONFIG_PATH, CONFIG_NAME, CONFIG_DIR = ("--config-path", "-cp"), ("--config-name", "-cn"), ("--config-dir", "-cd")
RUNS = Path("runs")  # / experiment / time, as conf/config.yaml has it


def resumed_arguments(arguments: list[str]) -> list[str]:
    """The command line of `resume=RUN`: the overrides that started RUN, then the new ones. The run continues in RUN
    unless the command line sets another hydra.run.dir. `resume=auto` is the run in hydra.run.dir if given, else the
    newest unfinished run of the experiment in runs/; if none has a checkpoint, a new run begins. Arguments without
    resume= are returned unchanged. Raises ValueError where RUN is not a run directory, where hydra.run.dir is one but
    nothing is resumed, where several processes would each make their own folder, and for resume=auto in a sweep."""
    chosen = last_value(arguments, "resume")
    folder = last_value(arguments, "hydra.run.dir")
    sweep = any(word in SWEEP for word in arguments)
    other = "hydra.run.dir" if sweep else "hydra.sweep.dir"
    if last_value(arguments, other) is not None and "LOCAL_RANK" not in os.environ:  # Lightning gives a process both
        wanted = "hydra.sweep.dir is that of a sweep" if sweep else "without -m, hydra.run.dir is that of the run"
        raise ValueError(f"{other}: has no effect here: {wanted}")
    if chosen == "" or (chosen == "auto" and sweep):
        why = "is empty" if chosen == "" else "would be one run in all jobs of a sweep"
        raise ValueError(f"resume={chosen}: {why}: give the folder of a run, as in resume=RUN")
    if chosen == "auto":
        arguments = [argument for argument in arguments if not argument.startswith("resume=")]
        found = unfinished_run(last_value(arguments, "experiment") or "default", folder)
        chosen = None if found is None else str(found)
        if found is not None:
            arguments = [*arguments, f"resume={quoted(str(found))}"]
    if chosen in (None, "null"):
        if folder is None and int(os.environ.get("WORLD_SIZE") or os.environ.get("SLURM_NTASKS") or 1) > 1:
            raise ValueError("several processes were started (torchrun, srun): set their folder with hydra.run.dir=RUN")
        if folder is not None and Path(folder).exists() and not Path(folder).is_dir():
            raise ValueError(f"hydra.run.dir={folder}: is a file: name a folder for the run")
        if folder is not None:
            refuse_held(Path(folder))
        return arguments
    run = Path(str(chosen))
    saved = run / OVERRIDES
    try:
        before = yaml.safe_load(saved.read_text(encoding="utf-8")) or []
        if not isinstance(before, list) or not all(isinstance(override, str) for override in before):
            raise ValueError(f"{saved} is not a list of overrides")
        if not list(run.glob("checkpoints/*.ckpt")):
            raise ValueError("it ended before its first checkpoint: start it as before")
        last_checkpoint(run)
    except (OSError, yaml.YAMLError, ValueError) as error:
        what = f"{saved} is missing" if not saved.is_file() else " ".join(str(error).split())
        if run.suffix == ".ckpt":
            what = f"give the folder of the run, not a checkpoint: resume={run.parent.parent}"
        raise ValueError(f"resume={run}: no run to resume ({what})") from error
    flags, arguments = split_flags(arguments)
    place = [] if folder is not None else [f"hydra.run.dir={quoted(str(run))}"]
    return [*_composed_from(run, flags, arguments), *merge_overrides([*before, *arguments]), *place]


def unfinished_run(experiment: str, folder: str | None = None) -> Path | None:
    """The run in `folder`, else the newest run of the experiment, with a checkpoint and unfinished; None if there is
    none. Skips runs that a training is using."""
    if folder is not None:
        return Path(folder) if list(Path(folder).glob("checkpoints/*.ckpt")) else None
    runs = [path.parent.parent for path in (RUNS / experiment).glob("*/checkpoints/*.ckpt")]
    newest = sorted(set(runs), key=lambda run: (max(p.stat().st_mtime for p in run.glob("checkpoints/*.ckpt")), run))
    for run in reversed(newest):
        if (run / OVERRIDES).is_file() and not is_finished(run) and not is_claimed(run):
            return run
    return None


def _composed_from(run: Path, flags: list[str], given: list[str]) -> list[str]:
    """The flags and the search path that the run was composed with, unless new ones are given.

    A run started from the config.yaml of another run is composed from its own, which is the same.
    """
    try:
        record = yaml.safe_load((run / RECORD).read_text(encoding="utf-8"))["hydra"]
        runtime, name = record["runtime"], record["job"]["config_name"]
        extra = {s["provider"]: s["path"] for s in runtime["config_sources"]}.get("command-line")
        paths = [
            f"pkg://{s['path']}" if s["schema"] == "pkg" else f"file://{Path(runtime['cwd'], s['path'])}"
            for s in runtime["config_sources"]
            if s["provider"] == "hydra.searchpath in command-line"
        ]
        composed = "experiment" in runtime["choices"]  # from the groups of conf/
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return flags
    found = [*flags]
    if flag_value(flags, *CONFIG_NAME, *CONFIG_PATH) is None:
        if not composed:
            found += ["--config-path", str(run.resolve()), "--config-name", "config"]
        elif name != "config":
            found += ["--config-name", name]
    if extra is not None and flag_value(flags, *CONFIG_DIR) is None:
        found += ["--config-dir", extra]
    if paths and last_value(given, "hydra.searchpath") is None:
        found.append(f"hydra.searchpath=[{','.join(map(quoted, paths))}]")
    return found
