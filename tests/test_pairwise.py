"""A selection has every two choices, every corner and nothing that is not allowed, and is far smaller than all."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from tests.pairwise import covering, pairwise

AXES = ([0, 1, 2, 3, 4], ["x", "y", "z"], [True, False], [None, 1.5, len], [[1], [2]])


def pairs(row: tuple[object, ...]) -> set[str]:
    return set(map(str, combinations(enumerate(row), 2)))


def test_any_two_choices_meet_in_far_fewer_than_all() -> None:
    rows, everything = pairwise(*AXES), list(product(*AXES))
    assert set().union(*map(pairs, rows)) == set().union(*map(pairs, everything))
    assert all(row in everything for row in rows)
    assert len(set(map(str, rows))) == len(rows) <= 20 < len(everything) == 180
    assert rows == pairwise(*AXES)


def test_corners_are_there_once() -> None:
    rows = pairwise(*AXES, corners=[(4, "x", False, None, [2]), (4, "x", False, ..., ...), (3, "z", True, ..., [1])])
    assert rows[0] == (4, "x", False, None, [2])
    assert (rows[1][:3], rows[1][4]) == ((3, "z", True), [1])
    assert set().union(*map(pairs, rows)) == set().union(*map(pairs, product(*AXES)))
    with pytest.raises(ValueError, match="empty"):  # a corner that does not exist
        pairwise(*AXES, corners=[(5, ..., ..., ..., ...)])


def test_what_is_not_allowed_is_left_out_with_the_pairs_that_nothing_else_has() -> None:
    rows = pairwise([1, 2, 3], ["x", "y"], [True, False], allowed=lambda number, letter, _: number < 3 or letter == "x")
    assert {(number, letter) for number, letter, _ in rows} == {*product([1, 2], "xy"), (3, "x")}
    assert {(number, flag) for number, _, flag in rows} == set(product([1, 2, 3], [True, False]))


def test_the_mark_of_a_test() -> None:
    mark = covering(corners=[(2, False)], number=[1, 2], flag={"yes": True, "no": False}).mark
    assert mark.args == (["number", "flag"], [(2, False), (1, True), (1, False), (2, True)])
    assert mark.kwargs["ids"] == ["2-no", "1-yes", "1-no", "2-yes"]
