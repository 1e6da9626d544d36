"""The command line of a resumed run, and what must not change."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

from scaleformer.resume import (
    OVERRIDES,
    last_checkpoint,
    merge_overrides,
    quoted,
    read_package,
    read_tokenizers,
    record_overrides,
    resumed_arguments,
    unquoted,
)
from tests.runs import make_run, tokenizer

CONFIG = {
    "model": {"width": 16, "dropout": 0.1, "attention": {"name": "scaleformer", "horizon": 16}},
    "tokenizer": {"vocab_size": 290, "sample_alpha": 0.0},
    "optimizer": {"name": "adamw", "learning_rate": 1e-3},
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
    (run / OVERRIDES).write_text("a: [", encoding="utf-8")
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
    source, target = read_tokenizers(read_package(last_checkpoint(run), CONFIG))
    assert source is target
    assert source.proto == tokenizer().proto


@pytest.mark.parametrize(
    ("group", "key", "value", "refused"),
    [
        ("model", "width", 32, "model.width=32, but the run has model.width=16"),
        ("model", "attention", {"name": "softmax"}, "model.attention.name=softmax"),
        ("tokenizer", "vocab_size", 300, "tokenizer.vocab_size=300"),
        ("optimizer", "learning_rate", 1e-4, "optimizer.learning_rate=0.0001"),
        ("model", "dropout", 0.3, None),
        ("tokenizer", "sample_alpha", 0.1, None),
    ],
    ids=["width", "attention", "vocabulary", "rate", "dropout", "sampling"],
)
def test_settings_that_the_weights_are_made_for_stay(run: Path, group, key, value, refused) -> None:
    config = {**CONFIG, group: {**CONFIG[group], key: value}}
    if refused is None:
        assert read_package(last_checkpoint(run), config)
        return
    with pytest.raises(ValueError, match=refused):
        read_package(last_checkpoint(run), config)


def test_another_format_is_named(run: Path) -> None:
    path = last_checkpoint(run)
    content = torch.load(path, weights_only=True)
    content["scaleformer"]["format"] = 0
    torch.save(content, path)
    with pytest.raises(ValueError, match="format 0, this version goes on with format 1"):
        read_package(path, CONFIG)
