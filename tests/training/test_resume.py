"""The command line of a resumed run, and what must not change."""

from __future__ import annotations

import os
import pickle
import re
import warnings
from copy import deepcopy
from functools import reduce
from pathlib import Path

import pytest
import torch
import yaml

from scaleformer.checkpoints.lightning_io import SafeCheckpointIO
from scaleformer.training.resume import (
    OVERRIDES,
    check_settings,
    last_checkpoint,
    merge_overrides,
    open_checkpoint,
    quoted,
    read_tokenizers,
    record_overrides,
    resumed_arguments,
    unquoted,
)
from scaleformer.training.run_folder import write_status
from tests.runs import make_run, tokenizer

CONFIG = {
    "model": {
        "width": 16,
        "dropout": 0.1,
        "sites": {"cross": {"name": "softmax"}, "decoder": None},
        "attention": {"name": "scaleformer", "horizon": 16},
    },
    "tokenizer": {"vocab_size": 290, "sample_alpha": 0.0},
    "optimizer": {"name": "adamw", "learning_rate": 1e-3},
    "trainer": {"max_steps": 9},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = make_run(tmp_path / "it's a run", CONFIG)
    record_overrides(run, ["experiment=smoke", "seed=3"])
    return run


def test_without_resume_nothing_changes() -> None:
    for arguments in ([], ["seed=1", "resume=null"], ["resume="], ["experiment=smoke", "hydra.run.dir=x"]):
        assert resumed_arguments(arguments) == arguments


def test_the_run_says_the_rest(run: Path) -> None:
    new = [f"resume={run}", "trainer.max_steps=9", "seed=4"]
    assert resumed_arguments(new) == [
        "experiment=smoke",
        *new,
        f"hydra.run.dir={quoted(str(run))}",
        "hydra.output_subdir=null",
    ]


def test_another_folder_may_be_named(run: Path) -> None:
    arguments = resumed_arguments([f"resume={quoted(str(run))}", "hydra.run.dir=elsewhere"])
    assert [a for a in arguments if a.startswith("hydra.run.dir")] == ["hydra.run.dir=elsewhere"]


def test_overrides_do_not_grow(run: Path) -> None:
    for _ in range(3):
        arguments = resumed_arguments([f"resume={run}", "trainer.max_steps=9", "+new=1"])
        record_overrides(run, [a for a in arguments if not a.startswith("hydra.")])
    recorded = yaml.safe_load((run / OVERRIDES).read_text(encoding="utf-8"))
    assert recorded == ["experiment=smoke", "seed=3", f"resume={run}", "trainer.max_steps=9", "+new=1"]


def test_the_last_override_of_a_key_counts_in_its_place() -> None:
    assert merge_overrides(["a=1", "b=1", "a=2", "+a=3", "~b"]) == ["b=1", "a=2", "+a=3", "~b"]


@pytest.mark.parametrize("value", ["runs/a b", "it's", "a\\b", '"', ""])
def test_quotes_there_and_back(value: str) -> None:
    assert unquoted(quoted(value)) == value
    assert unquoted(value) == value


def test_double_quotes() -> None:
    assert unquoted('"it\'s \\"it\\""') == 'it\'s "it"'


def test_what_is_no_run_is_named(tmp_path: Path, run: Path) -> None:
    with pytest.raises(ValueError, match=r"no run to go on with \(.*overrides\.yaml is missing"):
        resumed_arguments([f"resume={tmp_path}"])
    with pytest.raises(ValueError, match=rf"not a checkpoint: resume={re.escape(str(run))}\)"):
        resumed_arguments([f"resume={run / 'checkpoints' / 'best.ckpt'}"])
    for content in ("a: [", "a: 1", "[1, 2]"):
        (run / OVERRIDES).write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match="no run to go on with") as error:
            resumed_arguments([f"resume={run}"])
        assert "\n" not in str(error.value)
    record_overrides(run, [])
    (run / "checkpoints" / "best.ckpt").unlink()
    with pytest.raises(ValueError, match=r"wanted checkpoints/best\.ckpt or checkpoints/last\.ckpt"):
        resumed_arguments([f"resume={run}"])


def test_the_last_checkpoint_before_the_best(run: Path) -> None:
    assert last_checkpoint(run).name == "best.ckpt"
    (run / "checkpoints" / "last.ckpt").write_bytes(b"")
    assert last_checkpoint(run).name == "last.ckpt"


def test_tokenizers_come_from_the_checkpoint(run: Path) -> None:
    source, target = read_tokenizers(open_checkpoint(run)[1])
    assert source is target
    assert source.proto == tokenizer().proto


@pytest.mark.parametrize(
    ("group", "key", "value", "refused"),
    [
        ("model", "width", 32, "model.width=32, but the run has model.width=16"),
        ("model", "attention", {"name": "softmax"}, "model.attention.name=softmax"),
        ("model", "sites", {"cross": None}, "model.sites.cross=None, but the run has model.sites.cross.name=softmax"),
        ("model", "sites", {"decoder": {"name": "a"}}, "decoder.name=a, but the run has model.sites.decoder=None"),
        ("tokenizer", "vocab_size", 300, "tokenizer.vocab_size=300"),
        ("optimizer", "learning_rate", 1e-4, "optimizer.learning_rate=0.0001"),
        ("model", "dropout", 0.3, None),
        ("tokenizer", "sample_alpha", 0.1, None),
    ],
    ids=["width", "attention", "site left out", "new site", "vocabulary", "rate", "dropout", "sampling"],
)
def test_settings_that_the_weights_are_made_for_stay(run: Path, group, key, value, refused) -> None:
    config = {**CONFIG, group: {**CONFIG[group], key: value}}
    package = open_checkpoint(run)[1]
    if refused is None:
        with pytest.warns(UserWarning, match=rf"resume: {group}\.{key}={value} \(was {CONFIG[group][key]}\)"):
            check_settings(package, config)
        return
    with pytest.raises(ValueError, match=refused):
        check_settings(package, config)


@pytest.mark.parametrize(("option", "old", "new"), [("explore", 1.0, 0.0), ("algorithm", "auto", "linear")])
@pytest.mark.parametrize("where", ["attention", "sites.cross"])
def test_how_an_attention_is_trained_and_computed_may_change(run: Path, where: str, option: str, old, new) -> None:
    package, config = open_checkpoint(run)[1], deepcopy(CONFIG)
    for settings, value in ((package["config"], old), (config, new)):
        place = reduce(lambda group, key: group[key], where.split("."), settings["model"])
        place[option] = value
    with pytest.warns(UserWarning, match=rf"resume: model\.{where}\.{option}={new} \(was {old}\): from here on"):
        check_settings(package, config)


def test_a_default_that_has_changed_is_spelled_out_as_it_was(run: Path) -> None:
    package = open_checkpoint(run)[1]
    package["config"]["model"]["attention"]["near"] = None
    config = {**CONFIG, "model": {**CONFIG["model"], "attention": {**CONFIG["model"]["attention"], "near": 3}}}
    with pytest.raises(ValueError, match=r"give model\.attention\.near=null \(a default may have changed"):
        check_settings(package, config)


def test_another_format_is_named(run: Path) -> None:
    path = last_checkpoint(run)
    content = torch.load(path, weights_only=True)
    content["scaleformer"]["format"] = 0
    torch.save(content, path)
    with pytest.raises(ValueError, match="format 0, this version goes on with format 1"):
        open_checkpoint(run)


def settle(run: Path, age: int) -> Path:
    """A run as train.py leaves one, last written to `age` seconds ago."""
    record_overrides(make_run(run, CONFIG), [f"seed={age}"])
    checkpoint = run / "checkpoints" / "best.ckpt"
    os.utime(checkpoint, (1e9 - age, 1e9 - age))
    return run


def test_auto_is_the_newest_run_of_the_experiment_that_is_not_finished(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert resumed_arguments(["resume=auto", "seed=5"]) == ["seed=5"]  # nothing there
    old, new, done = (settle(Path("runs/small") / name, age) for age, name in ((30, "a"), (20, "b"), (10, "c")))
    settle(Path("runs/default/d"), 0)
    write_status(done, "finished", 9)
    arguments = ["experiment=small", "resume=auto"]
    assert f"resume={quoted(str(new))}" in resumed_arguments(arguments)
    write_status(new, "interrupted", 9)
    assert "seed=20" in resumed_arguments(arguments)
    (new / "status.json").unlink()
    assert "seed=20" in resumed_arguments(arguments)  # nothing says that it is finished
    write_status(new, "finished", 9)
    assert f"resume={quoted(str(old))}" in resumed_arguments(arguments)
    monkeypatch.setattr("scaleformer.training.resume.is_claimed", lambda run: True)
    assert resumed_arguments(arguments) == ["experiment=small"]


def test_auto_in_a_named_folder_is_the_run_there_or_a_new_one(run: Path, tmp_path: Path) -> None:
    place = f"hydra.run.dir={quoted(str(run))}"
    assert resumed_arguments(["resume=auto", place])[-3:] == [
        place,
        f"resume={quoted(str(run))}",
        "hydra.output_subdir=null",
    ]
    assert resumed_arguments(["resume=auto", "hydra.run.dir=new"]) == ["hydra.run.dir=new"]


def test_several_processes_want_a_named_folder(run: Path, monkeypatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"several processes .* name their folder by hydra\.run\.dir=RUN"):
        resumed_arguments(["experiment=smoke"])
    assert resumed_arguments(["hydra.run.dir=x"]) == ["hydra.run.dir=x"]
    assert resumed_arguments([f"resume={run}"])


def test_a_run_made_from_a_config_goes_on_from_its_own(run: Path) -> None:
    record = {"hydra": {"runtime": {"choices": {"hydra/env": "default"}}}}
    (run / ".hydra" / "hydra.yaml").write_text(yaml.safe_dump(record), encoding="utf-8")
    flags = ["--config-path", str(run.resolve()), "--config-name", "config"]
    arguments = resumed_arguments([f"resume={run}"])
    assert arguments[:4] == flags
    assert resumed_arguments(arguments)[:5] == arguments[:5]  # as a process of another device sees them
    record["hydra"]["runtime"]["choices"]["experiment"] = "smoke"
    (run / ".hydra" / "hydra.yaml").write_text(yaml.safe_dump(record), encoding="utf-8")
    assert resumed_arguments([f"resume={run}"])[0] == "experiment=smoke"


def test_a_broken_checkpoint_gives_way_to_the_one_before(run: Path) -> None:
    folder = run / "checkpoints"
    content = (folder / "best.ckpt").read_bytes()
    wrong_bit = bytearray(content)
    wrong_bit[len(content) // 2] ^= 1
    for broken in (content[:-1], content[:1000], b"", bytes(wrong_bit)):
        (folder / "last.ckpt").write_bytes(broken)
        (folder / "previous.ckpt").write_bytes(content)
        with pytest.warns(UserWarning, match=r"last\.ckpt: not a readable checkpoint .*: going on from previous\.ckpt"):
            assert open_checkpoint(run)[0] == folder / "previous.ckpt"
        (folder / "previous.ckpt").write_bytes(broken)
        with pytest.warns(UserWarning, match=r"going on from best\.ckpt instead"):
            assert open_checkpoint(run)[0] == folder / "best.ckpt"
    (folder / "best.ckpt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"last\.ckpt: not a readable checkpoint"):
        open_checkpoint(run)


def test_the_step_comes_from_the_checkpoint(run: Path) -> None:
    content = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)
    torch.save({**content, "global_step": 7}, run / "checkpoints" / "last.ckpt")
    assert open_checkpoint(run)[1]["step"] == 7


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_hostile_checkpoint_does_not_run(run: Path) -> None:
    marker = run / "executed"

    class Hostile:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(marker),)

    path = run / "checkpoints" / "best.ckpt"
    for write in (torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))):
        write({"scaleformer": Hostile(), "state_dict": {}}, path)
        with pytest.raises(ValueError, match="not a readable checkpoint"):
            open_checkpoint(run)
        with pytest.raises(ValueError, match="not a readable checkpoint"):
            SafeCheckpointIO().load_checkpoint(path)
    assert not marker.exists()


def test_an_end_that_lies_behind_the_run_is_told(run: Path) -> None:
    package = {**open_checkpoint(run)[1], "step": 7}
    with pytest.warns(UserWarning, match=r"resume: the run is at step 7, past trainer\.max_steps=6: no step follows"):
        check_settings(package, {**CONFIG, "trainer": {"max_steps": 6}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for last in (7, 8, -1):  # at its end the run is evaluated anew; -1 is without an end
            check_settings(package, {**CONFIG, "trainer": {"max_steps": last}})


def test_settings_that_leave_the_numbers_alone_change_without_a_word(run: Path) -> None:
    package = open_checkpoint(run)[1]
    package["config"].update(trainer={"max_steps": 5, "precision": "32-true"}, logger={"name": "csv"}, seed=1)
    same = {**CONFIG, "trainer": {"max_steps": 9, "precision": "32-true"}, "logger": {"name": "wandb"}, "seed": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_settings(package, {**same, "new": {"setting": 1}})
    with pytest.warns(UserWarning, match=r"resume: seed=2 \(was 1\): from here on it is another run"):
        check_settings(package, {**same, "seed": 2})
    limited = {**same["trainer"], "limit_train_batches": 7}  # type: ignore[dict-item]
    with pytest.warns(UserWarning, match=r"trainer\.limit_train_batches=7 \(was not set\): from here on"):
        check_settings(package, {**same, "trainer": limited})
