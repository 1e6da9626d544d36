"""Sharded training: the same numbers as ordinary training, and checkpoints independent of the sharding."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from scaleformer.checkpoints.model_file import export_model, load_model
from tests.processes import assert_same, finish, tensors_of
from tests.trainings import read_metrics

OPTIONS = (
    "trainer.log_every_n_steps=1",
    "trainer.max_steps=6",
    "trainer.val_check_interval=4",
    "callbacks.checkpoint.every_n_train_steps=2",
    "callbacks.validation_bleu.examples=0",
    "trainer.compile=auto",  # without effect for several processes
    "model.dropout=0",
)
COLUMNS = ("train/loss", "train/gradient_norm", "val/loss")


def train(run: Path, cache: Path, strategy: str, *more: str) -> None:
    finish(run, cache, *OPTIONS, *more, world=2, strategy=strategy)


def numbers(run: Path) -> list[list[float]]:
    return [[float(row[column]) for column in COLUMNS if row[column]] for row in read_metrics(run)]


def content(run: Path) -> dict:
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, Path]:
    """The same run with whole and with sharded weights."""
    folders = {strategy: tmp_path_factory.mktemp(strategy) / "run" for strategy in ("ddp", "fsdp")}
    for strategy, folder in folders.items():
        train(folder, cache, strategy)
    return folders


def test_sharded_training_equals_ordinary_training(runs: dict[str, Path], tmp_path: Path) -> None:
    torch.testing.assert_close(numbers(runs["fsdp"]), numbers(runs["ddp"]), rtol=1e-5, atol=1e-6)
    whole, sharded = content(runs["ddp"]), content(runs["fsdp"])
    assert whole.keys() == sharded.keys()
    for key in ("state_dict", "optimizer_states", "lr_schedulers"):
        pairs = zip(tensors_of(sharded[key]), tensors_of(whole[key]), strict=True)
        for ours, theirs in pairs:
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert [g["params"] for g in sharded["optimizer_states"][0]["param_groups"]] == [
        g["params"] for g in whole["optimizer_states"][0]["param_groups"]
    ]
    export_model(load_model(runs["fsdp"] / "checkpoints" / "last.ckpt"), tmp_path / "export")
    for name, weight in load_model(tmp_path / "export").model.state_dict().items():
        torch.testing.assert_close(weight, sharded["state_dict"][f"model.{name}"], rtol=0, atol=0)


def test_penalties_and_centroids(cache: Path, tmp_path: Path) -> None:
    """Weights of a layer that the loss reads after its forward pass, and buffers that the backward pass moves."""
    sites = {
        "decoder": {"name": "adaptive_span", "max_span": 8, "ramp": 4, "penalty": 0.01},
        "encoder": {"name": "routing", "window": 2, "clusters": 3, "members": 2, "decay": 0.9},
    }
    options = [
        *(f"model/attention@model.sites.{site}={choice.pop('name')}" for site, choice in sites.items()),
        *(f"model.sites.{site}.{name}={value}" for site, choice in sites.items() for name, value in choice.items()),
        "trainer.max_steps=4",
    ]
    for strategy in ("ddp", "fsdp"):
        train(tmp_path / strategy, cache, strategy, *options)
    torch.testing.assert_close(numbers(tmp_path / "fsdp"), numbers(tmp_path / "ddp"), rtol=1e-5, atol=1e-6)
    whole, sharded = (content(tmp_path / strategy)["state_dict"] for strategy in ("ddp", "fsdp"))
    torch.testing.assert_close(sharded, whole, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> dict[str, Path]:
    """The first three steps of both runs."""
    folders = {strategy: tmp_path_factory.mktemp(strategy) / "half" for strategy in ("ddp", "fsdp")}
    for strategy, folder in folders.items():
        train(folder, cache, strategy, "trainer.max_steps=3")
    return folders


@pytest.mark.parametrize(("first", "then"), [("fsdp", "fsdp"), ("fsdp", "ddp"), ("ddp", "fsdp")])
def test_any_strategy_resumes_the_checkpoint_of_another(
    runs: dict[str, Path], halves: dict[str, Path], cache: Path, tmp_path: Path, first: str, then: str
) -> None:
    run = shutil.copytree(halves[first], tmp_path / "run")
    train(run, cache, then, f"resume={run}")
    torch.testing.assert_close(numbers(run), numbers(runs["ddp"]), rtol=1e-5, atol=1e-6)
    if first == then:
        assert_same(runs["fsdp"], run)
