"""A command by its name: its module, its file below conf/, and its settings."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

from omegaconf import DictConfig, OmegaConf

from scaleformer.system.schema import from_mapping

PACKAGE = Path(__file__).parents[1]
# A wheel has the configurations inside the package, a working tree next to it.
CONF = next(path for path in (PACKAGE / "conf", PACKAGE.parent / "conf") if path.is_dir())


def module_of(name: str) -> ModuleType:
    """The module of a command."""
    return importlib.import_module(f"scaleformer.commands.{name.replace('-', '_')}")


def config_of(name: str) -> str:
    """The name of a command's configuration below conf/."""
    return "config" if name == "train" else f"commands/{name.replace('-', '_')}"


def names_of(module: ModuleType) -> type:
    """The dataclass with the names and types of a command's settings."""
    kind: type = module.Options if hasattr(module, "Options") else module.Names
    return kind


def usage_of(module: ModuleType) -> str:
    """How a command is called: the first line of that kind in the text of its module."""
    name = module.__name__.rpartition(".")[2].replace("_", "-")
    lines = (line.strip() for line in (module.__doc__ or "").splitlines())
    return next((line for line in lines if line.startswith("scaleformer ")), f"scaleformer {name} [KEY=VALUE ...]")


def options_of(module: ModuleType, config: DictConfig) -> Any:
    """The settings of a command as its dataclass. Raises ValueError in one line for wrong settings."""
    if missing := sorted(OmegaConf.missing_keys(config)):
        raise ValueError(f"{', '.join(missing)}: not given: {usage_of(module)}")
    values: Any = OmegaConf.to_container(config, resolve=True)
    for name, value in values.items():  # as of a variable of the shell that is not set; a path would be this folder
        if (value == "" or (isinstance(value, list) and "" in value)) and name != "document_column":
            raise ValueError(f"{name}=: empty: give a value, or leave it out: {usage_of(module)}")
    return from_mapping(module.Options, values, "")
