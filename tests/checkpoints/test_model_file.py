"""Checkpoints and exports load completely; anything else is refused."""

from __future__ import annotations

import io
import os
import pickle
import random
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from scaleformer.checkpoints.model_file import export_model, find_checkpoint, load_model
from scaleformer.checkpoints.package import make_package
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.system.measure import measured
from tests.helpers import make_batch

TEXTS = [f"the number {a} meets the letter {b}" for a in range(40) for b in "abcdefgh"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, 302)


@pytest.fixture
def run(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A run directory with a best checkpoint, as the trainer leaves it."""
    torch.manual_seed(1)
    size = tokenizer.vocab_size
    config = ModelConfig(size, size, encoder_layers=1, decoder_layers=1, width=16, feedforward=16, heads=2)
    weights = {f"model.{name}": tensor for name, tensor in Transformer(config).state_dict().items()}
    package = make_package(config, {"data": {"path": "here"}, "list": (1, 2)}, tokenizer, tokenizer)
    (tmp_path / "checkpoints").mkdir()
    torch.save({"scaleformer": package, "state_dict": weights}, tmp_path / "checkpoints" / "best.ckpt")
    return tmp_path


def change(run: Path, **changes: object) -> Path:
    path = run / "checkpoints" / "best.ckpt"
    content = torch.load(path, weights_only=True)
    content["scaleformer"].update({k: v for k, v in changes.items() if k in content["scaleformer"]})
    content.update({k: v for k, v in changes.items() if k in content})
    torch.save(content, path)
    return path


def test_the_state_of_the_optimizer_is_not_read(run: Path) -> None:
    path = run / "checkpoints" / "best.ckpt"
    torch.save({**torch.load(path, weights_only=True), "optimizer_states": torch.zeros(2**26)}, path)  # 256 MiB
    with measured() as cost:
        load_model(run)
    assert cost.memory_growth_bytes < 2**26


def test_run_checkpoint_and_export_are_the_same_model(run: Path, tokenizer: Tokenizer, tmp_path: Path) -> None:
    loaded = load_model(run)
    assert loaded.config == {"data": {"path": "here"}, "list": [1, 2]}
    assert loaded.source_tokenizer.proto == tokenizer.proto
    export_model(loaded, tmp_path / "exported")
    assert not list((tmp_path / "exported").glob("*.ckpt"))
    batch = make_batch([([3, 4], [2, 5])])
    expected = loaded.model(batch)
    for path in (run / "checkpoints" / "best.ckpt", tmp_path / "exported"):
        again = load_model(path)
        assert not again.model.training
        assert again.target_tokenizer.proto == tokenizer.proto
        assert again.config == loaded.config
        torch.testing.assert_close(again.model(batch), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (
            "scaleformer.checkpoints.model_file.save_file",
            SafetensorError("I/O error: No space left on device (os error 28)"),
        ),
        ("pathlib.Path.write_text", OSError(28, "No space left on device")),
    ],
    ids=["weights", "configuration"],
)
def test_a_full_disk_leaves_no_partial_export(run: Path, tmp_path: Path, monkeypatch, function: str, error: Exception):
    def full(*_: object, **__: object) -> None:
        raise error

    loaded = load_model(run)
    monkeypatch.setattr(function, full)
    with pytest.raises(OSError, match=r"the model cannot be written \(.*No space left on device") as caught:
        export_model(loaded, tmp_path / "new" / "exported")
    assert caught.value.filename == str(tmp_path / "new" / "exported")
    assert list((tmp_path / "new").iterdir()) == []


def test_the_last_checkpoint_replaces_a_missing_best(run: Path) -> None:
    (run / "checkpoints" / "best.ckpt").rename(run / "checkpoints" / "last.ckpt")
    assert find_checkpoint(run).name == "last.ckpt"


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_a_hostile_pickle_does_not_run(run: Path) -> None:
    marker = run / "executed"

    class Hostile:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(marker),)

    path = run / "hostile.ckpt"
    torch.save({"scaleformer": Hostile(), "state_dict": {}}, path)
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        load_model(path)
    path.write_bytes(pickle.dumps(Hostile()))
    with pytest.raises(ValueError, match="not a readable checkpoint"):
        load_model(path)
    assert not marker.exists()


def test_a_truncated_checkpoint_is_reported(run: Path) -> None:
    path = run / "checkpoints" / "best.ckpt"
    content = path.read_bytes()
    for size in (0, 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"best\.ckpt: not a readable checkpoint") as error:
            load_model(run)
        assert "\n" not in str(error.value)


def test_an_unknown_format_is_reported(run: Path) -> None:
    change(run, format=0)
    with pytest.raises(ValueError, match="format 0, but this version reads format 1"):
        load_model(run)


def test_a_tokenizer_that_does_not_fit_is_named(run: Path) -> None:
    other = Tokenizer.train(TEXTS, 300)
    change(run, source_tokenizer=torch.frombuffer(bytearray(other.proto), dtype=torch.uint8))
    with pytest.raises(ValueError, match="source tokenizer has 300 pieces and the model 302"):
        load_model(run)


def test_weights_that_do_not_fit_are_named(run: Path) -> None:
    change(run, state_dict={"model.encoder_norm.weight": torch.ones(16)})
    with pytest.raises(ValueError, match="the weights do not fit"):
        load_model(run)


def test_files_that_are_not_checkpoints_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such run"):
        load_model(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"wanted checkpoints/best\.ckpt"):
        load_model(tmp_path)
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(ValueError, match="not a scaleformer checkpoint"):
        load_model(tmp_path / "other.ckpt")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"width": 16, "wings": 2}}, "cannot build its model: .*wings"),
        ({"model": {"source_vocabulary": 290, "target_vocabulary": 290, "width": "x"}}, "cannot build its model"),
        ({"model": []}, "has no model"),
        ({"config": None, "source_tokenizer": [1]}, "has no config and no source_tokenizer"),
        ({"target_tokenizer": torch.zeros(3, dtype=torch.uint8)}, "target tokenizer: not a sentencepiece model"),
        ({"state_dict": {"model.w": 1}}, "its weights are not named tensors"),
        ({"state_dict": [torch.ones(1)]}, "its weights are not named tensors"),
    ],
    ids=["unknown setting", "setting of another type", "list", "none", "tokenizer", "number", "weights without names"],
)
def test_a_checkpoint_with_wrong_contents_is_named(run: Path, changes: dict[str, object], message: str) -> None:
    path = change(run, **changes)
    with pytest.raises(ValueError, match=message) as error:
        load_model(run)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol", "ignore:TypedStorage is deprecated")
@pytest.mark.parametrize("seed", range(3))
def test_hostile_bytes_are_refused(run: Path, seed: int) -> None:
    """Random bytes change anywhere, most often in the archive's directory; also pickles with correct checksums."""
    path, chance = run / "checkpoints" / "best.ckpt", random.Random(seed)
    whole = path.read_bytes()
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 9)):
            place = chance.randrange(len(data)) if chance.random() < 0.3 else -chance.randrange(1, 4000)
            data[place] = chance.randrange(256)
        path.write_bytes(data)
        with suppress(ValueError):
            load_model(run)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(60):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in parts.items():
                data = bytearray(content)
                if name.endswith("data.pkl"):
                    for _ in range(chance.randrange(1, 5)):
                        data[chance.randrange(len(data))] = chance.randrange(256)
                archive.writestr(name, bytes(data))
        with suppress(ValueError):
            load_model(run)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.yaml", b"- a list\n"),
        ("config.yaml", b"tied: {a: b}\n"),
        ("config.yaml", b"\xff"),
        ("config.yaml", b"a: [\n"),
        ("model.safetensors", b""),
        ("source.model", None),
    ],
    ids=["list", "tied to nothing", "bytes", "no YAML", "empty weights", "no tokenizer"],
)
def test_a_broken_export_is_named(run: Path, tmp_path: Path, name: str, content: bytes | None) -> None:
    export = tmp_path / "export"
    export_model(load_model(run), export)
    if content is None:
        (export / name).unlink()
    else:
        (export / name).write_bytes(content)
    with pytest.raises(ValueError, match="not a complete exported model") as error:
        load_model(export)
    assert "\n" not in str(error.value)
