"""Few combinations in which any two choices meet: for tests whose choices are too many to be crossed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations of one choice from each axis such that each two choices of different axes stand in one of them."""

    def pairs(places: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(combinations(enumerate(places), 2))

    every = {places: pairs(places) for places in product(*(range(len(axis)) for axis in axes))}
    missing, chosen = set().union(*every.values()), []
    while missing:
        best = max(every, key=lambda places: len(every[places] & missing))
        missing -= every[best]
        chosen.append(best)
    return [tuple(axis[place] for axis, place in zip(axes, places, strict=True)) for places in chosen]
