"""`scaleformer COMMAND --help`: its settings with types and defaults, and the comments of conf/ as descriptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from textwrap import wrap
from typing import Any

import yaml

from scaleformer.cli.command import CONF, config_of, module_of, names_of
from scaleformer.model.attention import options_of
from scaleformer.system.schema import type_name, type_of
from scaleformer.training.settings import Settings

WIDTH = 100
Types = type | dict[str, Any]  # a dataclass, or types by name


@dataclass(frozen=True)
class Setting:
    """A setting in a configuration file."""

    name: str
    value: str
    text: str


def describe(name: str) -> str:
    """The help of a command."""
    module = module_of(name)
    lines = [(module.__doc__ or "").rstrip(), "", f"usage: scaleformer {name} [key=value ...]", ""]
    for title, group, kind in _groups(name, module):
        lines += [title, *_table(group, kind), ""]
    return "\n".join(lines).rstrip()


def _groups(name: str, module: Any) -> Iterator[tuple[str, list[Setting], Types]]:
    """(title, settings, their types) of the command and of each of its groups."""
    path = CONF / f"{config_of(name)}.yaml"
    yield "settings (??? must be given):", described_settings(path.read_text(encoding="utf-8")), names_of(module)
    for group, choice, text in _defaults(path):
        folder = CONF / group
        choices = sorted(p.stem for p in folder.glob("*.yaml") if (group, p.stem) != ("data", "base"))
        title = _lines(f"{group}={choice or 'none'} if not given{f': {text}' if text else ''}", 0)
        title += _lines(f"one of {', '.join(choices)}", 2)
        if choice is None or group == "experiment":
            names = choices if group == "experiment" else []
            settings = []
        else:
            names = [choice]
            prefix = f"{group.replace('/', '.')}."
            settings = [Setting(prefix + s.name, s.value, s.text) for s in _chosen(folder, choice)]
        title += [line for name in names for line in _lines(f"{name}: {header(_read(folder, name))}", 2)]
        yield "\n".join(title), settings, types_of(group, choice)


def types_of(group: str, choice: str | None) -> Types:
    """Where the types of the settings of a group stand: an attention has options of its own."""
    if group != "model/attention" or choice is None:
        return Settings
    return {f"model.attention.{option}": hint for option, hint in options_of(choice).items()}


def _chosen(folder: Path, choice: str) -> list[Setting]:
    """The settings of a choice, including those of the file that it extends."""
    content = _read(folder, choice)
    first = (yaml.safe_load(content) or {}).get("defaults", [])
    found = {s.name: s for base in first if base != "_self_" for s in _chosen(folder, base)}
    return list({**found, **{s.name: s for s in described_settings(content)}}.values())


def described_settings(content: str) -> list[Setting]:
    """The settings of a YAML file, each with the comment after it, which goes on in lines that are indented more than
    the key, or else the one above it. `defaults` and settings below `hydra` are left out. The top comment belongs to
    the file, not to the first key."""
    lines = content.splitlines()
    top = next((n for n, line in enumerate(lines) if not line.startswith("#")), 0)
    root = yaml.compose(content)
    pairs = root.value if isinstance(root, yaml.MappingNode) else []
    found = []
    for name, key, value in _keys([(k, v) for k, v in pairs if k.value not in ("defaults", "hydra")]):
        # A value on lines of its own ends at the next key, whose comment belongs to that key.
        flat = value.style not in ("|", ">") if isinstance(value, yaml.ScalarNode) else value.flow_style
        behind = content[(value if flat else key).end_mark.index :].partition("\n")[0]
        row, column = key.start_mark.line - 1, key.start_mark.column
        above = lines[row] if row >= top else ""
        _, mark, text = behind.partition("#")
        more = lines[value.end_mark.line + 1 :] if flat and mark else []
        more = list(takewhile(re.compile(f" {{{column + 1},}}#").match, more))
        text = " ".join(line.strip(" #") for line in [text, *more]) if mark else ""
        if not mark and above.startswith(f"{' ' * column}#"):
            text = above.strip(" #")
        shown = content[value.start_mark.index : value.end_mark.index] if flat else ""
        found.append(Setting(name, shown, text.strip()))
    return found


def _keys(pairs: list[tuple[yaml.Node, yaml.Node]], prefix: str = "") -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """(name with dots, key, value) of all settings; a value in braces counts as one."""
    for key, value in pairs:
        yield prefix + key.value, key, value
        if isinstance(value, yaml.MappingNode) and not value.flow_style:
            yield from _keys(value.value, f"{prefix}{key.value}.")


def header(content: str) -> str:
    """The top comment of a YAML file; for an experiment, only its goal."""
    lines = [line.lstrip("# ") for line in takewhile(lambda line: line.startswith("#"), content.splitlines())]
    goals = [line.removeprefix("Goal: ") for line in lines if line.startswith("Goal: ")]
    return " ".join(goals or lines)


def _read(folder: Path, choice: str) -> str:
    return (folder / f"{choice}.yaml").read_text(encoding="utf-8")


def _lines(text: str, indent: int) -> list[str]:
    """A text wrapped to the width of the page."""
    return [" " * indent + part for part in wrap(text, WIDTH - indent, break_on_hyphens=False)]


def _table(settings: list[Setting], types: Types) -> list[str]:
    lines = []
    for setting in settings:
        typed = shown_type(setting, types)
        default = f" = {setting.value}" if setting.value else ""
        text = f"{setting.name}{default}  ({typed})" if typed else f"{setting.name}{default}"
        lines += wrap(text, WIDTH, initial_indent="  ", subsequent_indent=" " * 6, break_on_hyphens=False)
        lines += _lines(setting.text, 6)
    return lines


def _defaults(path: Path) -> Iterator[tuple[str, str | None, str]]:
    """(group, choice, comment) of the defaults of a configuration."""
    content = path.read_text(encoding="utf-8")
    comments = dict(re.findall(r"^  - /?([\w/@.]+): *\w+ *# *(.*)$", content, re.MULTILINE))
    for entry in yaml.safe_load(content)["defaults"]:
        if isinstance(entry, dict):
            ((group, choice),) = entry.items()
            if "@" not in group and not group.startswith("override "):
                yield group.lstrip("/"), choice, comments.get(group.lstrip("/"), "")


def shown_type(setting: Setting, types: Types) -> str:
    """The type of a setting, else that of its default as YAML reads it; "" where neither tells."""
    value = setting.value
    hint = type_of(types, setting.name) if isinstance(types, type) else types.get(setting.name)
    if not value or hint is not None:
        return type_name(hint) if value else ""
    content = None if value == "???" else yaml.safe_load(value or "null")
    if content is None or isinstance(content, dict):
        return ""
    return f"list of {type(content[0]).__name__}" if isinstance(content, list) and content else type(content).__name__
