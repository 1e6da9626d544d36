"""Settings as dataclasses: types, ranges, and the messages for wrong values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from scaleformer.system.schema import AtLeast, check_type, from_mapping, listed, type_name, unknown_setting


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("ten", int | None, "x='ten': wanted int | null"),
        (None, int, "x=None: wanted int"),
        (True, int, "x=True: wanted int"),
        (1, bool, "x=1: wanted bool"),
        (float("inf"), float, "x=inf: wanted float"),
        (2**63, int, "x=9223372036854775808: wanted int"),
        (-1, Annotated[int, AtLeast(0)], "x=-1: wanted int of at least 0"),
        (0, Annotated[int, AtLeast(1)] | None, "x=0: wanted int of at least 1 | null"),
        ("a", Annotated[float, AtLeast(0)], "x='a': wanted float of at least 0"),
        (("a",), str | None, "x=('a',): wanted str | null"),
        (("a", 1), tuple[str, ...], "x=('a', 1): wanted list of str"),
        ((1,), tuple[int, int], "x=(1,): wanted [int, int]"),
        ("a", tuple[int, ...] | None, "x='a': wanted list of int | null"),
        ({"a": "b"}, dict[str, int], "x={'a': 'b'}: wanted {name: value}"),
    ],
)
def test_a_wrong_type_is_reported(value: object, kind: Any, message: str) -> None:
    with pytest.raises(ValueError, match="wanted") as error:
        check_type("x", value, kind)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, Annotated[int, AtLeast(1)] | None),
        (0, Annotated[int, AtLeast(0)]),
        (1, float),
        ("text", str | tuple[str, ...]),
        (("a", "b"), str | tuple[str, ...]),
        ((), tuple[int, ...]),
        ((1, 2.5), tuple[int, float]),
        ({"a": [1]}, dict[str, Any]),
    ],
)
def test_right_types(value: object, kind: Any) -> None:
    check_type("x", value, kind)


@dataclass(frozen=True)
class Inner:
    size: int


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    batch_tokens: int = 3


def test_a_dataclass_from_nested_keys_and_values() -> None:
    assert from_mapping(Outer, {"name": "a", "inner": {"size": 1}}, "") == Outer("a", Inner(1))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "a"}, "group.inner is missing"),
        ({"batch_token": 1}, "group.batch_token: no such setting (did you mean group.batch_tokens?); there are name, "),
        ({"inner": {"sizes": 1}}, "group.inner.sizes: no such setting (did you mean group.inner.size?)"),
        ({"inner": 1}, "group.inner=1: it is a group of settings: group.inner.size"),
        ({"zzz": 1}, "group.zzz: no such setting; there are name, inner, batch_tokens"),
    ],
)
def test_wrong_settings_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="group") as error:
        from_mapping(Outer, values, "group")
    assert str(error.value).startswith(message)


def test_a_known_synonym_wins_over_the_nearest_name() -> None:
    assert unknown_setting("lr", ["lrs"], ["lrs"], "optimizer.learning_rate") == (
        "lr: no such setting (did you mean optimizer.learning_rate?); there are lrs"
    )


def test_type_names_for_the_command_line() -> None:
    kinds = [int, str | None, tuple[str, ...], tuple[int, int] | None, Annotated[int, AtLeast(1)], Inner, Any]
    assert [type_name(kind) for kind in kinds] == [
        "int", "str | null", "list of str", "[int, int] | null", "int of at least 1", "group", "any",
    ]  # fmt: skip


def test_a_single_value_is_a_list_of_one() -> None:
    assert [listed(value) for value in (None, "RUN", ("a", "b"), [1], 3)] == [[], ["RUN"], ["a", "b"], [1], [3]]


def test_the_home_folder_is_expanded_everywhere(monkeypatch) -> None:
    @dataclass(frozen=True)
    class Places:
        one: str
        many: tuple[str, ...]
        named: dict[str, str]

    monkeypatch.setenv("HOME", "/home/me")
    values = {"one": "~/a b", "many": ["~", "a~/b"], "named": {"~": "~/c"}}
    assert from_mapping(Places, values, "") == Places("/home/me/a b", ("/home/me", "a~/b"), {"~": "/home/me/c"})
