"""A run exported, with its attention as trained and with other options."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scaleformer.checkpoints.model_file import load_model
from scaleformer.translation.translator import Translator
from tests.commands.calls import error_line, run_command
from tests.runs import DOCUMENTS, make_run

ATTENTION = {"name": "segment_recall", "near": 0, "kept": 8, "horizon": 4}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", attention=ATTENTION)


def test_exports_translate_as_the_run_does(run: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    code, out, err = run_command(
        monkeypatch, capsys, "export", f"checkpoint={run}", f"output={tmp_path / 'new' / 'model'}"
    )
    assert (code, err) == (0, "")
    assert f"to {tmp_path / 'new' / 'model'}" in out
    names = sorted(path.name for path in (tmp_path / "new" / "model").iterdir())
    assert names == ["config.yaml", "model.safetensors", "source.model", "target.model"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["model"]
    assert (
        len({path.stat().st_mode for path in (tmp_path / "new" / "model").iterdir()}) == 1
    )  # all have the same permissions
    sources = [document["source"] for document in DOCUMENTS]
    exported = Translator.load(tmp_path / "new" / "model", "cpu")
    assert exported.translate(sources) == Translator.load(run, "cpu").translate(sources)


def test_other_options_of_the_attention(run: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    for name, more in (("as_trained", []), ("changed", ["attention={kept: 32, recency: 0.5}"])):
        result = run_command(monkeypatch, capsys, "export", f"checkpoint={run}", f"output={tmp_path / name}", *more)
        assert result[0] == 0, result[2]
    as_trained, changed = load_model(tmp_path / "as_trained"), load_model(tmp_path / "changed")
    assert as_trained.model.config.attention == ATTENTION
    assert changed.model.config.attention == {**ATTENTION, "kept": 32, "recency": 0.5}
    weights = as_trained.model.state_dict()
    for name, weight in changed.model.state_dict().items():
        torch.testing.assert_close(weight, weights[name], rtol=0, atol=0)
    assert as_trained.sha256 != changed.sha256  # their results must not be mixed
    long = [["the cat sees", "a dog", "it runs", "a house"] * 3]
    assert len(Translator(changed).translate(long)) == 1


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        (
            "{keep: 3}",
            "has no option keep; it has algorithm, document_layers, explore, horizon, kept, near, recency, shut, slope",
        ),
        ("{near: 2}", "near cannot be changed after training: the weights of"),
        ("{kept: 0}", "model.attention.kept is 0: it must be an int of at least 1"),
        ("{kept: many}", "model.attention.kept is 'many': it must be an int"),
        ("3", "attention is 3: it must be {name: value} or null"),
    ],
)
def test_what_cannot_be_changed(run: Path, tmp_path: Path, monkeypatch, capsys, attention: str, message: str) -> None:
    arguments = f"checkpoint={run}", f"output={tmp_path / 'out'}", f"attention={attention}"
    assert message in error_line(run_command(monkeypatch, capsys, "export", *arguments))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_nothing_is_overwritten(run: Path, monkeypatch, capsys) -> None:
    before = sorted(run.rglob("*"))
    error = error_line(run_command(monkeypatch, capsys, "export", f"checkpoint={run}", f"output={run}"))
    assert f"{run}: already exists and is not an empty folder: name an empty folder or a new one" in error
    assert sorted(run.rglob("*")) == before
