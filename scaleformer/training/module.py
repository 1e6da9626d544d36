"""The Lightning module: batch -> model -> loss -> log."""

from __future__ import annotations

import math
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import WeightAveraging
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from scaleformer.batch import Batch
from scaleformer.model.attention.literature.auxiliary_loss import auxiliary_loss
from scaleformer.model.transformer import Transformer
from scaleformer.ops.loss.cross_entropy import linear_cross_entropy
from scaleformer.system.devices import gathered
from scaleformer.system.errors import is_out_of_memory
from scaleformer.training.emphasis import Emphasis
from scaleformer.training.gradients import clip_factor, largest_gradients, scale_, total_norm
from scaleformer.training.graphs import StepGraphs, masked_loss, reason_against
from scaleformer.training.guard import StepGuard, name_documents
from scaleformer.training.interruption import SIGNALS
from scaleformer.training.lightning_internals import correct_step_count
from scaleformer.training.optimization import OptimizerConfig, ScheduleConfig, refresh_rates
from scaleformer.training.sharding import shard_model

# Losses are weighted by tokens / UNIT before differentiation: gradients keep an ordinary size (fp16) while the number
# of tokens of the whole step is still unknown.
UNIT = 1024
WISHES = 1 + len(SIGNALS)  # `TranslationModule.stop` is below it


class TranslationModule(pl.LightningModule):
    """Trains a Transformer by cross-entropy on the target tokens.

    The gradient of a step is that of the mean over all its target tokens, for any number of processes and accumulated
    batches: N processes do what one does with N times as many accumulated batches. A step whose loss or gradients are
    NaN or infinite is skipped by all processes (`StepGuard`).

    package          what a checkpoint needs besides the weights to translate on its own (`checkpoints.model_file`)
    label_smoothing  share of the probability spread over the whole vocabulary, in training only
    compiled         compute steps by captured graphs where that is possible (`StepGraphs`)
    emphasis         finds the target tokens that weigh `weight` in training, others 1
    stop, save       set by a process to request the end of training (the number of a signal in `SIGNALS`, from 1) or a
                     checkpoint (1); `stopping` and `saving` hold the largest request of all processes once they have
                     done the same step
    """

    def __init__(
        self, model: Transformer, package: dict[str, Any], optimizer: OptimizerConfig, schedule: ScheduleConfig,
        label_smoothing: float = 0.1, guard: StepGuard | None = None, compiled: bool = False,
        emphasis: Emphasis | None = None, weight: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model = model
        self.package = package
        self.optimizer_config = optimizer
        self.schedule_config = schedule
        self.label_smoothing = label_smoothing
        self.guard = guard or StepGuard()
        self.compiled = compiled
        self.emphasis, self.weight = emphasis, weight
        self.graphs: StepGraphs | None = None
        self.graphed = False  # whether the latest loss has its gradients from a graph
        self.stop = self.stopping = self.save = self.saving = 0
        self.batch: Batch | None = None  # the latest, in training or validation
        self.batches: list[Batch] = []  # of the current step
        self.idle_share = 0.0  # of the current step: waiting for the process with the largest batches
        self._sums: dict[str, Tensor] = {}  # (2,): target tokens and summed loss of the current step or validation
        self._row: dict[str, float] = {}

    def configure_model(self) -> None:
        """Shard the weights over the processes where the strategy is `ShardedStrategy`."""
        if self.device_mesh is not None:
            shard_model(self.model, self.device_mesh["data_parallel"])

    def on_train_start(self) -> None:
        scheduler = self.lr_schedulers()
        assert isinstance(scheduler, LambdaLR)
        refresh_rates(scheduler)
        precision, processes = str(self.trainer.precision), self.trainer.world_size
        reason = reason_against(self.model, self.device, precision, processes)
        reason = reason or ("" if self.emphasis is None else "emphasis.choices")
        if self.compiled and not reason:
            dtype = torch.bfloat16 if precision == "bf16-mixed" else None
            self.graphs = StepGraphs(self.model, self.label_smoothing, dtype, UNIT)
        elif self.compiled and self.device.type == "cuda":
            print(f"training steps without graphs: {reason}", flush=True)

    def on_train_end(self) -> None:
        if self.graphs is not None:
            print(self.graphs.summary(), flush=True)
            self.graphs = None

    def on_train_batch_start(self, batch: Batch, batch_index: int) -> None:
        correct_step_count(self.trainer)  # or `_due` would never agree with it

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        self.batch = batch
        self.batches.append(batch)
        found = self._replayed(batch)
        self.graphed = found is not None
        loss, tokens = self._loss(batch, self.label_smoothing) if found is None else found
        self._add("train", loss, tokens)
        return loss * (tokens / UNIT) if self.graphed else (loss + auxiliary_loss(self.model)) * (tokens / UNIT)

    def backward(self, loss: Tensor, *arguments: Any, **options: Any) -> None:
        if self.graphed and self.graphs is not None:
            self.graphs.add_gradients(1 / self.trainer.accumulate_grad_batches)
        else:
            super().backward(loss, *arguments, **options)

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Scale the gradients to those of the mean over all tokens of the step, clip them, and skip a bad step."""
        trainer = self.trainer
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        tokens, summed, raw = self._reduced("train", total_norm(gradients, self.device))
        # DDP averages over processes, Lightning over accumulated batches
        factor = UNIT * trainer.world_size * trainer.accumulate_grad_batches / max(tokens, 1.0)
        norm, loss = raw * factor, summed / max(tokens, 1.0)
        step = trainer.global_step + 1
        self._row = {"train/loss": loss, "train/gradient_norm": norm}
        self._row["train/learning_rate"] = optimizer.param_groups[0]["lr"]
        if trainer.world_size > 1:
            self._row["train/idle_share"] = self.idle_share
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if not tokens:
            optimizer.zero_grad(set_to_none=True)  # only fillers
        elif math.isfinite(loss) and math.isfinite(norm):
            by_value = gradient_clip_algorithm == "value"
            scale_(gradients, factor * (1.0 if by_value else clip_factor(norm, gradient_clip_val)))
            if by_value and gradient_clip_val:
                torch.nn.utils.clip_grad_value_(self.parameters(), gradient_clip_val)
            self.guard.good(step, loss, self._ids())
        elif scaler is None or not math.isfinite(loss) or scaler.get_scale() <= 1:
            largest = largest_gradients(self.named_parameters(), factor)
            self.guard.bad(step, loss, norm, self._ids(everywhere=True), largest)
            optimizer.zero_grad(set_to_none=True)  # the optimizer skips parameters without a gradient
        # else: the fp16 loss scale was too large; the scaler skips the step and lowers it
        self._row["train/skipped_steps"] = float(self.guard.skipped)
        if self._due(step):
            self.log_dict(self._row)
        self.batches = []

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_index: int) -> None:
        step = self.trainer.global_step
        if self._due(step):  # logging costs 0.2 ms
            self.log("step", float(step))
        elif self.trainer.should_stop and self._row:  # Lightning also logs the last step
            self.log_dict({**self._row, "step": float(step)})

    def _due(self, step: int) -> bool:
        return step % self.trainer.log_every_n_steps == 0  # type: ignore[attr-defined]

    def on_validation_epoch_start(self) -> None:
        self._sums = {name: sums for name, sums in self._sums.items() if not name.startswith("valid")}

    def validation_step(self, batch: Batch, batch_index: int, dataloader_idx: int = 0) -> None:
        self.batch = batch
        loss, tokens = self._loss(batch, 0.0)
        if dataloader_idx:  # `StageValidation`
            self._add("valid/stage_loss", loss, tokens)
            return
        self._add("valid", loss, tokens)
        if batch.corpus:
            self._add(f"valid/loss/{batch.corpus}", loss, tokens)

    def on_validation_epoch_end(self) -> None:
        tokens, summed, _ = self._reduced("valid")
        if tokens:
            self.log("val/loss", summed / tokens, sync_dist=False)  # already equal in all processes
        if parts := sorted(name for name in self._sums if name.startswith("valid/")):  # the same in all processes
            sums = torch.stack([self._sums.pop(name) for name in parts])  # (parts, 2)
            if self.trainer.world_size > 1:
                torch.distributed.all_reduce(sums)
            for name, (tokens, summed) in zip(parts, sums.tolist(), strict=True):
                if tokens:
                    self.log(f"val/{name.removeprefix('valid/')}", summed / tokens, sync_dist=False)
        # The x-axis of every logger: optimizer steps done. Lightning's own is one less in training.
        self.log("step", float(self.trainer.global_step))

    def configure_optimizers(self) -> Any:
        fused = self.trainer.precision != "16-mixed"  # its scaler acts between gradients and optimizer
        optimizer = self.optimizer_config.build(self.named_parameters(), fused=fused)
        scheduler = self.schedule_config.build(optimizer, self.trainer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["scaleformer"] = self.package
        data = getattr(self.trainer, "datamodule", None)
        if data is not None and self.trainer.is_global_zero:  # only this process has counted
            known = {"longest_segment": data.longest_segment, "segmentation": data.segmentation}
            checkpoint["scaleformer"] = {**self.package, **known}
        checkpoint["guard"] = self.guard.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.guard.load_state_dict(checkpoint["guard"])
        if self.trainer.state.fn != TrainerFn.FITTING:
            return
        averaging = any(isinstance(callback, WeightAveraging) for callback in self.trainer.callbacks)  # type: ignore[attr-defined]
        if "current_model_state" in checkpoint and not averaging:  # the trained weights, not their average
            checkpoint["state_dict"] = checkpoint["current_model_state"]

    def describe_memory(self, batch_tokens: int, error: BaseException) -> str:
        """The message for running out of memory: on which batch, and what to lower."""
        reason = " ".join(str(error).split())[:200]
        if self.batch is None:
            return f"out of memory before the first batch ({reason}): take a smaller model"
        source, target = self.batch.source.shape, self.batch.target_input.shape
        return (
            f"out of memory after step {self.trainer.global_step:,} on a batch of {source[0]} x ({source[1]} source + "
            f"{target[1]} target) tokens, documents {name_documents(self.batch.ids)}: lower data.batch_tokens="
            f"{batch_tokens} (and data.max_tokens where one document alone is too long), or set "
            f"model.gradient_checkpointing=true; continue with resume= ({reason})"
        )

    def _replayed(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Loss and tokens from a graph, or None where there is none."""
        if self.graphs is None:
            return None
        try:
            return self.graphs.run(batch)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            self.graphs = None
            print(f"training steps without graphs: {' '.join(str(error).split())[:200]}", flush=True)
            return None

    def _loss(self, batch: Batch, label_smoothing: float) -> tuple[Tensor, int | Tensor]:
        """Mean cross-entropy in nats per real target token, weighted in training, and their number; 0 without any."""
        emphasis = self.emphasis if self.training else None
        if batch.source.device.type == "cuda":  # to leave pads out would wait for the GPU
            return masked_loss(self.model, batch, label_smoothing, emphasis, self.weight)
        predicted = self.model.predicted(batch)
        states, weight = self.model.output(self.model(batch)[predicted])  # (tokens, D), (V, D)
        targets = batch.target_output[predicted]  # (tokens,)
        if not len(targets):  # a filler: it must take part, or the other processes would wait
            return (states.sum() + weight.sum()) * 0.0, 0
        loss = linear_cross_entropy(states, weight, targets, label_smoothing)
        if emphasis is not None:
            at = emphasis(batch.target_output)[predicted]
            if count := int(at.sum()):
                more = linear_cross_entropy(states[at], weight, targets[at], label_smoothing)
                loss = loss + (self.weight - 1) * count / len(targets) * more
        return loss, len(targets)

    def _add(self, name: str, loss: Tensor, tokens: int | Tensor) -> None:
        exact = loss.detach().to(torch.float32 if loss.device.type == "mps" else torch.float64)
        count = tokens.to(exact.dtype) if isinstance(tokens, Tensor) else torch.full_like(exact, tokens)
        sums = torch.stack((count, exact * tokens))  # (2,)
        self._sums[name] = self._sums[name] + sums if name in self._sums else sums

    def _reduced(self, name: str, norm: Tensor | float = 0.0) -> tuple[float, float, float]:
        """Target tokens and summed loss of all processes, in one exchange that also carries requests and workloads; and
        `norm`, since each number read from a GPU waits for it: this is the only time in a step."""
        world, rank = self.trainer.world_size, self.trainer.global_rank
        sums = self._sums.pop(name, torch.zeros(2, device=self.device))
        rest = sums.new_zeros(WISHES + 1 + world)  # counts of each `stop`, of `save`; positions of each process
        rest[self.stop] = 1
        rest[WISHES] = self.save
        rest[WISHES + 1 + rank] = sum(batch.source.numel() + batch.target_input.numel() for batch in self.batches)
        everything = torch.cat((sums, rest))  # (2 + W + 1 + world,)
        if world > 1:
            torch.distributed.all_reduce(everything)
        read, tokens, summed, *counts = torch.cat((sums.new_zeros(1) + norm, everything)).tolist()
        self.stopping = max(number for number, count in enumerate(counts[:WISHES]) if count)
        self.saving = int(counts[WISHES] > 0)
        self.save = 0
        work = counts[WISHES + 1 :]
        self.idle_share = 1 - sum(work) / world / max(work) if max(work) else 0.0
        return tokens, summed, read

    def _ids(self, everywhere: bool = False) -> list[str]:
        """Names of the examples of this step; everywhere: of all processes, and all must call it."""
        ids = [name for batch in self.batches for name in batch.ids]
        if not everywhere:
            return ids
        return [name for part in gathered(ids, self.trainer.world_size) for name in part]
