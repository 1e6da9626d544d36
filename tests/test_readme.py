"""What the documentation tells people to type exists: every command's configuration composes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / page for page in ("README.md", "CONTRIBUTING.md", "data/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "conf" / "experiment").glob("*.yaml")),
]
COMMAND = re.compile(r"^[#\s$]*python (train|scripts/\w+)\.py *(.*)$")
IN_A_TABLE = re.compile(r"`(?:python )?(train|scripts/\w+)\.py *([^`]*)`")


def commands() -> list[tuple[str, str]]:
    """(program, arguments) of every command shown, in tables too, continued lines joined and comments left out."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            shown = IN_A_TABLE.findall(line) if line.startswith("|") else COMMAND.findall(line)
            found += [(program, shlex.join(shlex.split(arguments, comments=True))) for program, arguments in shown]
    return sorted(set(found))


@pytest.mark.parametrize(("program", "arguments"), commands(), ids=" ".join)
def test_every_command_shown_composes(program: str, arguments: str) -> None:
    assert (ROOT / f"{program}.py").is_file()
    name = "config" if program == "train" else Path(program).name
    if not (ROOT / "conf" / f"{name}.yaml").is_file() or "resume=" in arguments or "--" in arguments:
        return  # not a matter of Hydra's configuration alone: tested with the program
    overrides = [a for a in shlex.split(arguments) if a not in (">", "<") and "=" in a]
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        compose(name, overrides)


def test_a_sweep_has_a_folder() -> None:
    """Hydra asks for it before it knows of any choices: `${hydra:...}` cannot stand in it."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        sweep = compose("config", return_hydra_config=True).hydra.sweep
    assert sweep.dir.startswith("runs/sweep/")


def test_the_first_screen_has_the_two_commands() -> None:
    first = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:25]
    assert any("make train" in line for line in first)
    assert any("make test" in line for line in first)


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("help", "install", "train", "test", "lint", "check", "bench"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
