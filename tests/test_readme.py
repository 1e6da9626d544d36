"""What the documentation tells people to type exists: every command's settings compose and have the right types."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from scaleformer.cli.command import CONF, config_of, module_of, options_of
from scaleformer.cli.line import typed
from scaleformer.commands import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / page for page in ("README.md", "CONTRIBUTING.md", "data/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "conf").rglob("*.yaml")),
]
NAMES = "|".join(sorted(COMMANDS, key=len, reverse=True))
PROGRAM = rf"(?:[A-Z_]+=\S+ )*(?:scaleformer ({NAMES})|python (train|scripts/\w+)\.py)"
COMMAND = re.compile(rf"^[#\s$]*{PROGRAM}(?=\s|$) *(.*)$")
#: Settings of commands in the log of experiments that the program has no more.
REMOVED = (
    "context=foreign",
    "device=cuda seconds",
    "profile=2048",
    "long=65536",
    "no_repeat_ngram_size",
    "r_drop",
    "repetition_penalty",
    "sample_alpha",
    "segment_gated",
    "rfa_gated",
    "gated_deltanet",
    "segment_hybrid",
    "word_dropout",
    "drop_separators",
    "similar=",
)
QUOTED = re.compile(rf"`{PROGRAM}(?=[\s`]) *([^`]*)`")  # in tables and in sentences


def commands() -> list[tuple[str, str]]:
    """(command, arguments) of every command shown, continued lines joined and comments left out."""
    found = []
    for page in PAGES:
        prose: list[str] = []
        for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            shown = COMMAND.findall(line)
            prose.append("" if shown else line.strip())
            found += shown
        found += QUOTED.findall(" ".join(prose))
    split = [(name or of_script(script), shlex.split(arguments, comments=True)) for name, script, arguments in found]
    return sorted({(name, shlex.join(arguments)) for name, arguments in split if name})


def of_script(script: str) -> str:
    """The command that a script calls; empty for one that has its own arguments."""
    names = re.findall(r"run\(\"([\w -]+)\"\)", (ROOT / f"{script}.py").read_text(encoding="utf-8"))
    return str(names[0]) if names else ""


@pytest.mark.parametrize(("name", "arguments"), commands(), ids=[" ".join(shown) for shown in commands()])
def test_every_command_shown_is_right(name: str, arguments: str) -> None:
    if re.search(r"resume=|--|-m ", arguments):  # these are tested with the program
        return
    if any(name in arguments for name in REMOVED):  # the log of experiments tells of what is gone too
        return
    words = [word.strip("[]") for word in shlex.split(arguments)]
    given = [w for w in words if re.match(r"[+~]?[\w./@]+=", w) and not w.endswith(("=NAME", "=MODE", "key=value"))]
    module = module_of(name)
    given = [re.sub(r"(=\[[^\]]*)$", r"\1]", w) for w in given]  # an option shown in brackets, [lengths=[1,2]]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(config_of(name), [typed(argument, module) for argument in given])
    if hasattr(module, "Options") and not re.search(r": *'?\?\?\?", str(config)):
        options_of(module, config)


def test_commands_are_found_in_sentences_and_tables() -> None:
    programs = {name for name, _ in commands()}
    assert {"train", "translate", "prepare", "extrapolation", "plot"} <= programs
    assert any("freeze=" in arguments for _, arguments in commands())


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("train", "train"),
        ("scripts/evaluate_bleu", "evaluate"),
        ("scripts/evaluate_extrapolation", "extrapolation"),
        ("scripts/translate", "translate"),
        ("scripts/prepare_data", "prepare"),
    ],
)
def test_a_script_calls_its_command(script: str, command: str) -> None:
    assert of_script(script) == command
    assert len((ROOT / f"{script}.py").read_text(encoding="utf-8").splitlines()) < 12


def test_a_sweep_has_a_folder() -> None:
    """Hydra asks for it before it knows of any choices: `${hydra:...}` cannot stand in it."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        sweep = OmegaConf.to_container(compose("config", return_hydra_config=True).hydra.sweep)
    assert sweep["dir"] == "${new_folder:runs/sweep/${now:%Y-%m-%d_%H-%M-%S}}"


def test_the_first_screen_has_the_two_commands_and_the_page_is_short() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert any("make train" in line for line in lines[:12])
    assert any("make test" in line for line in lines[:12])
    assert len(lines) <= 150


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for key in ("version", "license"):
        assert f'{key} = "{citation[key]}"' in project
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_the_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("help", "install", "train", "test", "lint", "check", "bench"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
