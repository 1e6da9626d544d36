"""From a command line to a command: the list, the help, quoting of names, unknown settings."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from scaleformer import __version__, commands
from scaleformer.cli.call import new_folder
from scaleformer.cli.command import CONF, config_of, module_of, names_of
from scaleformer.cli.help import describe, described_settings
from scaleformer.cli.line import split_flags, typed
from tests.commands.calls import default_options, error_of

WITHOUT_OPTIONS = {"train"}


def test_the_list_has_a_line_for_each_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["--help", "train"]):
        commands.main(arguments)
        lines = capsys.readouterr().out.splitlines()
        assert [line.split("  ")[1] for line in lines if line.startswith("  ")] == [*commands.COMMANDS, "benchmark"]
    assert all(len(line) <= 80 for line in lines)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (["tranlate"], "tranlate: no such command (did you mean translate?); there are train, translate, "),
        (["attention_maps"], "attention_maps: no such command (did you mean attention-maps?)"),
        (["zzz"], "zzz: no such command; there are train"),
    ],
)
def test_an_unknown_command_suggests_the_closest(capsys, monkeypatch, given: list[str], line: str) -> None:
    assert error_of(capsys, monkeypatch, *given).startswith(line)


@pytest.mark.parametrize("name", sorted(set(commands.COMMANDS) - WITHOUT_OPTIONS))
def test_configuration_and_options_have_the_same_names(name: str) -> None:
    content: Any = OmegaConf.load(CONF / f"{config_of(name)}.yaml")
    groups = {
        next(iter(entry)).lstrip("/") for entry in content.pop("defaults") if isinstance(entry, dict | type(content))
    }
    assert {*content, *groups} == {field.name for field in fields(module_of(name).Options)}


@pytest.mark.parametrize("name", sorted(commands.COMMANDS))
def test_help_describes_every_setting(name: str) -> None:
    text = describe(name)
    assert f"usage: scaleformer {name}" in text
    own = described_settings((CONF / f"{config_of(name)}.yaml").read_text(encoding="utf-8"))
    for setting in own:
        assert f"\n  {setting.name}" in text
        assert setting.text in " ".join(text.split()) or " ".join(setting.text.split()) in " ".join(text.split())
    if name == "translate":  # only its own keys and those of the search
        assert "decoding.beam_size = 5  (int of at least 1)" in text
        assert "optimizer" not in text
        assert "max_tokens = null  (int of at least 3 or null)" in text


def test_comments_are_those_of_the_same_line_or_the_line_above() -> None:
    content = """
# of the first
first: 1
second: [a, "b # c"] # of the second
group: # of the group
  inner: "x # y" # of the inner

  last: null
hydra:
  run: here
"""
    assert [(s.name, s.value, s.text) for s in described_settings(content)] == [
        ("first", "1", "of the first"),
        ("second", '[a, "b # c"]', "of the second"),
        ("group", "", "of the group"),
        ("group.inner", '"x # y"', "of the inner"),
        ("group.last", "null", ""),
    ]


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("output=2024_11_27", "output='2024_11_27'"),
        ("output=nan", "output='nan'"),
        ("input=a\u00f1o (1).txt", "input='a\u00f1o (1).txt'"),
        ("input=it's", "input='it\\'s'"),
        ("input='quoted already'", "input='quoted already'"),
        ("max_tokens=512", "max_tokens=512"),
        ("max_tokens=null", "max_tokens=null"),
        ("decoding.beam_size=5", "decoding.beam_size=5"),
        ("--cfg=job", "--cfg=job"),
        ("unknown=1_0", "unknown=1_0"),
    ],
)
def test_names_are_kept_as_typed(argument: str, expected: str) -> None:
    assert typed(argument, module_of("translate").Options) == expected


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("runs=[2024,b c]", "runs=['2024','b c']"),
        ("runs=2024", "runs='2024'"),
        ("output=null", "output=null"),
        ("level=null", "level='null'"),
    ],
)
def test_names_in_lists_too(argument: str, expected: str) -> None:
    assert typed(argument, module_of("compare").Options) == expected


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("hydra.run.dir=2024_05_06", "hydra.run.dir='2024_05_06'"),
        ("hydra.run.dir=runs/${now:%Y}", "hydra.run.dir='runs/${now:%Y}'"),
        ("data.path=2024", "data.path='2024'"),
        ("data.path=\u6587\u6863 (1) [a]", "data.path='\u6587\u6863 (1) [a]'"),
        ("data.path=~/corpus", "data.path='/home/me/corpus'"),
        ("data.path='~/corpus'", "data.path='/home/me/corpus'"),
        ("resume=~/my run", "resume='/home/me/my run'"),
        ("resume=null", "resume=null"),
        ("data.source_suffix=nan", "data.source_suffix='nan'"),
        ("data.hub.data_files={train:1_0,test:~/a b}", "data.hub.data_files={train:'1_0',test:'/home/me/a b'}"),
        ("metrics.tokenize=no", "metrics.tokenize='no'"),
        ("callbacks.ema.decay=0.9", "callbacks.ema.decay=0.9"),
        ("experiment=2024_11", "experiment='2024_11'"),
        ("+mine/group=1_0", "+mine/group='1_0'"),
        ("model/attention@model.sites.cross=null", "model/attention@model.sites.cross=null"),
        ("hydra.searchpath=[my conf]", "hydra.searchpath=['my conf']"),
        ("trainer.max_steps=1_000", "trainer.max_steps=1_000"),
        ("~data.path", "~data.path"),
        ("~data.path=a", "~data.path=a"),
    ],
)
def test_train_keeps_names_as_typed(monkeypatch, argument: str, expected: str) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert typed(argument, names_of(module_of("train"))) == expected
    assert typed(expected, names_of(module_of("train"))) == expected


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("data.path=2024_1,a b", "data.path='2024_1','a b'"),
        ("data.path='a,b',c", "data.path='a,b',c"),
        ("data.path=glob(*)", "data.path=glob(*)"),
        ("model=tiny,small", "model='tiny','small'"),
        ("model/attention=choice(softmax,rotary)", "model/attention=choice(softmax,rotary)"),
        ("data.max_tokens=64,128", "data.max_tokens=64,128"),
    ],
)
def test_commas_of_a_sweep_separate_names(argument: str, expected: str) -> None:
    assert typed(argument, names_of(module_of("train")), sweep=True) == expected


def test_flags_may_be_anywhere() -> None:
    words = ["a=1", "--config-dir", "mine", "b=2", "-m", "--config-name=c", "-cd"]
    assert split_flags(words) == (["--config-dir", "mine", "-m", "--config-name=c", "-cd"], ["a=1", "b=2"])


def test_errors_of_values_show_what_to_type(capsys, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for given, advice in (("trainer.devices=it's", "'trainer.devices='\"'\"'it\\'\"'\"'s'\"'\"''"),):
        said = error_of(capsys, monkeypatch, "train", given)
        assert f"(type {advice})" in said
    (again,) = shlex.split(advice_of(error_of(capsys, monkeypatch, "train", "trainer.devices=a\u00f1o (1)")))
    assert again == "trainer.devices='a\u00f1o (1)'"
    assert list(tmp_path.iterdir()) == []


def advice_of(said: str) -> str:
    return said.partition("(type ")[2].partition(") (")[0].removesuffix(")")


def test_a_missing_setting_is_reported(capsys, monkeypatch) -> None:
    usage = "scaleformer translate checkpoint=RUN input=FILE output=FILE [boundaries=blank] [decoding.beam_size=5]"
    for given, missing in ((("checkpoint=x", "input=y"), "output"), ((), "checkpoint, input, output")):
        assert error_of(capsys, monkeypatch, "translate", *given) == f"{missing}: not given: {usage}"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["translate", "--checkpoint", "RUN"], "--checkpoint: no such option: write checkpoint=RUN: scaleformer tr"),
        (["translate", "--max-tokens=9"], "--max-tokens=9: no such option: write max_tokens=9: scaleformer translate"),
        (["translate", "--config-dir", "x", "-v", "input=a"], "-v: no such option: write v=VALUE: scaleformer transl"),
        (["translate", "RUN", "FILE"], "RUN: a setting is written KEY=VALUE: scaleformer translate checkpoint=RUN in"),
        (["train", "seed"], "seed: a setting is written KEY=VALUE: scaleformer train [KEY=VALUE ...]"),
        (["attention-maps", "fast"], "fast: a setting is written KEY=VALUE: scaleformer attention-maps "),
        (["compare", "runs=[nowhere,there]"], "nowhere: no such run directory or file of translations"),
    ],
)
def test_words_that_are_no_settings_show_what_to_type(capsys, monkeypatch, words: list[str], line: str) -> None:
    assert error_of(capsys, monkeypatch, *words).startswith(line)


def test_version_and_help_in_other_words(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--version"], ["-V"], ["version"], ["translate", "--version"]):
        commands.main(words)
        assert capsys.readouterr().out == f"scaleformer {__version__}\n"
    for words, same in ((["help"], []), (["help", "attention-maps"], ["attention-maps", "--help"])):
        commands.main(words)
        shown = capsys.readouterr().out
        commands.main(same)
        assert shown == capsys.readouterr().out


def test_a_reader_of_help_may_stop_reading() -> None:
    for words in ("--help", "train --help"):
        program = f"{sys.executable} -m scaleformer {words} | head -n 1"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", program], capture_output=True, text=True)
        assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")


def test_folders_of_one_name_are_numbered(tmp_path: Path) -> None:
    names = [Path(new_folder(str(tmp_path / "runs" / "now"))).name for _ in range(3)]
    assert names == ["now", "now_2", "now_3"] == sorted(path.name for path in (tmp_path / "runs").iterdir())


def test_a_wrong_type_is_reported(capsys, monkeypatch) -> None:
    said = error_of(capsys, monkeypatch, "comet", "translations=x", "gpus=-1")
    assert said == "gpus is -1: it must be an int of at least 0"


def test_the_defaults_of_a_command_with_changes() -> None:
    options = default_options("comet", gpus=1, translations="x")
    assert (options.gpus, options.translations, options.batch_size) == (1, "x", 8)


@pytest.mark.parametrize("command", ["average", "comet", "compare", "consistency", "score"])
def test_a_mistyped_output_is_reported_before_the_work(tmp_path: Path, command: str) -> None:
    options = SimpleNamespace(output=f"{tmp_path}/resutls/file")  # no other setting is read
    with pytest.raises(ValueError, match=r"output=.*: there is no folder .*/resutls: correct"):
        module_of(command).main(options, [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["single ü/", "2024_11_27", "a,b", "p(1)", "~/x"])
def test_texts_of_groups_that_a_command_hands_on_are_quoted(value: str) -> None:
    (found,) = OverridesParser.create().parse_overrides([typed(f"data.path={value}", names_of(module_of("evaluate")))])
    assert found.value() == os.path.expanduser(value)


def test_a_folder_of_settings_is_that_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    for given in (["--config-path", "run"], ["--config-path=run"], ["-cp", "run"]):
        wanted = [word.replace("run", str(tmp_path / "run")) for word in given]
        assert split_flags([*given, "a=1"]) == (wanted, ["a=1"])
    for words in (["--config-path", "pkg://x"], ["--config-path"]):
        assert split_flags(words) == (words, [])


def test_quoting_and_help_do_not_load_what_only_a_training_needs() -> None:
    program = (
        "import sys; from scaleformer.cli.command import module_of, names_of; from scaleformer.cli.line import typed\n"
        "from scaleformer.cli.help import describe\n"
        "assert 'trainer.max_steps' in describe('train')\n"
        "kind = names_of(module_of('evaluate'))\n"
        "print([typed(f'{name}=1', kind) for name in ('decoding.beam_size', 'data.path', 'hydra.run.dir')])\n"
        "assert 'pytorch_lightning' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    wanted = ["decoding.beam_size=1", "data.path='1'", "hydra.run.dir=1"]
    assert (done.returncode, done.stdout) == (0, f"{wanted}\n"), done.stderr
