"""Every key of every configuration says what it is, and every experiment what to expect of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from scaleformer.cli.help import describe, described_settings, header
from scaleformer.commands import COMMANDS

CONF = Path(__file__).parents[1] / "conf"
FILES = sorted(CONF.rglob("*.yaml"))
EXPERIMENTS = [path for path in FILES if path.parent.name == "experiment"]  # the groups describe what these set
PARTS = ("Goal: ", "Command:", "Hardware: ", "Time: ", "Result: ")
BAD = """\
# What the file is for.
first: 1
group: # of two
  described: 1 # in
    # pieces
  bare: "#"
several:
  - 1
described: 1 # behind the list, not of it
long: |
  text
# above
last: {inner: 1}
outer:
  described: 1 # but not the group
hydra:
  run: {dir: .}
"""


def bare(content: str) -> list[str]:
    """The settings without a comment."""
    return [setting.name for setting in described_settings(content) if not setting.text]


@pytest.mark.parametrize("path", [p for p in FILES if p not in EXPERIMENTS], ids=lambda p: str(p.relative_to(CONF)))
def test_every_key_has_a_comment(path: Path) -> None:
    assert bare(path.read_text(encoding="utf-8")) == []


def test_a_bare_key_is_found() -> None:
    assert bare(BAD) == ["first", "group.bare", "several", "long", "outer"]


def test_the_values_and_comments_of_settings_are_read() -> None:
    found = {s.name: (s.value, s.text) for s in described_settings(BAD)}
    assert found["group"] == ("", "of two")
    assert found["group.described"] == ("1", "in pieces")
    assert found["group.bare"] == ('"#"', "")
    assert found["last"] == ("{inner: 1}", "above")
    assert header(BAD) == "What the file is for."


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(CONF)))
def test_no_setting_is_overlooked(path: Path) -> None:
    content = path.read_text(encoding="utf-8")
    settings = {key: value for key, value in yaml.safe_load(content).items() if key not in ("defaults", "hydra")}
    assert {s.name.split(".")[0] for s in described_settings(content)} == set(settings)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_an_experiment_says_what_to_expect(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# @package _global_"
    said = [line.removeprefix("# ") for line in lines[1:] if line.startswith("# ")]
    assert [part for line in said for part in PARTS if line.startswith(part)] == list(PARTS)
    assert said[said.index("Command:") + 1].startswith(("  make ", "  python ", "  scaleformer "))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_describes_every_setting(name: str) -> None:
    lines = describe(name).splitlines()
    settings = [n for n, line in enumerate(lines) if re.match(r"  [\w.]+ = ", line)]
    assert settings
    assert [lines[n] for n in settings if not lines[n + 1].startswith("      ")] == []
    assert max(map(len, lines)) <= 120
