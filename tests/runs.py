"""A run directory with a small untrained model, as the trainer leaves one, for tests of what follows training."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import torch

from scaleformer.checkpoints.package import FORMAT, make_package
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.training.resume import record_overrides

DOCUMENTS = [
    {"id": "north/one", "source": ["the cat sees", "it runs"], "target": ["die katze sieht", "sie rennt"]},
    {"id": "south/two", "source": ["a dog"], "target": ["ein hund"]},
    {"id": "north/three", "source": ["a house", "a tree", "a cat"], "target": ["ein haus", "ein baum", "eine katze"]},
]

#: settings of a run, as far as the tests of resuming ask for them
CONFIG = {
    "model": {
        "width": 16,
        "dropout": 0.1,
        "sites": {"cross": {"name": "softmax"}, "decoder": None},
        "attention": {"name": "scaleformer", "horizon": 16},
    },
    "tokenizer": {"vocab_size": 290},
    "optimizer": {"name": "adamw", "learning_rate": 1e-3},
    "init_from": None,
    "freeze": [],
    "trainer": {"max_steps": 9},
}

#: the parts of a model file, without content
EMPTY: dict[str, Any] = {name: torch.zeros(0) for name in ("source_tokenizer", "target_tokenizer")}
EMPTY |= {"format": FORMAT, "model": {}, "config": {}, "longest_segment": None, "segmentation": {}, "parent": None}


@functools.cache
def tokenizer() -> Tokenizer:
    """A vocabulary of bytes and a few letters."""
    return Tokenizer.train([text for d in DOCUMENTS for side in ("source", "target") for text in d[side]], 302)


def write_corpus(folder: Path, split: str = "test", documents: list[dict[str, Any]] = DOCUMENTS) -> Path:
    """A folder with one split as JSON Lines."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(document, ensure_ascii=False) + "\n" for document in documents]
    (folder / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def make_run(
    folder: Path, config: dict[str, Any] | None = None, attention: dict[str, Any] | None = None, seed: int = 1,
    **options: Any,
) -> Path:  # fmt: skip
    """`config` is the configuration of the run: data, decoding ... Short outputs keep an untrained model quick. It
    writes letters, since single bytes would make no text."""
    torch.manual_seed(seed)
    size = tokenizer().vocab_size
    options |= {} if attention is None else {"attention": attention}
    model = ModelConfig(size, size, encoder_layers=1, decoder_layers=1, width=16, feedforward=16, heads=2, **options)
    transformer = Transformer(model)
    bytes_of = [token for token in range(size) if tokenizer().piece(token).startswith("<0x")]
    with torch.no_grad():
        transformer.target_embedding.weight[bytes_of] = 0.0
    weights = {f"model.{name}": tensor for name, tensor in transformer.state_dict().items()}
    decoding = {"strategy": "greedy", "max_length_ratio": 0.2, "max_length_offset": 3}
    package = make_package(model, {"decoding": decoding, **(config or {})}, tokenizer(), tokenizer())
    (folder / "checkpoints").mkdir(parents=True)
    torch.save({"scaleformer": package, "state_dict": weights}, folder / "checkpoints" / "best.ckpt")
    return folder


def make_recorded_run(folder: Path) -> Path:
    """A run of `CONFIG`, whose command line is recorded."""
    run = make_run(folder / "it's a run", CONFIG)
    record_overrides(run, ["experiment=smoke", "seed=3"])
    return run
