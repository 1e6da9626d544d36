"""What the documentation tells people to type exists: every command's configuration composes, its options are read."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from tests.commands.calls import load

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / page for page in ("README.md", "CONTRIBUTING.md", "data/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "conf" / "experiment").glob("*.yaml")),
]
COMMAND = re.compile(r"^[#\s$]*python (train|scripts/\w+)\.py *(.*)$")
QUOTED = re.compile(r"`(?:[A-Z_]+=\S+ )*(?:python )?(train|scripts/\w+)\.py *([^`]*)`")  # in tables and in sentences


def commands() -> list[tuple[str, str]]:
    """(program, arguments) of every command shown, continued lines joined and comments left out."""
    found = []
    for page in PAGES:
        prose: list[str] = []
        for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            shown = COMMAND.findall(line)
            prose.append("" if shown else line.strip())
            found += shown
        found += QUOTED.findall(" ".join(prose))
    split = [(program, shlex.split(arguments, comments=True)) for program, arguments in found]
    return sorted({(program, shlex.join(arguments)) for program, arguments in split})


@pytest.mark.parametrize(("program", "arguments"), commands(), ids=" ".join)
def test_every_command_shown_is_right(program: str, arguments: str) -> None:
    assert (ROOT / f"{program}.py").is_file()
    given = [a for a in shlex.split(arguments) if "=" in a and not a.endswith("=NAME")]  # whose value stands for any
    name = "config" if program == "train" else Path(program).name
    if (ROOT / "conf" / f"{name}.yaml").is_file():
        if not re.search(r"resume=|--|-m ", arguments):  # these are tested with the program
            with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
                compose(name, given)
    elif given:
        script = load(name)
        (script.read_options if hasattr(script, "read_options") else script.settings)(given)


def test_commands_are_found_in_sentences_and_tables() -> None:
    programs = {program for program, _ in commands()}
    assert {"train", "scripts/benchmark_attention", "scripts/compare_backends", "scripts/plot"} <= programs
    assert any("part=long" in arguments for _, arguments in commands())


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
