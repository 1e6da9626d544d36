"""A data module resumes where another one stopped."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from scaleformer.batch import Batch
from scaleformer.data.datamodule import DocumentDataModule
from tests.data.toy import module

VALIDATING = {"val_check_interval": 3, "check_val_every_n_epoch": None, "limit_val_batches": 2}


class Recorder(pl.LightningModule):
    """Learns nothing and notes what it was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))
        self.seen: list[list[list[int]]] = []

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        self.seen.append(batch.source.tolist())
        return self.weight * 1.0

    def validation_step(self, batch: Batch, index: int, dataloader_idx: int = 0) -> None:
        assert len(batch) > 0

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(
    data: DocumentDataModule, steps: int, folder: Path | None = None, checkpoint: Path | None = None, **options: Any
) -> list[list[list[int]]]:
    """Train for `steps` steps in all; with `folder`, a checkpoint after every one. Returns the batches trained on."""
    recorder = Recorder()
    saver = ModelCheckpoint(folder, "{step}", every_n_train_steps=1, save_top_k=-1)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = pl.Trainer(
            accelerator="cpu",
            max_steps=steps,
            max_epochs=-1,
            logger=False,
            callbacks=[saver] if folder else [],
            enable_checkpointing=folder is not None,
            enable_progress_bar=False,
            enable_model_summary=False,
            **options,
        )
        trainer.fit(recorder, datamodule=data, ckpt_path=checkpoint)
    return recorder.seen


@pytest.mark.parametrize(
    ("options", "tokenizer", "trainer"),
    [
        pytest.param({"multi_resolution": True}, {}, {}, id="multi-resolution"),
        pytest.param({}, {}, VALIDATING, id="validating inside epochs"),
        pytest.param({"level": "segment"}, {}, {}, id="single segments"),
        pytest.param({"level": "segment", "streaming": True, "window": 50}, {}, {}, id="single segments, streamed"),
        pytest.param({"streaming": True, "window": 50}, {}, VALIDATING, id="streamed"),
        pytest.param({"streaming": True, "window": 50, "num_workers": 2}, {}, {}, id="streamed by two workers"),
        pytest.param({"join_segments": (1, 4), "streaming": True, "window": 50}, {}, {}, id="joined, streamed"),
    ],
)
def test_runs_resume_with_the_very_next_batch(
    cache: Path, tmp_path: Path, options: dict[str, Any], tokenizer: dict[str, Any], trainer: dict[str, Any]
) -> None:
    loader = module(cache, tokenizer, **options).train_dataloader()
    epochs = [[batch.source.tolist() for batch in loader] for _ in range(2)]
    length = len(epochs[0])
    steps = length + 3
    whole = fit(module(cache, tokenizer, **options), steps, tmp_path, **trainer)
    assert whole == (epochs[0] + epochs[1])[:steps]
    for done in (1, length - 1, length, length + 1):  # inside, before, at and after the epoch's end
        checkpoint = tmp_path / f"step={done}.ckpt"
        state = torch.load(checkpoint, weights_only=True)["DocumentDataModule"]
        if "window" not in options and not tokenizer:
            assert (state["epoch"] * length + state["done"], state["window"]) == (done, 0)
        resumed = fit(module(cache, tokenizer, **options), min(done + 5, steps), None, checkpoint, **trainer)
        assert resumed == whole[done : done + 5]


def test_accumulated_gradients_resume(cache: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"accumulate_grad_batches": 2}
    whole = fit(module(cache), 6, tmp_path, **options)
    assert fit(module(cache), 6, None, tmp_path / "step=2.ckpt", **options) == whole[4:]


def test_changed_settings_continue_with_the_next_epoch(cache: Path, tmp_path: Path) -> None:
    fit(module(cache), 3, tmp_path)
    state = torch.load(tmp_path / "step=3.ckpt", weights_only=True)["DocumentDataModule"]
    changed = module(cache, batch_tokens=500)
    changed.load_state_dict(state)
    with pytest.warns(UserWarning, match="settings changed since the checkpoint was written inside epoch 0"):
        loader = changed.train_dataloader()
    assert loader.position == (1, 0, 0)
