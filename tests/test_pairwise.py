"""A selection has every pair of values, every corner and nothing that is not allowed, and far fewer than all."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.pairwise import pairwise, select

SIZES = {
    "a": [0, 1, 2, 3, 4],
    "b": ["x", "y", "z"],
    "c": {"yes": True, "no": False},
    "d": [None, 1.5, len],
    "e": [1, 2],
}


def pairs(row: dict[str, str]) -> set[object]:
    return set(combinations(row.items(), 2))


def test_every_pair_is_there_in_far_fewer_than_all() -> None:
    rows = select(SIZES)
    names = [[str(a) for a in range(5)], ["x", "y", "z"], ["yes", "no"], ["None", "1.5", "len"], ["1", "2"]]
    everything = [dict(zip(SIZES, labels, strict=True)) for labels in product(*names)]
    assert set().union(*map(pairs, rows)) == set().union(*map(pairs, everything))
    assert all(row in everything for row in rows)
    assert len({tuple(row.values()) for row in rows}) == len(rows) <= 20 < len(everything)
    assert rows == select(SIZES)


def test_corners_are_there() -> None:
    corners = [{"a": "4", "b": "x", "c": "no"}, {"a": "4", "b": "x", "c": "no", "e": "2"}, {"d": "len"}]
    rows = select(SIZES, corners)
    assert all(any(corner.items() <= row.items() for row in rows) for corner in corners)


def test_what_is_not_allowed_is_left_out_with_the_pairs_that_only_it_has() -> None:
    rows = select(SIZES, allowed=lambda a, d, **_: a < 4 or d is None)
    assert {row["d"] for row in rows if row["a"] == "4"} == {"None"}
    assert {(row["a"], row["d"]) for row in rows} == {*product("0123", ["None", "1.5", "len"]), ("4", "None")}


def test_threes_meet_where_asked() -> None:
    rows = select(SIZES, strength=3)
    assert len({(row["a"], row["b"], row["d"]) for row in rows}) == 45
    assert len(rows) < 60


def test_one_name_for_two_values_is_refused() -> None:
    with pytest.raises(ValueError, match="have one name"):
        select({"a": [1, "1"]})


def test_the_mark_of_a_test() -> None:
    mark = pairwise(a=[1, 2], b={"yes": True, "no": False}).mark
    names, cases = mark.args
    assert names == ["a", "b"]
    assert dict(zip(mark.kwargs["ids"], cases, strict=True)) == {
        "1-yes": [1, True], "1-no": [1, False], "2-yes": [2, True], "2-no": [2, False],
    }  # fmt: skip
