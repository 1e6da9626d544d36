"""Settings as dataclasses, made from plain keys and values: every type is checked, every error is one line."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


@dataclass(frozen=True)
class AtLeast:
    """The smallest allowed value of a number: `samples: Annotated[int, AtLeast(0)]`."""

    least: float


def from_mapping(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """A configuration dataclass from plain keys and values; lists become tuples, `~/` the home folder. `where` ("" or
    "data") prefixes the names of settings in messages.

    Raises ValueError for an unknown key (naming the nearest one and all valid ones), a missing key, a value of a wrong
    type, or a value that the class refuses.
    """
    assert is_dataclass(kind)
    hints = get_type_hints(kind, include_extras=True)
    prefix = f"{where}." if where else ""
    if unknown := [key for key in values if key not in hints]:
        raise ValueError(unknown_setting(f"{prefix}{shown(unknown[0])[1:-1]}", [f"{prefix}{h}" for h in hints], hints))
    made: dict[str, Any] = {}
    for key, value in values.items():
        hint = hints[key]
        value = _at_home(value)
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


def _at_home(value: Any) -> Any:
    """Expand a leading ~ or ~user like a shell, also within lists and mappings; leave all else unchanged."""
    if isinstance(value, str):
        return os.path.expanduser(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(_at_home, value))
    return {key: _at_home(item) for key, item in value.items()} if isinstance(value, dict) else value


def type_of(kind: type, name: str) -> Any:
    """The type of a setting by its dotted name; None if there is no such setting."""
    hint: Any = kind
    for part in name.split("."):
        inner = next((choice for choice in (hint, *get_args(hint)) if is_dataclass(choice)), None)
        hint = get_type_hints(inner, include_extras=True).get(part) if inner is not None else None
    return hint


def unknown_setting(key: str, known: Iterable[str], shown_names: Iterable[str], nearest: str | None = None) -> str:
    """The message for an unknown setting: the nearest of the `known` ones, and the names to show."""
    last = {name.rpartition(".")[2]: name for name in known}  # compare last parts only: a shared group would dominate
    found = difflib.get_close_matches(key.rpartition(".")[2], list(last), 1, 0.7)
    close = nearest or next((last[name] for name in found), None)
    guess = f" (did you mean {close}?)" if close else ""
    return f"{key}: no such setting{guess}; there are {', '.join(shown_names)}"


def check_type(name: str, value: Any, hint: Any) -> None:
    """Raise ValueError with the setting's name unless its value fits a type: int, `float | None`, `tuple[str, ...]`,
    `Annotated[int, AtLeast(1)]`."""
    if not fits(value, hint):
        raise ValueError(f"{name}={shown(value)}: wanted {type_name(hint)}")


def type_name(hint: Any) -> str:
    """A type as a user of the command line writes it: `int of at least 1 | null`, `list of str`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return f"{type_name(arguments[0])} of at least {arguments[1].least:g}"
    if origin in (Union, UnionType):
        return " | ".join(type_name(choice) for choice in arguments)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"list of {type_name(arguments[0])}"
        return f"[{', '.join(map(type_name, arguments))}]"
    if origin is dict or hint is dict:
        return "{name: value}"
    if is_dataclass(hint):
        return "group"
    return "null" if hint in (None, type(None)) else "any" if hint is Any else str(hint.__name__)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value fits an annotated type. An int is also a float; a bool, nan and infinity are not numbers."""
    if isinstance(value, str):
        try:
            os.fsencode(value)
        except UnicodeEncodeError:  # neither valid text nor a file name
            return False
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return True
    if origin is Annotated:
        return fits(value, arguments[0]) and value >= arguments[1].least
    if origin in (Union, UnionType):
        return any(fits(value, choice) for choice in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments[-1] is Ellipsis:
            return all(fits(item, arguments[0]) for item in value)
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if origin is dict:
        return isinstance(value, dict) and all(
            fits(k, arguments[0]) and fits(v, arguments[1]) for k, v in value.items()
        )
    if hint in (int, float) and (isinstance(value, bool) or (isinstance(value, (int, float)) and not _usual(value))):
        return False
    if hint is None:
        return value is None
    return isinstance(value, (int, float) if hint is float else hint)


def _usual(number: float) -> bool:
    """Whether a number is finite and fits into 64 bits."""
    return -(2**63) <= number < 2**63


def shown(value: object, most: int = 60) -> str:
    """`repr` of an input value, cut to about `most` characters for one-line messages."""
    text = repr(value[: most + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= most + 2 else f"{text[:most]}..."


def listed(value: Any) -> list[Any]:
    """The members of a list setting; a single value means a list of one, null an empty list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
