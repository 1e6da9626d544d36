"""Settings as dataclasses: made from plain keys and values, every type checked, errors in one line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_mapping(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """A configuration dataclass from plain keys and values (lists become tuples); `where` ("" or "data") begins the
    names of settings in messages.

    Raises ValueError for a key that there is not, naming those that there are, for one that is missing, for values of
    another type, and for those that the class refuses.
    """
    assert is_dataclass(kind)
    hints = get_type_hints(kind)
    prefix = f"{where}." if where else ""
    if unknown := [key for key in values if key not in hints]:
        raise ValueError(f"{prefix}{shown(unknown[0])[1:-1]}: no such setting; there are {', '.join(hints)}")
    made: dict[str, Any] = {}
    for key, value in values.items():
        hint = hints[key]
        if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
            value = from_mapping(hint, value, f"{prefix}{key}")
        elif is_dataclass(hint) and not isinstance(value, Mapping):
            names = ", ".join(f"{prefix}{key}.{f.name}" for f in fields(hint))
            raise ValueError(f"{prefix}{key}={shown(value)}: it is a group of settings: {names}")
        elif isinstance(value, list):
            value = tuple(value)
        check_type(f"{prefix}{key}", value, hint)
        made[key] = value
    wanted = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    if missing := [name for name in wanted if name not in made]:
        raise ValueError(f"{prefix}{missing[0]} is missing")
    return kind(**made)


def check_type(name: str, value: Any, hint: Any, least: float | None = None) -> None:
    """ValueError that names the setting unless its value is of a type (int, `float | None`), and at least `least`."""
    if fits(value, hint) and (value is None or least is None or value >= least):
        return
    wanted = hint.__name__ if isinstance(hint, type) and not get_origin(hint) else str(hint)
    wanted = wanted.replace("None", "null") + ("" if least is None else f" of at least {least}")
    raise ValueError(f"{name}={shown(value)}: wanted {wanted}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type; an int is a float too, a bool is no number, nor are nan and infinity."""
    if isinstance(value, str):
        try:
            os.fsencode(value)
        except UnicodeEncodeError:  # neither a text nor the name of a file
            return False
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, choice) for choice in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(arguments) and all(map(fits, value, arguments))
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(k, arguments[0]) and fits(v, arguments[1]) for k, v in value.items()
        )
    if hint in (int, float) and (isinstance(value, bool) or (isinstance(value, (int, float)) and not _usual(value))):
        return False
    return isinstance(value, (int, float) if hint is float else hint)


def _usual(number: float) -> bool:
    """Whether a number is finite and fits 64 bits, as all that is computed with it."""
    return -(2**63) <= number < 2**63


def shown(value: object, most: int = 60) -> str:
    """`repr` of what the input holds, cut to about `most` characters: for messages of one line that can be read."""
    text = repr(value[: most + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= most + 2 else f"{text[:most]}..."


def check_types(config: Mapping[str, Any], **wanted: Any) -> None:
    """ValueError, in one line, for the first setting of a command that is not what is wanted: `max_tokens=int | None` a
    whole number or null, `samples=(int, 0)` a whole number of at least 0."""
    for name, kind in wanted.items():
        hint, least = kind if isinstance(kind, tuple) else (kind, None)
        check_type(name, config[name], hint, least)


def listed(value: Any) -> list[Any]:
    """The members of a setting that is a list; one thing alone stands for a list of one, null for an empty one."""
    if value is None:
        return []
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
