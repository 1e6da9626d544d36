"""Few combinations of many parameters: in them every two values of different parameters meet at least once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

import pytest

Values = Sequence[Any] | Mapping[str, Any]  # by themselves, or by the names that stand in the ids of the tests


def labelled(values: Values) -> dict[str, Any]:
    named = values if isinstance(values, Mapping) else {getattr(x, "__name__", str(x)): x for x in values}
    if len(named) < len(values):
        raise ValueError(f"two of the values {values} have one name: give a mapping of names to values")
    return dict(named)


def select(
    parameters: Mapping[str, Values],
    corners: Iterable[Mapping[str, str]] = (),
    allowed: Callable[..., bool] = lambda **_: True,
    strength: int = 2,
) -> list[dict[str, str]]:
    """Names of values by parameter, the same in every process. Each corner (names of values of some parameters) is
    among them, and so is each pair (or more, by `strength`) of values that a combination which is `allowed` has."""
    named = {parameter: labelled(values) for parameter, values in parameters.items()}
    rows = [dict(zip(named, labels, strict=True)) for labels in product(*named.values())]
    rows = [row for row in rows if allowed(**{parameter: named[parameter][label] for parameter, label in row.items()})]
    random.Random(0).shuffle(rows)
    meetings = [set(combinations(row.items(), strength)) for row in rows]
    missing, chosen = set().union(*meetings), []

    def take(among: list[int]) -> None:
        best = max(among, key=lambda n: len(meetings[n] & missing))
        missing.difference_update(meetings[best])
        chosen.append(rows[best])

    for corner in corners:
        if not any(corner.items() <= row.items() for row in chosen):
            take([n for n, row in enumerate(rows) if corner.items() <= row.items()])
    while missing:
        take(list(range(len(rows))))
    return chosen


def pairwise(
    corners: Iterable[Mapping[str, str]] = (),
    allowed: Callable[..., bool] = lambda **_: True,
    strength: int = 2,
    **parameters: Values,
) -> pytest.MarkDecorator:
    """Parametrize a test by a selection. `allowed` is asked by the names of the parameters, with their values."""
    named = {parameter: labelled(values) for parameter, values in parameters.items()}
    rows = select(parameters, corners, allowed, strength)
    cases = [[named[parameter][label] for parameter, label in row.items()] for row in rows]
    return pytest.mark.parametrize(list(named), cases, ids=["-".join(row.values()) for row in rows])
