"""Builds Lightning's trainer from the settings, and rejects options that it accepts but cannot handle."""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments import LightningEnvironment
from lightning_fabric.utilities.exceptions import MisconfigurationException
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy

from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.system.errors import Interrupted, is_out_of_memory
from scaleformer.system.processor import has_bf16
from scaleformer.training.callbacks import ValidationBleu, WeightAverage
from scaleformer.training.interruption import interrupted
from scaleformer.training.lightning_internals import copies_this_process, kill_other_processes
from scaleformer.training.module import TranslationModule
from scaleformer.training.sharding import ShardedStrategy

# How torch's backends report that the other end of a connection has gone.
GONE = "Connection closed by peer", "Connection reset by peer", "Broken pipe", "Socket Timeout", "NCCL communicator"


def quieten() -> None:
    """Silence messages of Lightning that do not help."""
    for name in ("utilities.rank_zero", "trainer.connectors.checkpoint_connector"):  # advertisements
        logging.getLogger(f"pytorch_lightning.{name}").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*does not have many workers")  # batches are ready-made arrays
    warnings.filterwarnings("ignore", message="Total length of `list` across ranks is zero")  # no validation split
    warnings.filterwarnings("ignore", message=".*treespec, LeafSpec")  # Lightning's own, with torch 2.13
    warnings.filterwarnings("ignore", message=r"It is recommended to use `self\.log\('step'")  # equal everywhere
    warnings.filterwarnings("ignore", message="Checkpoint directory .* exists and is not empty")  # of the resumed run
    warnings.filterwarnings("ignore", message=r"It is recommended to use `self\.log.*sync_dist")  # reduced already
    warnings.filterwarnings("ignore", message="You're using the WeightAveraging callback")  # we refuse fsdp with it
    warnings.filterwarnings("ignore", message="Be aware that when using `ckpt_path`")  # settings decide callbacks


def build_trainer(options: dict[str, Any], **parts: Any) -> pl.Trainer:
    """The trainer. Raises ValueError in one line for options that Lightning rejects, or that would fail later."""
    chosen = {name: value for name, value in options.items() if name != "compile"}  # ours
    if options["strategy"] == "fsdp":
        chosen["strategy"] = ShardedStrategy()
    try:
        trainer = pl.Trainer(
            **chosen,
            **parts,
            check_val_every_n_epoch=None,  # validation counts batches: an epoch of documents may take days
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
        )
    except KeyError as error:  # SLURM's variables, for example in a salloc shell
        raise ValueError(f"trainer: the environment has no {error}: start with srun or torchrun") from error
    except (MisconfigurationException, AttributeError, ImportError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"trainer: {error}") from error
    check_trainer(trainer, options)
    use_tensor_cores(trainer.strategy.root_device, trainer.precision)
    if trainer.strategy.root_device.type == "cpu" and trainer.precision == "bf16-mixed" and has_bf16() is False:
        warnings.warn("trainer.precision=bf16-mixed is slow on this CPU, without bf16 units: set 32-true", stacklevel=2)
    trainer.precision_plugin.convert_input = lambda batch: batch  # type: ignore[assignment]  # a Batch is frozen
    return trainer


def fast_precision(accelerator: str) -> str:
    """What `trainer.precision=auto` is with this `trainer.accelerator`: bf16-mixed on CUDA devices and CPUs that make
    products in bf16 by themselves, 32-true on others."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    other = accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available()
    return "bf16-mixed" if not other and has_bf16() else "32-true"


def use_tensor_cores(device: torch.device, precision: str) -> None:
    """On a GPU in mixed precision, use TF32 for the products that autocast leaves in fp32, such as the scores of
    recall: it keeps more digits than bf16 and is many times as fast as fp32 [NVIDIA 2020, A100 tensor core GPU
    architecture]. `32-true` stays fp32."""
    if device.type == "cuda" and precision.endswith("-mixed"):
        torch.set_float32_matmul_precision("high")


def check_trainer(trainer: pl.Trainer, options: dict[str, Any]) -> None:
    """Raises ValueError for options that Lightning accepts, but that fail during training."""
    strategy, precision = options["strategy"], options["precision"]
    for name in ("reload_dataloaders_every_n_epochs", "overfit_batches"):
        if options.get(name):
            raise ValueError(
                f"trainer.{name}={options[name]}: epochs follow one another whatever Lightning reloads: leave it out "
                "(to overfit a few documents: data.synthetic.train, or a small file)"
            )
    if not isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy, ShardedStrategy)):
        raise ValueError(f"trainer.strategy is {strategy}: it must be auto, ddp or fsdp")
    if copies_this_process(trainer):
        raise ValueError(f"trainer.strategy is {strategy}, which copies this process: it must be ddp")
    if trainer.precision.endswith("-true") and trainer.precision != "32-true":  # 64 too: it becomes 64-true
        raise ValueError(f"trainer.precision is {precision}: it must be 32-true, bf16-mixed, 16-mixed or auto")
    if trainer.world_size > 1 and isinstance(options["val_check_interval"], str):
        raise ValueError(
            f"trainer.val_check_interval is {options['val_check_interval']}: it must be a number of batches, since the "
            f"clocks of {trainer.world_size} processes differ, and some would wait for the others"
        )
    if isinstance(trainer.strategy, ShardedStrategy):
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, ValidationBleu):
                raise ValueError(
                    "trainer.strategy=fsdp cannot translate in validations, as no process has all weights: set "
                    "callbacks.validation_bleu.examples=0 (`scaleformer evaluate` can score its checkpoints)"
                )
            if isinstance(callback, WeightAverage):
                raise ValueError("trainer.strategy=fsdp does not average weights: set callbacks.ema.decay=null")


def fit(
    trainer: pl.Trainer, module: TranslationModule, data: DocumentDataModule, checkpoint: Path | None, directory: Path
) -> None:
    """Train. An error stops the other processes, and is reported in one line where the program is not at fault. Raises
    `Interrupted` after a signal, also one in the last step."""
    try:
        trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
        if stop := module.stopping or module.stop:  # no step followed that would have raised it
            raise interrupted(stop, trainer.global_step, directory)
    except Interrupted:
        if trainer.global_rank and isinstance(trainer.strategy.cluster_environment, LightningEnvironment):  # type: ignore[attr-defined]
            sys.exit(0)  # the first process takes any other code for a failure and kills all
        raise
    except BaseException as error:
        kill_other_processes(trainer)
        if isinstance(error, MisconfigurationException):
            raise ValueError(f"Lightning: {error}") from error
        if is_out_of_memory(error):
            raise ValueError(module.describe_memory(data.config.batch_tokens, error)) from error
        reason = " ".join(str(error).split())
        if reason.startswith("DataLoader worker"):
            raise ValueError(
                f"a data worker was killed, perhaps for lack of memory ({reason}): lower data.num_workers; continue "
                "with resume="
            ) from error
        if any(sign in reason for sign in GONE):
            raise ValueError(f"another process of this run has ended ({reason}): its own message says why") from error
        raise
