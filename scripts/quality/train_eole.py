"""eole's transformer, trained and translating by its own functions.

    python train_eole.py JOB.json train|translate

Runs in an environment of its own, which lacks this package: `scripts.quality.programs` writes the job.
The recipe is that of eole's recipes/wmt17/wmt17_ende.yaml, but for the sizes, and for its 50,000 tokens to an update:
an hour on a CPU has too few of these. The texts are cut into subwords already.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import driver
from eole.bin.run.predict import predict
from eole.bin.run.train import train as train_model
from eole.config.run import PredictConfig, TrainConfig
from eole.trainer import Trainer

BEAMS = 5


def recipe(job: dict[str, Any]) -> dict[str, Any]:
    """The optimization: the published recipe, or that of our experiment, whose peak `noam` has as a factor."""
    own = {"learning_rate": 2, "warmup_steps": 4000, "adam_beta2": 0.998, "max_grad_norm": 0}
    factor = job["learning_rate"] * math.sqrt(job["sizes"]["width"] * job["warmup_steps"])
    ours = {"learning_rate": factor, "warmup_steps": job["warmup_steps"], "adam_beta2": 0.98, "max_grad_norm": 1}
    return {
        "optim": "adamw",
        "decay_method": "noam",
        "label_smoothing": job["label_smoothing"],
        "batch_type": "tokens",
        "batch_size": job["batch_tokens"] // 2,  # of one side
        "normalization": "tokens",
        **(ours if job["recipe"] == "ours" else own),
    }


def configuration(job: dict[str, Any], work: Path) -> dict[str, Any]:
    texts, sizes = Path(job["texts"]), job["sizes"]
    words = work / "vocabulary.txt"
    words.write_text("".join(f"{n}\n" for n in range(4, sizes["vocabulary"])))
    sides = {part: {f"path_{a}": str(texts / f"{part}.{b}") for a, b in (("src", "source"), ("tgt", "target"))}
             for part in ("train", "valid")}  # fmt: skip
    return {
        "seed": job["seed"],
        "src_vocab": str(words),
        "tgt_vocab": str(words),
        "share_vocab": True,
        "src_vocab_size": sizes["vocabulary"],
        "tgt_vocab_size": sizes["vocabulary"],
        "overwrite": True,
        "report_every": 50,
        "data": {"corpus": sides["train"], "valid": sides["valid"]},
        "training": {
            **recipe(job),
            "model_path": str(work / "model"),
            "world_size": 1,
            "gpu_ranks": [],
            "num_workers": 0,
            "bucket_size": len((texts / "train.source").read_text().splitlines()),
            "train_steps": 10**9,
            "save_checkpoint_steps": 10**9,
            "dropout": [job["dropout"]],
            "attention_dropout": [job["dropout"]],
            "param_init_method": "xavier_uniform",
        },
        "model": {
            "architecture": "transformer",
            "hidden_size": sizes["width"],
            "layers": sizes["layers"],
            "heads": sizes["heads"],
            "transformer_ff": sizes["feedforward"],
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {"word_vec_size": sizes["width"], "position_encoding_type": "SinusoidalInterleaved"},
        },
    }


def train(job: dict[str, Any], work: Path) -> dict[str, Any]:
    whole = Trainer.train
    found: dict[str, Any] = {}

    def timed(trainer: Any, batches: Any, *args: Any, **kwargs: Any) -> Any:
        begin = time.monotonic()

        def in_time() -> Iterator[Any]:
            for batch in batches:
                yield batch
                if time.monotonic() - begin >= job["seconds"]:
                    return

        result = whole(trainer, in_time(), *args, **kwargs)
        found["updates"], found["train_seconds"] = trainer.optim.training_step - 1, time.monotonic() - begin
        found["parameters"] = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
        return result

    Trainer.train = timed
    train_model(TrainConfig(**configuration(job, work)))
    return {**found, "version": version("eole"), "settings": recipe(job)}


def translate(job: dict[str, Any], work: Path) -> dict[str, Any]:
    begin = time.monotonic()
    predict(
        PredictConfig(
            model_path=str(work / "model"), src=str(Path(job["texts"]) / "test.source"),
            output=str(work / "test.output"), beam_size=BEAMS, max_length=job["positions"], gpu_ranks=[], world_size=1,
        )
    )  # fmt: skip
    return {"translation_seconds": time.monotonic() - begin, "search": f"beam {BEAMS}"}


if __name__ == "__main__":
    driver.run(train, translate)
