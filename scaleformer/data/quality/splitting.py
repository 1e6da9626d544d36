"""Splits by groups: documents that belong together stand in one split, and each split has short and long ones."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence

from scaleformer.data.sources import assign_splits
from scaleformer.system.errors import DataError

ENOUGH = 1_000  # segments of a split, from which on its score is certain to about half a point of BLEU
MOST = 0.2  # share of the documents that a split of a small corpus should have
GOLDEN = (5**0.5 - 1) / 2  # multiples of it fill the interval from 0 to 1 evenly


def group_documents(names: Sequence[str], pattern: str | None, related: Iterable[tuple[int, int]]) -> list[int]:
    """The group of each document, named by its first member: those whose names have the same match of a pattern (its
    first group, if it has one), and those related."""
    group = list(range(len(names)))

    def root(number: int) -> int:
        while group[number] != number:
            number = group[number]
        return number

    first: dict[str, int] = {}
    matches = [(n, re.search(pattern, name)) for n, name in enumerate(names)] if pattern is not None else []
    same = [(first.setdefault(m[1 if m.re.groups else 0] or "", n), n) for n, m in matches if m is not None]
    for pair in (*same, *related):
        low, high = sorted(map(root, pair))
        group[high] = low
    for number in range(len(group)):  # members come after the first one
        group[number] = group[group[number]]
    return group


def assign_groups(groups: Sequence[int], sizes: Sequence[int], valid: float, test: float, seed: int) -> list[str]:
    """The split of each document, whole groups at a time. Ordered by size, groups go to splits in an even sequence with
    a seeded start, so that each split has its share of small and of large ones.

    sizes: segments of each document. Raises DataError for too few groups.
    """
    total: dict[int, int] = {}
    for group, size in zip(groups, sizes, strict=True):
        total[group] = total.get(group, 0) + size
    try:
        assign_splits(len(total), valid, test, seed)  # only its error is of interest
    except DataError as error:
        raise DataError(str(error).replace("documents are", "groups of documents are")) from None
    ranking = sorted(total, key=lambda group: (total[group], group))
    shares = ("test", test), ("valid", valid), ("train", round(1 - valid - test, 9))
    wanted = {name for name, share in shares if share > 0}
    for attempt in range(1000):  # until each split has a group; few are needed
        start = random.Random(f"scaleformer groups {seed} {attempt}").random()
        places = {group: (start + place * GOLDEN) % 1 for place, group in enumerate(ranking)}
        names = {g: "test" if at < test else "valid" if at < test + valid else "train" for g, at in places.items()}
        if wanted <= {*names.values()}:
            return [names[group] for group in groups]
    raise DataError(f"{len(ranking)} groups of documents are too few for valid={valid} test={test}")


def proposal(split: str, share: float, documents: int, segments: int) -> str:
    """A larger share for a split with few segments, as a line for the user; "" where it has enough."""
    if not share or not segments or segments >= ENOUGH or share >= MOST:
        return ""
    larger = min(MOST, round(share * ENOUGH / segments + 0.005, 2))
    return (
        f"{split} has {segments:,} segments in {documents:,} documents, so its scores say little: {split}={larger:g} "
        f"would give it about {round(segments * larger / share):,}"
    )
