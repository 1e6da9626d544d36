"""Two versions of a text or a list of texts: what is the same in both, and where it went."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from difflib import SequenceMatcher, get_close_matches
from itertools import accumulate, groupby

_WORDS = re.compile(r"\w+|\s+|.", re.DOTALL)
_MOST_PAIRS = 1000  # of texts that are compared where their numbers differ


def align_texts(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """For the numbers of texts the numbers of the same ones in the old version, first those in the same order, then
    moved ones; and for others the numbers of those that they probably replace."""
    found: dict[int, int] = {}
    gaps = []
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for kind, first, last, start, stop in SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            found.update(zip(range(start, stop), range(first, last), strict=True))
        else:
            gaps.append((range(first, last), range(start, stop)))
            for place in range(first, last):
                waiting[old[place]].append(place)
    for _, numbers in gaps:
        found.update((number, waiting[new[number]].popleft()) for number in numbers if waiting[new[number]])
    taken = set(found.values())
    for places, numbers in gaps:
        left = [place for place in places if place not in taken]
        wanted = [number for number in numbers if number not in found]
        if len(left) == len(wanted):
            found.update(zip(wanted, left, strict=True))
        elif len(left) * len(wanted) <= _MOST_PAIRS:
            for number in wanted:
                for text in get_close_matches(new[number], [old[place] for place in left], 1):
                    found[number] = next(place for place in left if old[place] == text)
                    left.remove(found[number])
    return found


def follow_places(old: Sequence[str], new: Sequence[str], places: Sequence[Sequence[int]]) -> list[list[int]]:
    """Where parts of texts, each the number of its text, its begin and its end, lie in new versions of these; [] for
    those whose text is gone."""
    new_of = {place: number for number, place in align_texts(old, new).items()}
    found: list[list[int]] = []
    for number, group in groupby(places, lambda place: place[0] if place else -1):
        ranges = [place[1:] for place in group]
        followed = follow_ranges(old[number], new[new_of[number]], ranges) if number in new_of else [[]] * len(ranges)
        found += [[new_of[number], *one] if one else [] for one in followed]
    return found


def follow_ranges(old: str, new: str, ranges: Sequence[Sequence[int]]) -> list[list[int]]:
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
        found.append([begin, max(begin, begin + len(text.strip()))])
    return found
