"""Training with weights, gradients and optimizer states sharded over all processes (FSDP)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytorch_lightning.core.optimizer import LightningOptimizer
from pytorch_lightning.strategies import ModelParallelStrategy
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.optim import Optimizer

from scaleformer.model.attention.literature.auxiliary_loss import with_auxiliary_loss
from scaleformer.training.lightning_internals import shard_over_all

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from scaleformer.model.transformer import Transformer

WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class ShardedStrategy(ModelParallelStrategy):
    """Lightning's strategy for torch's `fully_shard`, over all processes of all machines, on GPUs and CPUs.

    Each process holds its part of every weight and gathers the weights of a layer while computing it. A checkpoint is
    one file, as without sharding: the first process assembles it, and any strategy and number of processes can resume
    from it, export it and translate with it. (Lightning's own fsdp strategy needs GPUs, and its ModelParallelStrategy
    numbers optimizer states differently from the optimizer itself.)
    """

    def __init__(self) -> None:
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        shard_over_all(self)
        super().setup_environment()

    def optimizer_state(self, optimizer: Optimizer | LightningOptimizer) -> dict[str, Any]:
        """The `state_dict` that an unsharded optimizer would have; empty except on the first process."""
        plain, names = self._names(optimizer)
        state: dict[str, Any] = get_optimizer_state_dict(self.model, plain, options=WHOLE)  # type: ignore[arg-type]
        if not state:
            return {}
        number = {name: n for n, name in enumerate(names)}
        groups = [{**group, "params": [number[name] for name in group["params"]]} for group in state["param_groups"]]
        return {"state": {number[name]: value for name, value in state["state"].items()}, "param_groups": groups}

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """Read a checkpoint of any strategy, in each process, and distribute its weights and states."""
        checkpoint: dict[str, Any] = self.checkpoint_io.load_checkpoint(checkpoint_path)
        assert self.model is not None
        own = dict(self.model.named_parameters())
        tied = {name for name, _ in self.model.named_parameters(remove_duplicate=False)} - own.keys()
        weights = {name: value for name, value in checkpoint["state_dict"].items() if name not in tied}
        left = set_model_state_dict(self.model, weights, options=replace(WHOLE, strict=False))
        assert tied.issuperset(left.missing_keys), left
        assert not left.unexpected_keys, left
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            plain, names = self._names(optimizer)
            groups = [{**group, "params": [names[n] for n in group["params"]]} for group in saved["param_groups"]]
            state: Any = {"state": {names[n]: value for n, value in saved["state"].items()}, "param_groups": groups}
            set_optimizer_state_dict(self.model, plain, state, options=WHOLE)
        return checkpoint

    def _names(self, optimizer: Optimizer | LightningOptimizer) -> tuple[Optimizer, list[str]]:
        """The optimizer itself, and the names of its parameters in its order."""
        plain: Any = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        assert self.model is not None
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        return plain, [names[parameter] for group in plain.param_groups for parameter in group["params"]]


def shard_model(model: Transformer, mesh: DeviceMesh) -> None:
    """Shard the weights over a one-dimensional mesh of processes, in place: by layer, then embeddings and the rest."""
    for attention in with_auxiliary_loss(model):  # which needs the weights again that the forward pass has freed
        fully_shard(attention, mesh=mesh)
        register_fsdp_forward_method(attention, "auxiliary_loss")
    for layer in (*model.encoder_layers, *model.decoder_layers):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)  # the root stays gathered after the forward pass: the loss needs output_weight
