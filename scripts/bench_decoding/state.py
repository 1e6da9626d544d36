"""The bytes of what a model keeps between two steps of decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor


def tensors(state: Any) -> Iterator[Tensor]:
    """All tensors of a state, in nested dataclasses, mappings, lists and objects with attributes."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, Mapping):
        for value in state.values():
            yield from tensors(value)
    elif isinstance(state, (list, tuple)):
        for value in state:
            yield from tensors(value)
    elif is_dataclass(state):
        for field in fields(state):
            yield from tensors(getattr(state, field.name))
    elif hasattr(state, "__dict__"):
        yield from tensors(vars(state))


def state_bytes(state: Any) -> int:
    """The bytes that a state holds, each storage counted once and whole, even if only a view of it is used."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors(state)}
    return sum(storages.values())
