"""Which checkpoint a run is resumed from, and which settings must not change."""

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

from scaleformer.checkpoints.lightning_io import SafeCheckpointIO
from scaleformer.checkpoints.package import read_tokenizers
from scaleformer.training.resume import check_settings, last_checkpoint, merge_overrides, open_checkpoint
from tests.runs import CONFIG, make_recorded_run, tokenizer


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_recorded_run(tmp_path)


def test_the_last_override_of_a_key_wins() -> None:
    assert merge_overrides(["a=1", "b=1", "a=2", "+a=3", "~b"]) == ["b=1", "a=2", "+a=3", "~b"]


def test_the_last_checkpoint_comes_before_the_best(run: Path) -> None:
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
        ("tokenizer", "vocab_size", 312, "tokenizer.vocab_size=312"),
        ("optimizer", "learning_rate", 1e-4, "optimizer.learning_rate=0.0001"),
        ("model", "dropout", 0.3, None),
    ],
    ids=["width", "attention", "site left out", "new site", "vocabulary", "rate", "dropout"],
)
def test_settings_that_weights_depend_on_are_fixed(run: Path, group, key, value, refused) -> None:
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
    with pytest.warns(UserWarning, match=rf"resume: model\.{where}\.{option}={new} \(was {old}\): results will differ"):
        check_settings(package, config)


def test_the_old_value_of_a_changed_default_is_given(run: Path) -> None:
    package = open_checkpoint(run)[1]
    package["config"]["model"]["attention"]["near"] = None
    config = {**CONFIG, "model": {**CONFIG["model"], "attention": {**CONFIG["model"]["attention"], "near": 3}}}
    with pytest.raises(ValueError, match=r"set model\.attention\.near=null \(a default may have changed"):
        check_settings(package, config)


@pytest.mark.parametrize("place", ["attention", "sites.cross"])
def test_an_option_that_a_run_does_not_know_is_what_it_had(run: Path, place: str) -> None:
    package, config = open_checkpoint(run)[1], deepcopy(CONFIG)
    *groups, name = place.split(".")
    for settings, more in ((package["config"], {}), (config, {"document_layers": 1})):
        reduce(lambda group, key: group[key], groups, settings["model"])[name] = {"name": "segment_recall", **more}
    with pytest.raises(ValueError, match=rf"set model\.{place}\.document_layers=null \(a default may have changed"):
        check_settings(package, config)


@pytest.mark.parametrize(
    ("place", "old", "advice"),
    [
        ("attention", {"horizon": 16, "name": "scaleformer"}, "model/attention=scaleformer"),
        ("sites.cross", {"name": "softmax"}, "model/attention@model.sites.cross=softmax"),
        ("sites.decoder", None, "model/attention@model.sites.decoder=null"),
    ],
)
def test_a_different_attention_is_answered_with_the_choice_to_make(run: Path, place: str, old, advice) -> None:
    package, config = open_checkpoint(run)[1], deepcopy(CONFIG)
    *groups, name = place.split(".")
    for settings, value in ((package["config"], old), (config, {"horizon": 8, "name": "segment_recall"})):
        reduce(lambda group, key: group[key], groups, settings["model"])[name] = value
    with pytest.raises(ValueError, match=rf"set {re.escape(advice)} \(a default may have changed"):
        check_settings(package, config)


def test_an_unknown_format_is_reported(run: Path) -> None:
    path = last_checkpoint(run)
    content = torch.load(path, weights_only=True)
    content["scaleformer"]["format"] = 0
    torch.save(content, path)
    with pytest.raises(ValueError, match="format 0, but this version reads format 1"):
        open_checkpoint(run)


def test_a_broken_checkpoint_is_skipped_for_the_one_before(run: Path) -> None:
    folder = run / "checkpoints"
    content = (folder / "best.ckpt").read_bytes()
    wrong_bit = bytearray(content)
    wrong_bit[len(content) // 2] ^= 1
    for broken in (content[:-1], content[:1000], b"", bytes(wrong_bit)):
        (folder / "last.ckpt").write_bytes(broken)
        (folder / "previous.ckpt").write_bytes(content)
        with pytest.warns(
            UserWarning, match=r"last\.ckpt: not a readable checkpoint .*: continuing from previous\.ckpt"
        ):
            assert open_checkpoint(run)[0] == folder / "previous.ckpt"
        (folder / "previous.ckpt").write_bytes(broken)
        with pytest.warns(UserWarning, match=r"continuing from best\.ckpt instead"):
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


def test_a_max_steps_in_the_past_is_reported(run: Path) -> None:
    package = {**open_checkpoint(run)[1], "step": 7}
    with pytest.warns(
        UserWarning, match=r"resume: the run is at step 7, past trainer\.max_steps=6: there is nothing left to train"
    ):
        check_settings(package, {**CONFIG, "trainer": {"max_steps": 6}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for last in (7, 8, -1):  # 7 is the end of the run, which is evaluated again; -1 has no end
            check_settings(package, {**CONFIG, "trainer": {"max_steps": last}})


def test_harmless_settings_change_without_a_warning(run: Path) -> None:
    package = open_checkpoint(run)[1]
    package["config"].update(trainer={"max_steps": 5, "precision": "32-true"}, logger={"name": "csv"}, seed=1)
    same = {**CONFIG, "trainer": {"max_steps": 9, "precision": "32-true"}, "logger": {"name": "wandb"}, "seed": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_settings(package, same)
    with pytest.warns(UserWarning, match=r"resume: seed=2 \(was 1\): results will differ"):
        check_settings(package, {**same, "seed": 2})
    limited = {**same["trainer"], "limit_train_batches": 7}  # type: ignore[dict-item]
    with pytest.warns(UserWarning, match=r"trainer\.limit_train_batches=7 \(was not set\): results will differ"):
        check_settings(package, {**same, "trainer": limited})


def test_another_place_of_the_documents_is_named(run: Path, tmp_path: Path, monkeypatch) -> None:
    package = open_checkpoint(run)[1]
    package["config"] = {**CONFIG, "data": {"path": "corpus"}, "folder": str(tmp_path)}
    with pytest.warns(UserWarning, match=rf"^resume: data\.path=other \(was {tmp_path}/corpus\): the run"):
        check_settings(package, {**CONFIG, "data": {"path": "other"}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_settings(package, {**CONFIG, "data": {"path": str(tmp_path / "corpus")}})  # the same place
