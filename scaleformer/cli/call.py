"""From a command line to a command: Hydra composes the settings, which are checked and handed over."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Container, Sequence
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from scaleformer.cli.command import CONF, config_of, module_of, names_of, options_of, usage_of
from scaleformer.cli.line import SWEEP, last_value, refuse_words, split_flags, typed
from scaleformer.cli.sweep import Jobs
from scaleformer.cli.unknown import unknown_override
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.display import show_page
from scaleformer.system.errors import one_line_errors, wants_traceback
from scaleformer.system.provenance import remember_command


def call(name: str, arguments: list[str], words: Sequence[str] = ()) -> None:
    """Run a command. Wrong input ends it with one line and exit code 1."""
    if {"-h", "--help"} & set(arguments):
        from scaleformer.cli.help import describe

        show_page(describe(name))
        return
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"  # type: ignore[assignment]
    if not wants_traceback():
        # Hydra would print its own report of several lines. The second variable tells other processes of this run that
        # we have set the first.
        os.environ.update(HYDRA_FULL_ERROR="1", SCALEFORMER_ONE_LINE="1")
    with one_line_errors():
        module = module_of(name)
        remember_command([*words, *arguments])
        flags, overrides = split_flags(arguments)
        refuse_words(flags, overrides, usage_of(module))
        sweep = any(word in SWEEP for word in arguments)
        arguments = [*flags, *(typed(override, names_of(module), sweep) for override in overrides)]
        if hasattr(module, "rewrite"):
            arguments = module.rewrite(arguments)
        kept = existing_folders(last_value(arguments, "hydra.run.dir"))
        OmegaConf.register_new_resolver("new_folder", new_folder, use_cache=True, replace=True)
        program = sys.argv[0]
        sys.argv = [program, *arguments]  # Hydra reads these

        jobs = Jobs()

        @one_line_errors()
        def task(config: DictConfig) -> Any:
            sys.argv = [program, *words, *arguments]  # Lightning starts the processes of other devices with these
            try:
                return jobs.run(lambda: execute(module, config, list(HydraConfig.get().overrides.task)), config)
            finally:
                remove_empty(Path(HydraConfig.get().runtime.output_dir), kept)

        try:
            with jobs:
                hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_of(name))(task)()
        except HydraException as error:
            if (text := unknown_override(error, names_of(module))) is not None:
                raise ValueError(text) from error
            raise


def new_folder(name: str) -> str:
    """Make a folder, NAME_2 and so on where there is one of that name: runs that start in one second have one each."""
    for number in count(1):
        path = Path(name if number == 1 else f"{name}_{number}")
        with suppress(FileExistsError):
            path.mkdir(parents=True)
            break
    return str(path)


def existing_folders(place: str | None) -> set[Path]:
    """The parent folders of a run that exist before it starts: of `place`, or else of runs/."""
    runs = Path("runs").absolute()
    places = [Path.cwd(), *([Path(place).absolute()] if place else [runs, *runs.glob("*")])]
    return {folder for path in places for folder in (path, *path.parents) if folder.is_dir()}


def remove_empty(folder: Path, kept: Container[Path]) -> None:
    """Remove the empty folders that Hydra made for a run."""
    with suppress(OSError):  # not empty
        for path in takewhile(lambda path: path not in kept, (folder, *folder.parents)):
            path.rmdir()


def execute(module: ModuleType, config: DictConfig, given: list[str]) -> Any:
    """Hand the composed settings to a command; returns its result."""
    if not hasattr(module, "Options"):
        return module.main(config, given)
    options = options_of(module, config)
    if hasattr(options, "threads"):
        set_up_cpu(options.threads)
    return module.main(options, given)
