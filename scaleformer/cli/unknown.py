"""The message for an unknown setting: the closest name, or the counterpart of a name from other toolkits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from scaleformer.system.schema import unknown_setting

# Settings by the names that they have in other toolkits, or without their group.
_NAMES = {
    "callbacks.early_stopping.patience": "patience",
    "data.batch_tokens": "batch_size batch_tokens",
    "data.max_tokens": "max_len max_length",
    "data.num_workers": "num_workers",
    "data.path": "corpus dataset path",
    "decoding.beam_size": "beam beam_size",
    "model.width": "d_model hidden_size",
    "model/attention": "attention",
    "optimizer.learning_rate": "learning_rate lr",
    "schedule.warmup_steps": "warmup warmup_steps",
    "tokenizer.vocab_size": "vocab_size",
    "trainer.devices": "devices gpus",
    "+trainer.max_epochs": "epochs max_epochs num_epochs",
    "trainer.max_steps": "max_steps steps",
    "trainer.precision": "fp16 precision",
}
SYNONYMS = {word: name for name, words in _NAMES.items() for word in words.split()}


def unknown_override(error: HydraException, names: type) -> str | None:
    """The message for an override of a setting that a command with these names does not know, None for other errors.
    (Hydra suggests adding the setting with a plus sign, which we would refuse.)"""
    cause = error.__cause__
    parent, key = getattr(cause, "parent_node", None), getattr(cause, "full_key", None)
    if parent is None or not key or "is not in struct" not in str(cause):
        return None
    root: Any = parent._get_root()
    if key == "data" and "data" in {field.name for field in fields(names)}:  # the group, which is empty by default
        return "data: the corpus is that of the run: for another one add data=jsonl or data=text (docs/data-formats.md)"
    known = [name for name in _names(root) if not name.startswith("hydra.")]
    neighbours = [str(name) for name in parent if name != "hydra"]
    group, _, inner = key.rpartition(".")
    nearest = SYNONYMS.get(inner)
    if nearest is not None and nearest.lstrip("+").split(".")[0].split("/")[0] not in root:
        nearest = None
    if nearest is None:  # the same or a similar name in another group
        nearest = next((name for name in known if name.rpartition(".")[2] == inner), None)
    if not neighbours:  # a setting that holds any names, as data.corpora
        return f"{key}: {group} has no settings yet: give it whole, as in {group}='{{{inner}: ...}}'"
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
