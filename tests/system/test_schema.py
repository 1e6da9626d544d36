"""Settings as dataclasses: types, ranges, and the messages for wrong values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import pytest

from scaleformer.system.schema import (
    Natural,
    NonEmpty,
    OneOf,
    Positive,
    Range,
    Share,
    check_fields,
    check_type,
    from_mapping,
    listed,
    plain_type,
    type_name,
    unknown_setting,
)

SHARE = Annotated[float, Range(gt=0, le=1)]


QUOTES = ": write it in quotes (YAML takes no, off, yes, on for false and true)"


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("ten", int | None, "x is 'ten': it must be an int or null"),
        (None, int, "x is null: it must be an int"),
        (True, int, "x is true: it must be an int"),
        (1, bool, "x is 1: it must be a bool"),
        (float("inf"), float, "x is inf: it must be a float"),
        (2**63, int, "x is 9223372036854775808: it must be an int"),
        (-1, Natural, "x is -1: it must be an int of at least 0"),
        (0, Positive | None, "x is 0: it must be an int of at least 1 or null"),
        ("a", Share, "x is 'a': it must be a float from 0 to 1"),
        (0, SHARE, "x is 0: it must be a float above 0 and at most 1"),
        (1.1, SHARE, "x is 1.1: it must be a float above 0 and at most 1"),
        (1, Annotated[float, Range(ge=0, lt=1)], "x is 1: it must be a float from 0 to below 1"),
        ("c", Literal["a", "b"], "x is 'c': it must be one of a, b"),
        (1, Literal["a", "b"] | None, "x is 1: it must be one of a, b or null"),
        ("c", Annotated[str, OneOf({"a": 1, "b": 2})], "x is 'c': it must be one of a, b"),
        (("a", "c"), tuple[Literal["a", "b"], ...], "x is ['a', 'c']: it must be a list of one of a, b"),
        ((), NonEmpty[Positive], "x is []: it must be a nonempty list of int of at least 1"),
        ((0,), NonEmpty[Positive], "x is [0]: it must be a nonempty list of int of at least 1"),
        (("a",), str | None, "x is ['a']: it must be a str or null"),
        (("a", 1), tuple[str, ...], f"x is ['a', 1]: it must be a list of str{QUOTES}"),
        (False, str | None, f"x is false: it must be a str or null{QUOTES}"),
        (True, Positive, "x is true: it must be an int of at least 1"),
        ((1,), tuple[int, int], "x is [1]: it must be [int, int]"),
        ("a", tuple[int, ...] | None, "x is 'a': it must be a list of int or null"),
        ({"a": "b"}, dict[str, int], "x is {'a': 'b'}: it must be {name: value}"),
        ({1: "b"}, Mapping[str, Any], "x is {1: 'b'}: it must be {name: value}"),
    ],
)
def test_a_wrong_value_is_reported(value: object, kind: Any, message: str) -> None:
    with pytest.raises(ValueError, match="must be") as error:
        check_type("x", value, kind)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, Positive | None),
        (0, Natural),
        (1, float),
        (1, SHARE),
        ("b", Literal["a", "b"]),
        ("b", Annotated[str, OneOf(["a", "b"])] | None),
        (("a",), NonEmpty[Literal["a", "b"]]),
        ("text", str | tuple[str, ...]),
        (("a", "b"), str | tuple[str, ...]),
        ((), tuple[int, ...]),
        ((1, 2.5), tuple[int, float]),
        ({"a": [1]}, dict[str, Any]),
        ({"a": {}}, Mapping[str, Mapping[str, Any]]),
    ],
)
def test_right_values(value: object, kind: Any) -> None:
    check_type("x", value, kind)


def test_the_fields_of_a_dataclass_made_in_python_are_checked() -> None:
    @dataclass(frozen=True)
    class Sizes:
        width: Positive
        places: tuple[Share, ...] = ()

    check_fields(Sizes(1, (0.5,)), "model")
    with pytest.raises(ValueError, match=r"^model\.width is 0: it must be an int of at least 1$"):
        check_fields(Sizes(0), "model")
    with pytest.raises(ValueError, match=r"^places is \[2\]: it must be a list of float from 0 to 1$"):
        check_fields(Sizes(1, (2,)), "")


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
        ({"inner": 1}, "group.inner is 1: it must be a group of settings: group.inner.size"),
        ({"zzz": 1}, "group.zzz: no such setting; there are name, inner, batch_tokens"),
    ],
)
def test_wrong_settings_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="group") as error:
        from_mapping(Outer, values, "group")
    assert str(error.value).startswith(message)


def test_a_setting_that_is_no_more_counts_only_where_it_changed_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaleformer.system.schema.RETIRED", {"group.old": 0.0})
    values = {"name": "a", "inner": {"size": 1}, "batch_tokens": 0}
    assert from_mapping(Outer, {**values, "old": 0.0}, "group") == Outer("a", Inner(1), 0)
    for given, where in (({"old": 0.5}, "group"), ({"old": 0.0}, "other")):
        with pytest.raises(ValueError, match="old: no such setting"):
            from_mapping(Outer, {**values, **given}, where)


def test_a_known_synonym_wins_over_the_nearest_name() -> None:
    assert unknown_setting("lr", ["lrs"], ["lrs"], "optimizer.learning_rate") == (
        "lr: no such setting (did you mean optimizer.learning_rate?); there are lrs"
    )


def test_type_names_for_the_command_line() -> None:
    kinds = [int, str | None, tuple[str, ...], tuple[int, int] | None, Positive, Literal["a", "b"], Inner, Any]
    assert [type_name(kind) for kind in kinds] == [
        "int", "str or null", "list of str", "[int, int] or null", "int of at least 1", "one of a, b", "group", "any",
    ]  # fmt: skip


def test_types_without_their_constraints() -> None:
    kinds = [Positive | None, Literal["a", "b"], NonEmpty[Annotated[str, OneOf("ab")]] | None, dict[str, Any], None]
    assert [plain_type(kind) for kind in kinds] == [
        Optional[int], str, Optional[tuple[str, ...]], dict[str, Any], None,  # noqa: UP045
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
