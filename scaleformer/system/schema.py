"""Settings as dataclasses: types and bounds stand beside each field and are checked here; every error is one line."""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Constraint(Protocol):
    """What `Annotated` says of a value beyond its type."""

    def holds(self, value: Any) -> bool:
        """Whether a value of the type is allowed."""
        ...

    def name(self, kind: str) -> str:
        """The name of the type with its constraint."""
        ...


@dataclass(frozen=True)
class Range:
    """The bounds of a number, itself allowed (ge, le) or not (gt, lt): `Annotated[float, Range(ge=0, lt=1)]`."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def holds(self, value: float) -> bool:
        low = (self.ge is None or value >= self.ge) and (self.gt is None or value > self.gt)
        return low and (self.le is None or value <= self.le) and (self.lt is None or value < self.lt)

    def name(self, kind: str) -> str:
        words = {"of at least": self.ge, "above": self.gt, "at most": self.le, "below": self.lt}
        text = " and ".join(f"{word} {bound}" for word, bound in words.items() if bound is not None)
        if self.ge is not None and " and " in text:
            text = text.replace("of at least", "from").replace("and at most", "to").replace("and below", "to below")
        return f"{kind} {text}"


@dataclass(frozen=True)
class OneOf:
    """Choices of a text listed elsewhere, `Annotated[str, OneOf(OPTIMIZERS)]`; others are `Literal["min", "max"]`."""

    choices: Collection[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "choices", tuple(self.choices))  # hashable, as members of a union have to be

    def holds(self, value: str) -> bool:
        return value in self.choices

    def name(self, kind: str) -> str:
        return f"one of {', '.join(self.choices)}"


@dataclass(frozen=True)
class Filled:
    """A list that is not empty."""

    def holds(self, value: Collection[Any]) -> bool:
        return len(value) > 0

    def name(self, kind: str) -> str:
        return f"nonempty {kind}"


Natural = Annotated[int, Range(ge=0)]
Positive = Annotated[int, Range(ge=1)]
Share = Annotated[float, Range(ge=0, le=1)]
NonEmpty = Annotated[tuple[T, ...], Filled()]
#: Settings that checkpoints may have and that are no more, with the value that changed nothing.
RETIRED = {
    "data.annotate_terms": 0.0,
    "data.drop_separators": 0.0,
    "data.merge_segments": 0.0,
    "decoding.repetition_penalty": 1.0,
}


def from_mapping(kind: type[T], values: Mapping[str, Any], where: str) -> T:
    """A configuration dataclass from plain keys and values; lists become tuples, `~/` the home folder. `where` ("" or
    "data") prefixes the names of settings in messages. Raises ValueError for an unknown key (naming the nearest one and
    all valid ones), a missing key, a value of a wrong type, or a value that the class refuses."""
    assert is_dataclass(kind)
    hints, prefix = hints_of(kind), f"{where}." if where else ""
    values = {key: value for key, value in values.items() if RETIRED.get(f"{prefix}{key}", MISSING) != value}
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
            raise ValueError(f"{prefix}{key} is {shown(value)}: it must be a group of settings: {names}")
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
        hint = hints_of(inner).get(part) if inner is not None else None
    return hint


def hints_of(kind: Any) -> dict[str, Any]:
    """The types of the fields of a class, or of the arguments of a function, with their constraints."""
    return get_type_hints(kind, include_extras=True)


def check_fields(settings: Any, where: str) -> None:
    """Raise ValueError as `from_mapping` does for a dataclass that is made by its constructor."""
    prefix = f"{where}." if where else ""
    for name, hint in hints_of(type(settings)).items():
        check_type(f"{prefix}{name}", getattr(settings, name), hint)


def unknown_setting(key: str, known: Iterable[str], shown_names: Iterable[str], nearest: str | None = None) -> str:
    """The message for an unknown setting: the nearest of the `known` ones, and the names to show."""
    last = {name.rpartition(".")[2]: name for name in known}  # compare last parts only: a shared group would dominate
    found = difflib.get_close_matches(key.rpartition(".")[2], list(last), 1, 0.7)
    close = nearest or next((last[name] for name in found), None)
    guess = f" (did you mean {close}?)" if close else ""
    return f"{key}: no such setting{guess}; there are {', '.join(shown_names)}"


def check_type(name: str, value: Any, hint: Any) -> None:
    """Raise ValueError with the setting's name unless its value fits a type: int, `float | None`, `tuple[str, ...]`,
    `Annotated[int, Range(ge=1)]`, `Literal["min", "max"]`."""
    if not fits(value, hint):
        wanted = type_name(hint)
        article = "an " if wanted[0] == "i" else "a " if wanted[0] in "bfslng" else ""
        texts = tuple(map(_as_text, value)) if isinstance(value, tuple) else _as_text(value)
        quote = ": write it in quotes (YAML takes no, off, yes, on for false and true)" if fits(texts, hint) else ""
        raise ValueError(f"{name} is {shown(value)}: it must be {article}{wanted}{quote}")


def _as_text(value: Any) -> Any:
    return "text" if isinstance(value, (bool, int, float)) else value


def type_name(hint: Any) -> str:
    """A type as a user of the command line writes it: `int of at least 1 or null`, `list of str`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        constraint: Constraint = arguments[1]
        return constraint.name(type_name(arguments[0]))
    if origin is Literal:
        return OneOf(arguments).name("str")
    if origin in (Union, UnionType):
        return " or ".join(type_name(choice) for choice in arguments)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"list of {type_name(arguments[0])}"
        return f"[{', '.join(map(type_name, arguments))}]"
    if isinstance(origin or hint, type) and issubclass(origin or hint, Mapping):
        return "{name: value}"
    if is_dataclass(hint):
        return "group"
    return "null" if hint in (None, type(None)) else "any" if hint is Any else str(hint.__name__)


def plain_type(hint: Any) -> Any:
    """A type without constraints: `tuple[str, ...] | None` for a list of choices or null."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return plain_type(arguments[0])
    if origin is Literal:
        return type(arguments[0])
    if origin in (Union, UnionType):
        return Union[tuple(map(plain_type, arguments))]  # noqa: UP007
    if origin is tuple:
        return tuple[tuple(part if part is Ellipsis else plain_type(part) for part in arguments)]  # type: ignore[misc]
    return hint


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
        return fits(value, arguments[0]) and arguments[1].holds(value)
    if origin is Literal:
        return isinstance(value, str) and value in arguments
    if origin in (Union, UnionType):
        return any(fits(value, choice) for choice in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments[-1] is Ellipsis:
            return all(fits(item, arguments[0]) for item in value)
        return len(value) == len(arguments) and all(map(fits, value, arguments))
    if origin is not None:  # a mapping
        keys, values = arguments
        return isinstance(value, origin) and all(fits(k, keys) and fits(v, values) for k, v in value.items())
    number = hint in (int, float) and isinstance(value, (int, float))
    if number and (isinstance(value, bool) or not -(2**63) <= value < 2**63):  # not finite, or of more than 64 bits
        return False
    if hint is None:
        return value is None
    return isinstance(value, (int, float) if hint is float else hint)


def shown(value: object, most: int = 60) -> str:
    """An input value, cut to about `most` characters for one-line messages: as `repr`, but null, true and false."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    value = list(value) if isinstance(value, tuple) else value
    text = repr(value[: most + 1]) if isinstance(value, str) else repr(value)
    return text if len(text) <= most + 2 else f"{text[:most]}..."


def listed(value: Any) -> list[Any]:
    """The members of a list setting; a single value means a list of one, null an empty list."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]
