"""Two versions of a text or a list of texts: what is the same in both, and where it went."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import accumulate

_WORDS = re.compile(r"\w+|\s+|.", re.DOTALL)
_LIKE = 0.6  # the least similarity of texts that may be versions of each other
_MOST_PAIRS = 1000  # of texts that are compared where their numbers differ


def align_texts(old: Sequence[str], new: Sequence[str]) -> tuple[dict[int, int], dict[int, int]]:
    """For the numbers of texts the numbers of the same ones in the old version, first those in the same order, then
    moved ones; and for others the numbers of those that they probably replace."""
    same: dict[int, int] = {}
    gaps = []
    for kind, first, last, start, stop in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            same.update(zip(range(start, stop), range(first, last), strict=True))
        else:
            gaps.append((range(first, last), range(start, stop)))
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for places, _ in gaps:
        for place in places:
            waiting[old[place]].append(place)
    for _, numbers in gaps:
        same.update((number, waiting[new[number]].popleft()) for number in numbers if waiting[new[number]])
    taken = set(same.values())
    like: dict[int, int] = {}
    for places, numbers in gaps:
        left = [place for place in places if place not in taken]
        wanted = [number for number in numbers if number not in same]
        if len(left) == len(wanted):
            like.update(zip(wanted, left, strict=True))
        elif len(left) * len(wanted) <= _MOST_PAIRS:
            for number in wanted:
                likeness = {place: SequenceMatcher(None, old[place], new[number]).quick_ratio() for place in left}
                if likeness and likeness[best := max(likeness, key=likeness.__getitem__)] >= _LIKE:
                    like[number] = best
                    left.remove(best)
    return same, like


def follow_ranges(old: str, new: str, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where ranges of a text, in order, lie in its new version, without white space at their ends.

    What was written between two of them, with only white space there before, belongs to the first one.
    """
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    olds, news = ([0, *accumulate(map(len, words))] for words in (before, after))
    at = {len(old): len(new)}
    for kind, first, last, start, stop in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        for n in range(first, last):
            inside = start if n == first else stop
            for place in range(olds[n], olds[n + 1]):  # a range may begin or end within a word
                at[place] = news[start + n - first] + place - olds[n] if kind == "equal" else news[inside]
    at[0] = 0
    found = []
    for n, (start, stop) in enumerate(ranges):
        following = ranges[n + 1][0] if n + 1 < len(ranges) else len(old)
        end = following if not old[stop:following].strip() else stop
        text = new[at[start] : max(at[start], at[end])]
        begin = at[start] + len(text) - len(text.lstrip())
        found.append((begin, max(begin, begin + len(text.strip()))))
    return found
