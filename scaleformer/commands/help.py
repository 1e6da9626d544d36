"""`scaleformer COMMAND --help`: its settings with their types and defaults, described by the comments of conf/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from textwrap import wrap
from typing import Any, get_args, get_type_hints

import yaml

from scaleformer.commands.call import CONF, config_of, module_of
from scaleformer.system.schema import type_name

TEXT = r"""(?:"[^"]*"|'[^']*'|[^#"'])*?"""
LINE = re.compile(rf"^(?P<indent> *)(?P<key>[\w/]+): *(?P<value>{TEXT}) *(?:# ?(?P<text>.*))?$")
WIDTH = 100


@dataclass(frozen=True)
class Setting:
    """One setting as a configuration file has it."""

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


def _groups(name: str, module: Any) -> Iterator[tuple[str, list[Setting], Any]]:
    """(title, settings, the dataclass that knows their types) of the command itself and of each of its groups."""
    path = CONF / f"{config_of(name)}.yaml"
    options = getattr(module, "Options", None)
    yield "settings (??? has to be given):", read_settings(path.read_text(encoding="utf-8")), options
    kinds = _kinds()
    for group, choice, text in _defaults(path):
        folder = CONF / group
        choices = sorted(p.stem for p in folder.glob("*.yaml") if (group, p.stem) != ("data", "base"))
        title = f"{group}={'|'.join(choices)} ({choice or 'none'} if not given){f': {text}' if text else ''}"
        if choice is None or group == "experiment":
            yield title, [], None
            continue
        prefix = f"{group.replace('/', '.')}."
        yield title, [Setting(prefix + s.name, s.value, s.text) for s in _chosen(folder, choice)], kinds.get(group)


def _chosen(folder: Any, choice: str) -> list[Setting]:
    """The settings of one choice, with those of the file that it extends."""
    content = (folder / f"{choice}.yaml").read_text(encoding="utf-8")
    first = (yaml.safe_load(content) or {}).get("defaults", [])
    found = {s.name: s for base in first if base != "_self_" for s in _chosen(folder, base)}
    return list({**found, **{s.name: s for s in read_settings(content)}}.values())


def read_settings(content: str) -> list[Setting]:
    """The settings of a YAML file with the comment behind each, or above it; those of `hydra` are left out."""
    found: list[Setting] = []
    path: list[tuple[int, str]] = []
    above: list[str] = []
    for line in content.splitlines():
        if line.lstrip().startswith("#"):
            above.append(line.lstrip("# "))
            continue
        match = LINE.match(line)
        if match is None:
            above = []
            continue
        indent = len(match["indent"])
        path = [(n, key) for n, key in path if n < indent] + [(indent, match["key"])]
        name = ".".join(key for _, key in path)
        if path[0][1] not in ("defaults", "hydra"):
            found.append(Setting(name, (match["value"] or "").strip(), match["text"] or " ".join(above)))
        above = []
    return found


def _table(settings: list[Setting], kind: Any) -> list[str]:
    lines = []
    for setting in settings:
        hint = _hint(kind, setting.name) if kind is not None else None
        typed = _guess(setting.value) if hint is None else type_name(hint)
        default = f" = {setting.value}" if setting.value else ""
        lines.append(f"  {setting.name}{default}  ({typed})" if typed else f"  {setting.name}{default}")
        lines += [f"      {part}" for part in wrap(setting.text, WIDTH - 6)]
    return lines


def _defaults(path: Any) -> Iterator[tuple[str, str | None, str]]:
    """(group, choice, comment) of the defaults of a configuration."""
    content = path.read_text(encoding="utf-8")
    comments = dict(re.findall(r"^  - /?([\w/@.]+): *\w+ *# *(.*)$", content, re.MULTILINE))
    for entry in yaml.safe_load(content)["defaults"]:
        if isinstance(entry, dict):
            ((group, choice),) = entry.items()
            if "@" not in group:
                yield group.lstrip("/"), choice, comments.get(group.lstrip("/"), "")


def _kinds() -> dict[str, Any]:
    """The dataclass of each group of conf/."""
    from scaleformer.training.settings import Settings

    hints = get_type_hints(Settings)
    return {f.name: hints[f.name] for f in fields(Settings)}


def _hint(kind: Any, name: str) -> Any:
    """The type of a setting, by its place in nested dataclasses; None where there is none."""
    for part in name.split("."):
        kind = next((choice for choice in (kind, *get_args(kind)) if is_dataclass(choice)), None)
        if kind is None:
            return None
        hints = get_type_hints(kind, include_extras=True)
        if part not in hints:  # the name of the group itself
            continue
        kind = hints[part]
    return kind


def _guess(value: str) -> str:
    """The type of a default as YAML reads it."""
    content = None if value == "???" else yaml.safe_load(value or "null")
    if content is None or isinstance(content, dict):
        return ""
    return f"list of {type(content[0]).__name__}" if isinstance(content, list) and content else type(content).__name__
