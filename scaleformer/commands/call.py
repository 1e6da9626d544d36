"""One road from a command line to a command: its settings composed by Hydra, checked, and handed over."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import hydra
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from scaleformer.commands.resume import quoted
from scaleformer.commands.unknown import unknown_override
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import one_line_errors, wants_traceback
from scaleformer.system.schema import from_mapping

PACKAGE = Path(__file__).parents[1]
# In a wheel the configurations travel inside the package, in a working tree they lie beside it.
CONF = next(path for path in (PACKAGE / "conf", PACKAGE.parent / "conf") if path.is_dir())


def module_of(name: str) -> ModuleType:
    """The module of a command."""
    return importlib.import_module(f"scaleformer.commands.{name.replace(' ', '_').replace('-', '_')}")


def config_of(name: str) -> str:
    """The name of a command's configuration below conf/."""
    return "config" if name == "train" else f"commands/{name.replace(' ', '_').replace('-', '_')}"


def call(name: str, arguments: list[str], words: Sequence[str] = ()) -> None:
    """Run a command. What is wrong with its input ends in one line and exit code 1."""
    if {"-h", "--help"} & set(arguments):
        from scaleformer.commands.help import describe

        print(describe(name))
        return
    if not wants_traceback():
        # Hydra would print a report of its own, of several lines. The second name tells other processes of this run
        # that the first one is ours.
        os.environ.update(HYDRA_FULL_ERROR="1", SCALEFORMER_ONE_LINE="1")
    with one_line_errors():
        module = module_of(name)
        if hasattr(module, "rewrite"):
            arguments = module.rewrite(arguments)
        arguments = [typed(argument, module) for argument in arguments]
        program = sys.argv[0]
        sys.argv = [program, *arguments]  # Hydra reads these

        def task(config: DictConfig) -> None:
            sys.argv = [program, *words, *arguments]  # with which Lightning starts the processes of other devices
            execute(module, config, list(HydraConfig.get().overrides.task))

        try:
            hydra.main(version_base="1.3", config_path=str(CONF), config_name=config_of(name))(
                one_line_errors()(task)
            )()
        except HydraException as error:
            if (text := unknown_override(error)) is not None:
                raise ValueError(text) from error
            raise


def execute(module: ModuleType, config: DictConfig, given: list[str]) -> None:
    """Hand the composed settings to a command."""
    if not hasattr(module, "Options"):
        module.main(config, given)
        return
    options = options_of(module, config)
    if hasattr(options, "threads"):
        set_up_cpu(options.threads)
    module.main(options, given)


def options_of(module: ModuleType, config: DictConfig) -> Any:
    """The settings of a command as its dataclass. ValueError in one line for what does not fit."""
    values: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    return from_mapping(module.Options, values, "")


def default_options(name: str, **changes: Any) -> Any:
    """The settings of a command without groups as its configuration has them, some of them changed."""
    content: Any = OmegaConf.load(CONF / f"{config_of(name)}.yaml")
    del content["defaults"]
    return options_of(module_of(name), OmegaConf.merge(content, changes))  # type: ignore[arg-type]


def typed(argument: str, module: ModuleType) -> str:
    """An override whose value is a text by the type of its setting, in quotes: else 2024_11_27 would be a number, and
    spaces and letters beyond ASCII no value at all."""
    key, equals, value = argument.partition("=")
    if not equals or not hasattr(module, "Options") or argument.startswith("-"):
        return argument
    hint = _hint(module.Options, key.lstrip("+").split("."))
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if value == "null" and type(None) in choices:
        return argument
    if value[:1] == "[" and tuple[str, ...] in choices:
        with suppress(yaml.YAMLError):
            items = yaml.load(value, yaml.BaseLoader)  # all of them texts
            if isinstance(items, list) and all(isinstance(item, str) for item in items):
                return f"{key}=[{','.join(map(quoted, items))}]"
    if str not in choices or value[:1] in ("'", '"'):
        return argument
    return f"{key}={quoted(value)}"


def _hint(kind: type, path: list[str]) -> Any:
    hints = get_type_hints(kind, include_extras=True)
    hint = hints.get(path[0])
    if len(path) == 1 or hint is None:
        return hint
    return _hint(hint, path[1:]) if is_dataclass(hint) and isinstance(hint, type) else None
