"""Folders in Hugging Face's layout that cannot be read: one line says what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from scaleformer.checkpoints.model_file import load_model
from tests.public_models import make


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    make(folder := tmp_path_factory.mktemp("models") / "marian", "marian")
    return folder


def edit(folder: Path, **settings: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def shortened(folder: Path) -> None:
    path = folder / "vocab.json"
    ids = json.loads(path.read_text())
    path.write_text(json.dumps({piece: n for piece, n in ids.items() if n != 30}))


class Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("run",))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"x": Code()}, folder / "pytorch_model.bin")


def mapped(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": ["a"]}')


def indexed(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": 3}}')


def biased(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file(load_file(path) | {"final_logits_bias": torch.zeros(1, 3)}, path)


WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    "architecture": (
        lambda f: edit(f, model_type="t5"),
        r"its architecture is t5: scaleformer reads Marian \(OPUS-MT\), M2M100 and NLLB-200",
    ),
    "code": (lambda f: edit(f, auto_map={"AutoModel": "x.Y"}), "brings code of its own .* never runs"),
    "activation": (lambda f: edit(f, activation_function="mish"), "its activation is mish"),
    "sizes": (lambda f: edit(f, decoder_ffn_dim=12), "its encoder and decoder differ in ffn_dim, 64 and 12"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "no weights here: wanted model.safetensors"),
    "no vocabulary": (lambda f: (f / "source.spm").unlink(), "source.spm is missing: copy all files"),
    "cut weights": (lambda f: cut(f / "model.safetensors"), "model.safetensors is cut or damaged"),
    "cut vocabulary": (lambda f: cut(f / "vocab.json"), "vocab.json is not readable as JSON"),
    "cut pieces": (lambda f: cut(f / "target.spm"), "sentencepiece model is damaged"),
    "cut settings": (lambda f: cut(f / "config.json"), "config.json: not readable as JSON"),
    "other vocabulary": (shortened, r"vocab.json has \d+ pieces and its weights \d+ rows: they are of two models"),
    "layers": (lambda f: edit(f, encoder_layers=3), "the weights do not fit"),
    "list of weights": (mapped, r"its files do not fit together \(.*\): use a complete folder"),
    "numbers of weights": (indexed, r"its files do not fit together \(.*\): use a complete folder"),
    "list of pieces": (lambda f: (f / "vocab.json").write_text("[1]"), r"its files do not fit together \(.*\)"),
    "missing vocabulary": (lambda f: (f / "vocab.json").unlink(), "^[^:]*: vocab.json is missing: copy all files"),
    "short bias": (biased, r"its files do not fit together \(index .*\): use a complete folder"),
    "pickle": (pickled, "holds more than tensors, and scaleformer runs no code of a model"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_read_is_said_in_one_line(what: str, marian: Path, tmp_path: Path) -> None:
    shutil.copytree(marian, folder := tmp_path / "model")
    change, message = WRONG[what]
    change(folder)
    with pytest.raises(ValueError, match=message) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)
