"""JoeyNMT's transformer, trained and translating by its own functions.

    python train_joeynmt.py JOB.json train|translate

Runs in an environment of its own, which lacks this package: `scripts.quality.programs` writes the job.
The recipe is that of JoeyNMT's configs/iwslt14_deen_bpe.yaml, but for the sizes, dropout, and the texts, which are cut
into subwords already.
"""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import time
from pathlib import Path
from typing import Any

import driver
import joeynmt.builders
import torch
from joeynmt import __version__
from joeynmt.helpers import load_checkpoint
from joeynmt.prediction import translate as translate_lines
from joeynmt.training import TrainManager
from joeynmt.training import train as train_model


class Plateau(torch.optim.lr_scheduler.ReduceLROnPlateau):
    """Without an argument that JoeyNMT gives and torch no longer takes."""

    def __init__(self, *args: Any, verbose: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)


joeynmt.builders.ReduceLROnPlateau = Plateau
SPECIALS = {"unk": 0, "pad": 1, "bos": 2, "eos": 3}
BEAMS = 5


def recipe(job: dict[str, Any]) -> dict[str, Any]:
    """The optimization: the published recipe, or that of our experiment."""
    own = {"learning_rate": 0.0003, "scheduling": "plateau", "patience": 5, "decrease_factor": 0.7}
    ours = {
        "learning_rate": job["learning_rate"],
        "learning_rate_warmup": job["warmup_steps"],
        "scheduling": "warmupinversesquareroot",
        "clip_grad_norm": 1.0,
        "adam_betas": [0.9, 0.98],
    }
    return {
        "optimizer": "adamw",
        "label_smoothing": job["label_smoothing"],
        "batch_size": job["batch_tokens"] // 2,  # of one side
        "batch_type": "token",
        **(ours if job["recipe"] == "ours" else own),
    }


def configuration(job: dict[str, Any], work: Path) -> dict[str, Any]:
    texts, sizes = Path(job["texts"]), job["sizes"]
    words = work / "vocabulary.txt"
    tokens = ["<unk>", "<pad>", "<s>", "</s>", *map(str, range(4, sizes["vocabulary"]))]
    words.write_text("".join(f"{token}\n" for token in tokens))
    language = {"level": "word", "voc_file": str(words), "voc_min_freq": 1}
    layer = {
        "type": "transformer",
        "num_layers": sizes["layers"],
        "num_heads": sizes["heads"],
        "embeddings": {"embedding_dim": sizes["width"], "scale": True, "dropout": 0.0},
        "hidden_size": sizes["width"],
        "ff_size": sizes["feedforward"],
        "dropout": job["dropout"],
        "layer_norm": "pre",
        "activation": "relu",
    }
    return {
        "name": "quality",
        "joeynmt_version": __version__,
        "model_dir": str(work),
        "use_cuda": False,
        "random_seed": job["seed"],
        "normalization": "tokens",
        "data": {
            "train": str(texts / "train"),
            "dev": str(texts / "valid"),
            "dataset_type": "plain",
            "src": {"lang": "source", **language},
            "trg": {"lang": "target", **language},
            "special_symbols": {f"{name}_id": number for name, number in SPECIALS.items()},
        },
        "testing": {"n_best": 1, "beam_size": BEAMS, "beam_alpha": 1.0, "batch_size": 1024, "batch_type": "token"}
        | {"eval_metrics": [], "load_model": str(work / "latest.ckpt")},
        "training": {
            **recipe(job),
            "learning_rate_min": 1e-8,
            "normalization": "tokens",
            "early_stopping_metric": "ppl",
            "epochs": 10**6,
            "validation_freq": 1000,
            "logging_freq": 50,
            "print_valid_sents": [],
            "keep_best_ckpts": 1,
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "embed_init_gain": 1.0,
            "init_gain": 1.0,
            "bias_initializer": "zeros",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": layer,
            "decoder": layer,
        },
    }


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt  # which JoeyNMT takes for the end of training, and saves


def train(job: dict[str, Any], work: Path) -> dict[str, Any]:
    whole = TrainManager.train_and_validate
    found: dict[str, Any] = {}

    def timed(manager: Any, *args: Any, **kwargs: Any) -> None:
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, job["seconds"])
        begin = time.monotonic()
        try:
            whole(manager, *args, **kwargs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        found["updates"], found["train_seconds"] = manager.stats.steps, time.monotonic() - begin
        found["parameters"] = sum(p.numel() for p in manager.model.parameters() if p.requires_grad)

    TrainManager.train_and_validate = timed
    train_model(rank=0, world_size=0, cfg=configuration(job, work), skip_test=True)
    load_checkpoint(work / "latest.ckpt", torch.device("cpu"))  # raises where it was not written
    return {**found, "version": __version__, "settings": recipe(job)}


def translate(job: dict[str, Any], work: Path) -> dict[str, Any]:
    sys.stdin = io.StringIO((Path(job["texts"]) / "test.source").read_text())
    begin = time.monotonic()
    with contextlib.redirect_stdout(io.StringIO()) as written:  # 2.3.0 cannot write into a file
        translate_lines(configuration(job, work))
    (work / "test.output").write_text(written.getvalue())
    return {"translation_seconds": time.monotonic() - begin, "search": f"beam {BEAMS}"}


if __name__ == "__main__":
    driver.run(train, translate)
