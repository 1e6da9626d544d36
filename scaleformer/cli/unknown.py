"""The message for an unknown setting: the closest name, or the counterpart of a name from other toolkits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from scaleformer.system.schema import unknown_setting

SYNONYMS = {
    "attention": "model/attention",
    "batch_size": "data.batch_tokens",
    "batch_tokens": "data.batch_tokens",
    "beam": "decoding.beam_size",
    "beam_size": "decoding.beam_size",
    "corpus": "data.path",
    "d_model": "model.width",
    "dataset": "data.path",
    "devices": "trainer.devices",
    "epochs": "trainer.max_epochs",
    "fp16": "trainer.precision",
    "gpus": "trainer.devices",
    "hidden_size": "model.width",
    "learning_rate": "optimizer.learning_rate",
    "lr": "optimizer.learning_rate",
    "max_epochs": "trainer.max_epochs",
    "max_len": "data.max_tokens",
    "max_length": "data.max_tokens",
    "max_steps": "trainer.max_steps",
    "num_epochs": "trainer.max_epochs",
    "num_workers": "data.num_workers",
    "path": "data.path",
    "patience": "callbacks.early_stopping.patience",
    "precision": "trainer.precision",
    "steps": "trainer.max_steps",
    "vocab_size": "tokenizer.vocab_size",
    "warmup": "schedule.warmup_steps",
    "warmup_steps": "schedule.warmup_steps",
}


def unknown_override(error: HydraException) -> str | None:
    """The message for an override of an unknown setting, None for other errors. (Hydra suggests adding the setting
    with a plus sign, which we would refuse.)"""
    cause = error.__cause__
    parent, key = getattr(cause, "parent_node", None), getattr(cause, "full_key", None)
    if parent is None or not key or "is not in struct" not in str(cause):
        return None
    root: Any = parent._get_root()
    known = [name for name in _names(root) if not name.startswith("hydra.")]
    neighbours = [str(name) for name in parent if name != "hydra"]
    group, _, inner = key.rpartition(".")
    nearest = SYNONYMS.get(inner)
    if nearest is not None and nearest.split(".")[0].split("/")[0] not in root:
        nearest = None
    if nearest is None:  # the same or a similar name in another group
        nearest = next((name for name in known if name.rpartition(".")[2] == inner), None)
    siblings = [f"{group}.{name}" if group else name for name in neighbours]
    text = unknown_setting(key, siblings, neighbours, nearest)
    return f"{text} (another choice of {group}= may have others)" if group else text


def _names(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """The full names of all settings in a configuration."""
    for name in [str(key) for key in config]:
        node: Any = config._get_node(name)
        yield f"{prefix}{name}"
        if OmegaConf.is_dict(node) and not node._is_none() and not node._is_missing():
            yield from _names(node, f"{prefix}{name}.")
