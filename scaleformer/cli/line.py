"""Parses the words of a command line: separates flags from overrides, and quotes values for Hydra."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import is_dataclass
from itertools import islice
from typing import Any, Union, get_args, get_origin

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString, ValueType
from hydra.errors import HydraException

from scaleformer.system.schema import plain_type, type_of

# Flags of Hydra that take a value.
VALUED = ("--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd", "--package", "-p", "--cfg", "-c")
FLAGS = (
    *(*VALUED, "--help", "-h", "--hydra-help", "--resolve", "--run", "-r", "--multirun", "-m"),
    *("--shell-completion", "-sc", "--info", "-i", "--experimental-rerun"),
)
PATHS = ("--config-path", "-cp")
SWEEP = ("-m", "--multirun", "hydra.mode=MULTIRUN")


def split_flags(arguments: Iterable[str]) -> tuple[list[str], list[str]]:
    """Hydra's flags with their values, and the overrides, which must come after them."""
    flags: list[str] = []
    overrides: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name in VALUED:
            values = [value] if equals else list(islice(rest, 1))
            # Hydra takes a relative folder of settings for one of the program
            if name in PATHS and values and os.path.isdir(values[0]):
                values = [os.path.abspath(values[0])]
            flags += [f"{name}={values[0]}"] if equals else [name, *values]
        else:
            (flags if argument.startswith("-") else overrides).append(argument)
    return flags, overrides


def refuse_words(flags: list[str], overrides: list[str], usage: str) -> None:
    """Raise ValueError for words that are neither a flag of Hydra nor a setting, with the `usage` of the command."""
    words = [word for word in overrides if "=" not in word and word[:1] != "~"]
    rest = iter(flags)
    for flag in rest:
        name, _, value = flag.partition("=")
        if flag in VALUED:
            next(rest, None)
        elif name not in FLAGS:
            setting = f"{name.lstrip('-').replace('-', '_')}={value or next(iter(words), 'VALUE')}"
            raise ValueError(f"{flag}: no such option: write {setting}: {usage}")
    if words and not {"--info", "-i", "--shell-completion", "-sc"} & set(flags):  # these take words
        raise ValueError(f"{words[0]}: a setting is written KEY=VALUE: {usage}")


def flag_value(flags: list[str], *names: str) -> str | None:
    """The value of a flag, `--config-dir X` or `--config-dir=X`; None if not given."""
    for flag, value in zip(flags, [*flags[1:], ""], strict=False):
        if flag in names:
            return value
        if flag.partition("=")[0] in names:
            return flag.partition("=")[2]
    return None


def last_value(arguments: Iterable[str], key: str) -> str | None:
    """The value of the last override of a key; None if there is none."""
    values = [unquoted(a.split("=", 1)[1]) for a in arguments if a.startswith(f"{key}=")]
    return values[-1] if values else None


def typed(argument: str, kind: type, sweep: bool = False) -> str:
    """Quote the value of an override if its setting in `kind` is a text: otherwise Hydra would read 2024_11_27 as a
    number, and refuse spaces and letters beyond ASCII. `~` is the home folder.

    sweep  commas separate the values of several jobs, and Hydra's functions (`choice(...)`, `glob(...)`) produce them
    Raises ValueError for a mapping with a repeated key, of which Hydra would silently take the last.
    """
    key, equals, value = argument.partition("=")
    if not equals or argument[0] == "~":
        return argument
    if value[:1] == "{":
        with suppress(yaml.YAMLError):
            _refuse_twice(key, yaml.compose(re.sub(r"([{,]\s*[\w.-]+):", r"\1: ", value), yaml.BaseLoader))
    name = key.lstrip("+")
    hint = str | None if "/" in name else type_of(kind, name)  # a group choice is a file name
    if hint is None and name.startswith("data."):  # which the command hands on as a training has it
        from scaleformer.data.config import DataConfig

        hint = type_of(DataConfig, name.removeprefix("data."))
    hint = plain_type(hint)
    kinds = get_args(hint) if get_origin(hint) is Union else (hint,)
    group = any(map(is_dataclass, kinds))
    if value == "null" and (group or type(None) in kinds):
        return argument
    if value[:1] in ("[", "{") and {tuple[str, ...], dict[str, str]} & {*kinds}:
        with suppress(yaml.YAMLError):
            spaced = re.sub(r"([{,]\s*[\w-]+):", r"\1: ", value) if value[0] == "{" else value
            return f"{key}={_rendered(yaml.load(spaced, yaml.BaseLoader))}"  # everything as text
    if not group and str not in kinds:
        return argument
    if not sweep or unquoted(value) != value:
        return f"{key}={_rendered(unquoted(value))}"
    if re.match(r"""\w+\(|['"]""", value):
        return argument
    return f"{key}={','.join(map(_rendered, value.split(',')))}"


def _refuse_twice(key: str, node: Any) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    names = [name.value for name, _ in node.value]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{key}: {twice} is given twice: give each a different name")
    for name, inner in node.value:
        _refuse_twice(f"{key}.{name.value}", inner)


def _rendered(value: Any) -> str:
    """A text, or a list or mapping of texts, in Hydra's grammar."""
    if isinstance(value, list):
        return f"[{','.join(map(_rendered, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_rendered(item)}' for key, item in value.items())}}}"
    return quoted(os.path.expanduser(value))


def quoted(value: str) -> str:
    """A text quoted for Hydra's command-line grammar."""
    return QuotedString(value, Quote.single).with_quotes()


def unquoted(value: str) -> str:
    """The inverse of `quoted`, for either kind of quotes; other values unchanged."""
    if value[:1] in ("'", '"'):
        with suppress(HydraException):
            parsed = OverridesParser.create().parse_override(f"key={value}")
            if parsed.value_type is ValueType.ELEMENT and isinstance(text := parsed.value(), str):
                return text
    return value
