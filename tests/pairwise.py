"""Few combinations in which any two choices meet: for tests whose choices are too many to be crossed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

Corners = Iterable[Sequence[Any]]  # each with a choice from every axis, or ... where any will do
Allowed = Callable[..., bool]


def pairwise(*axes: Sequence[Any], corners: Corners = (), allowed: Allowed = lambda *_: True) -> list[tuple[Any, ...]]:
    """Combinations of one choice from each axis such that each two choices of different axes stand in one of them (if
    any combination has both that is `allowed`), and such that every corner is among them."""
    return [
        tuple(axis[place] for axis, place in zip(axes, places, strict=True))
        for places in _select(axes, corners, allowed)
    ]


def covering(
    corners: Corners = (), allowed: Allowed = lambda *_: True, **axes: Sequence[Any] | Mapping[str, Any]
) -> Any:
    """The mark that parametrizes a test by such combinations, an axis for each argument of the test. The ids are made
    of the keys of an axis, or of its choices where it has no keys."""
    keyed = [
        axis if isinstance(axis, Mapping) else {getattr(x, "__name__", str(x)): x for x in axis}
        for axis in axes.values()
    ]
    choices, keys = [list(axis.values()) for axis in keyed], [list(axis) for axis in keyed]
    selected = _select(choices, corners, allowed)
    cases, ids = (
        [tuple(axis[p] for axis, p in zip(of, places, strict=True)) for places in selected] for of in (choices, keys)
    )
    return pytest.mark.parametrize(list(axes), cases, ids=list(map("-".join, ids)))


def _select(axes: Sequence[Sequence[Any]], corners: Corners, allowed: Allowed) -> list[tuple[int, ...]]:
    """The places of the choices; the same ones in every process."""

    def values(places: tuple[int, ...]) -> tuple[Any, ...]:
        return tuple(axis[place] for axis, place in zip(axes, places, strict=True))

    every = {
        places: set(combinations(enumerate(places), 2))
        for places in product(*map(range, map(len, axes)))
        if allowed(*values(places))
    }
    missing, chosen = set().union(*every.values()), []

    def take(among: Iterable[tuple[int, ...]]) -> None:
        chosen.append(max(among, key=lambda places: len(every[places] & missing)))
        missing.difference_update(every[chosen[-1]])

    for corner in corners:
        there = [p for p in every if all(c is ... or c == x for c, x in zip(corner, values(p), strict=True))]
        if not set(there) & set(chosen):
            take(there)
    while missing:
        take(every)
    return chosen
