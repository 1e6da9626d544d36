"""`python -m scripts.pages.configuration [--check]` writes docs/configuration.md from the commented files of conf/.

With --check it writes nothing and ends with 1 where the page is not what it would write.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from scaleformer.cli.command import config_of, module_of, names_of
from scaleformer.cli.help import Setting, Types, described_settings, header, shown_type, types_of
from scaleformer.commands import COMMANDS
from scaleformer.training.settings import Settings

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
MOST = 12  # choices that a table names
PAGE = ROOT / "docs/configuration.md"
COMMAND = "python -m scripts.pages.configuration"
MOST_NAMES = 10  # in a cell
INTRODUCTION = f"""\
# Configuration

Made by `{COMMAND}` from the comments of `conf/`; `scaleformer COMMAND --help` prints
the same for one command.

Every setting can follow a command as `key=value`, and a group takes the name of one of its files: `scaleformer train
model=small data=jsonl data.path=FOLDER data.max_tokens=1024`. The default `???` means that a value has to be given.
The settings of a group have its name and a dot before them, those of a command stand alone.

Lists and mappings are written as in YAML, in quotes where a shell would read them: `'data.hub.data_files={{train:
train.parquet}}'`. A setting that the configuration does not name takes a plus: `+trainer.limit_val_batches=10`.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *_training(), *_groups(), *_experiments(), *_commands()]).rstrip() + "\n"


def _training() -> Iterator[str]:
    content = (CONF / "config.yaml").read_text(encoding="utf-8")
    yield "## `scaleformer train`\n"
    yield "These stand outside the groups:\n"
    yield from _table(described_settings(content), Settings)
    yield "The groups, and what is chosen where the command line chooses nothing:\n"
    chosen = dict(_chosen(content))
    rows = []
    for group in _group_names():
        names = [f"`{path.stem}`" for path in _files(group)]
        choices = ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)}, each with a heading below"
        rows.append(f"| [`{group}`](#{_anchor(group)}) | `{chosen[group]}` | {choices} |")
    yield from ["| group | default | choices |", "|---|---|---|", *rows, ""]
    yield "`model/attention@model.sites.SITE=NAME` gives one site an attention of its own; SITE is `encoder`, `decoder`"
    yield "or `cross`.\n"


def _groups() -> Iterator[str]:
    for group in _group_names():
        if group == "experiment":
            continue
        yield f"## Group `{group}`\n"
        for path in [CONF / "data/base.yaml"] * (group == "data") + _files(group):
            content = path.read_text(encoding="utf-8")
            yield "### All sources\n" if path.stem == "base" and group == "data" else f"### `{group}={path.stem}`\n"
            if text := _cell(header(content)):
                yield f"{text}\n"
            if extended := [
                base for base in yaml.safe_load(content).get("defaults", []) if base not in ("base", "_self_")
            ]:
                yield f"All else is that of `{group}={extended[0]}`.\n"
            prefix = group.replace("/", ".")
            settings = [Setting(f"{prefix}.{s.name}", s.value, s.text) for s in described_settings(content)]
            yield from _table(settings, types_of(group, path.stem))


def _experiments() -> Iterator[str]:
    yield "## Group `experiment`\n"
    yield "An experiment sets other defaults. Its file also tells the hardware, the time and the result to expect.\n"
    for path in _files("experiment"):
        content = path.read_text(encoding="utf-8")
        yield f"### `experiment={path.stem}`\n"
        goal = _cell(header(content))
        yield f"{goal[0].upper()}{goal[1:]}\n"
        rows = [f"| `{group}` | `{choice}` |" for group, choice in _chosen(content)]
        rows += [f"| `{s.name}` | `{s.value}` |" for s in described_settings(content) if s.value]
        if rows:
            yield from ["| setting | value |", "|---|---|", *rows, ""]


def _commands() -> Iterator[str]:
    for name in COMMANDS:
        if name == "train":
            continue
        path = CONF / f"{config_of(name)}.yaml"
        content = path.read_text(encoding="utf-8")
        yield f"## `scaleformer {name}`\n"
        yield f"{COMMANDS[name]}.\n".replace("?.", "?")
        yield from _table(described_settings(content), names_of(module_of(name)))
        shared = [f"[`{group}`](#{_anchor(group)})" for group, _ in _chosen(content) if group in _group_names()]
        if shared:
            yield f"And the settings of {' and '.join(shared)}.\n"


def _table(settings: list[Setting], types: Types) -> list[str]:
    """A row for each setting."""
    rows = ["| setting | default | type | |", "|---|---|---|---|"]
    for setting in settings:
        value = f"`{setting.value}`" if setting.value else ""
        rows.append(f"| `{setting.name}` | {value} | {_cell(_brief(setting, types))} | {_cell(setting.text)} |")
    return [*rows, ""] if settings else []


def _brief(setting: Setting, types: Types) -> str:
    """The type; of many choices only their number, since `--help` lists them."""
    choices = re.compile(rf"one of (?:[^,]+, ){{{MOST},}}[^,]+")
    return choices.sub(lambda found: f"{found[0].count(',') + 1} names, see `--help`", shown_type(setting, types))


def _cell(text: str) -> str:
    """A comment as text of a table: what Markdown would read as markup outside of code is escaped."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([|*<\[\]~])", r"\\\1", p) for p in parts)


def _chosen(content: str) -> list[tuple[str, str]]:
    """(group, choice) of the defaults of a file, those of Hydra itself and of single sites left out."""
    entries = [entry for entry in yaml.safe_load(content).get("defaults", []) if isinstance(entry, dict)]
    pairs = [(re.sub(r"^(override )?/?", "", group), choice) for entry in entries for group, choice in entry.items()]
    return [(group, choice) for group, choice in pairs if "@" not in group and not group.startswith("hydra/")]


def _group_names() -> list[str]:
    """In the order of conf/config.yaml."""
    return [group for group, _ in _chosen((CONF / "config.yaml").read_text(encoding="utf-8"))]


def _files(group: str) -> list[Path]:
    return [path for path in sorted((CONF / group).glob("*.yaml")) if (group, path.stem) != ("data", "base")]


def _anchor(group: str) -> str:
    return f"group-{group.replace('/', '')}"


def main(arguments: list[str]) -> int:
    new = page()
    if arguments == ["--check"]:
        stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != new
        if stale:
            print(f"{PAGE.relative_to(ROOT)} is not what conf/ says now: write it anew by {COMMAND}")
        return int(stale)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
