"""The mean of checkpoints, weight by weight; errors name what differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from scaleformer.checkpoints.averaging import average_checkpoints
from scaleformer.checkpoints.model_file import find_checkpoint
from scaleformer.translation.translator import Translator
from tests.commands.calls import error_line, run_command
from tests.runs import make_run


@pytest.fixture
def files(tmp_path) -> list[Path]:
    """Three checkpoints whose weights are 1, 2 and 6 times those of the first."""
    found = []
    for number, factor in enumerate((1.0, 2.0, 6.0)):
        file = find_checkpoint(make_run(tmp_path / f"run{number}"))
        change(file, lambda name, weight, factor=factor: weight * factor)
        found.append(file)
    return found


def change(file: Path, function: Any) -> None:
    content = torch.load(file, weights_only=True)
    content["state_dict"] = {name: function(name, weight) for name, weight in content["state_dict"].items()}
    torch.save(content, file)


def test_the_mean_of_all_weights(files):
    first = torch.load(files[0], weights_only=True)["state_dict"]
    averaged = average_checkpoints(files)
    assert averaged["state_dict"].keys() == first.keys()
    for name, weight in averaged["state_dict"].items():
        torch.testing.assert_close(weight, first[name] * 3)
        assert weight.dtype == first[name].dtype
    assert averaged["averaged"] == [str(file) for file in files]


def test_the_command_writes_a_model_that_translates(files, tmp_path, monkeypatch, capsys):
    output = tmp_path / "new" / "mean.ckpt"
    output.parent.mkdir()
    listed = ",".join(map(str, files))
    code, out, err = run_command(monkeypatch, capsys, "average", f"checkpoints=[{listed}]", f"output={output}")
    assert code == 0, err
    assert f"averaged 3 checkpoints into {output}" in out
    assert len(Translator.load(output, "cpu").translate([["a dog"]])) == 1
    assert [path.name for path in output.parent.iterdir()] == ["mean.ckpt"]
    before = files[0].read_bytes()
    for name, problem in (
        (files[0], "exists already: give another name"),
        (output.parent / "one.ckpt", "wanted two or more different ones"),
    ):
        arguments = f"checkpoints=[{files[0]}]", f"output={name}"
        assert problem in error_line(run_command(monkeypatch, capsys, "average", *arguments))
    assert files[0].read_bytes() == before


def test_one_checkpoint_without_brackets_is_a_list_of_one(files, tmp_path, monkeypatch, capsys):
    for given in (f"{files[0]}", f"[{files[0]},{files[0]}]"):
        arguments = f"checkpoints={given}", f"output={tmp_path / 'mean.ckpt'}"
        found = error_line(run_command(monkeypatch, capsys, "average", *arguments))
        assert (
            found == f"error: checkpoints={given.strip('[]').replace(',', ', ')}: wanted two or more different ones\n"
        )


def test_a_full_disk_leaves_no_partial_checkpoint(files, tmp_path, monkeypatch, capsys):
    def full(*_: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")

    monkeypatch.setattr(torch, "save", full)
    (tmp_path / "new").mkdir()
    arguments = f"checkpoints=[{files[0]},{files[1]}]", f"output={tmp_path / 'new' / 'mean.ckpt'}"
    found = error_line(run_command(monkeypatch, capsys, "average", *arguments))
    assert f"{tmp_path / 'new' / 'mean.ckpt'}: the checkpoint cannot be written (" in found
    assert list((tmp_path / "new").iterdir()) == []


def test_differing_models_are_named(files):
    change(files[1], lambda name, weight: weight[:1] if name.endswith("norm.weight") else weight)
    with pytest.raises(ValueError, match=r"run1.*not the same weight shapes as in .*run0.*: average checkpoints of"):
        average_checkpoints(files)
    content = torch.load(files[2], weights_only=True)
    content["scaleformer"]["target_tokenizer"] = content["scaleformer"]["target_tokenizer"][:-1]
    content["scaleformer"]["model"]["dropout"] = 0.5
    torch.save(content, files[2])
    with pytest.raises(ValueError, match=r"run2.*: not the same model configuration and target tokenizer as"):
        average_checkpoints([files[0], files[2]])


def test_adapters_are_refused(files):
    for file in files[:2]:
        content = torch.load(file, weights_only=True)
        content["state_dict"]["model.encoder.0.attention.query.parametrizations.weight.0.a"] = torch.ones(2, 2)
        torch.save(content, file)
    with pytest.raises(ValueError, match=r"adapters cannot be averaged: export the models, and average these$"):
        average_checkpoints(files[:2])
