"""Decides from a survey which documents and segments the filters take, and applies it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scaleformer.data.quality.checks import BITS, UNSURE_BIT
from scaleformer.data.quality.config import FilterConfig
from scaleformer.data.quality.survey import Survey
from scaleformer.text.documents import Document, from_parts


@dataclass
class Decisions:
    """What becomes of each segment and document of a survey.

    names            of the filters, in order; reasons: of each segment, a number in names, -1 if it stays
    whole            the filter by which each document goes, -1 if it stays
    filters          {segments, documents} that each takes alone, and in_order of what those before it left
    gaps             places in documents that stay where segments are left out or stand without a partner
    """

    names: list[str]
    reasons: np.ndarray
    whole: np.ndarray
    filters: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    gaps: int = 0


def decide(survey: Survey, config: FilterConfig, filters: Mapping[str, Any]) -> Decisions:
    """Apply the filters to the training documents (all, without splits); other splits stay as they are."""
    count, of = len(survey.names), survey.document_of
    ours = survey.of_split("train", "")
    size = np.bincount(of, minlength=count)
    found = Decisions(list(filters), np.full(len(of), -1, np.int16), np.full(count, -1, np.int16))
    for number, (name, value) in enumerate(filters.items()):
        taken = _taken(survey, name, value, filters) & ours
        gone = np.bincount(of[taken], minlength=count) > config.documents * size
        alone = {"segments": int((taken | gone[of]).sum()), "documents": int(gone.sum())}
        found.reasons[taken & (found.reasons < 0)] = number
        lost = np.bincount(of[found.reasons >= 0], minlength=count) > config.documents * size
        found.whole[lost & (found.whole < 0)] = number
        found.reasons[lost[of] & (found.reasons < 0)] = number
        in_order = {"segments": int((found.reasons == number).sum()), "documents": int((found.whole == number).sum())}
        found.filters[name] = {"alone": alone, "in_order": in_order}
    inside = (found.reasons >= 0) & (found.whole[of] < 0)
    begins = inside & ~np.append(False, inside[:-1] & (of[:-1] == of[1:]))[: len(of)]
    found.gaps = int(begins.sum())
    return found


def filtered(
    document: Document, number: int, survey: Survey, decisions: Decisions, unaligned: bool
) -> tuple[Document, list[tuple[int, str, str, str]]]:
    """What is left of a document, by its number in the survey; and place, reason, source, target of what was taken.

    unaligned: filtered segments stay in their document, as text without a partner
    """
    reasons = decisions.reasons[survey.starts[number] : survey.starts[number + 1]]
    parts: list[tuple[Sequence[str], Sequence[str]]] = []
    taken = []
    for place, ((source, target), reason) in enumerate(zip(document.parts(), reasons, strict=True)):
        if reason < 0:
            parts.append((source, target))
            continue
        taken.append((place, decisions.names[reason], " ".join(source), " ".join(target)))
        if unaligned:
            parts += [(source, ()), ((), target)]
    return from_parts(document.id, [part for part in parts if any(part)]), taken


def _taken(survey: Survey, name: str, value: Any, filters: Mapping[str, Any]) -> np.ndarray:
    """The segments that a filter takes by itself; doubts of the language count beside those of the alignment."""
    if name == "duplicates":
        exact, near = duplicate_documents(survey, survey.of_split("train", ""))
        return (exact | near)[survey.document_of] | repeated_runs(survey, int(value))
    if name == "leakage":
        return leaking_documents(survey, float(value))[survey.document_of]
    doubts = UNSURE_BIT if name == "language" and "alignment" in filters else 0
    return (survey["faults"] & (BITS[name] | doubts)) > 0


def duplicate_documents(survey: Survey, ours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which documents are equal (both sides) to an earlier one, and which nearly, by their source. ours: the segments
    to look among."""
    exact, near = np.zeros((2, len(survey.names)), dtype=bool)
    wanted, keys = exact.copy(), survey["pairs"]
    wanted[survey.document_of[ours]] = True
    seen: set[bytes] = set()
    for number in np.flatnonzero(wanted):
        key = keys[survey.starts[number] : survey.starts[number + 1]].tobytes()
        exact[number] = key in seen
        seen.add(key)
    near[survey.near_pairs[wanted[survey.near_pairs].all(axis=1), 1]] = True
    return exact, near


def repeated_runs(survey: Survey, least: int) -> np.ndarray:
    """The segments in a run of at least `least` that stands before, in the same order, in this or another document."""
    keys, of = survey["pairs"].astype(np.uint64), survey.document_of
    repeated = np.zeros(len(keys), dtype=bool)
    if len(keys) < least:
        return repeated
    with np.errstate(over="ignore"):
        windows = keys[: len(keys) - least + 1].copy()
        for shift in range(1, least):
            windows = windows * np.uint64(0x9E3779B97F4A7C15) + keys[shift : len(keys) - least + 1 + shift]
    within = (of[: len(windows)] == of[least - 1 :]) & survey.of_split("train", "")[: len(windows)]
    places = np.flatnonzero(within)
    again = np.ones(len(places), dtype=bool)
    again[np.unique(windows[places], return_index=True)[1]] = False
    for shift in range(least):
        repeated[places[again] + shift] = True
    return repeated


def above_share(survey: Survey, segments: np.ndarray, share: float) -> np.ndarray:
    """Which documents have more than a share of their words in these segments."""
    of, words, count = survey.document_of, survey["source_tokens"], len(survey.names)
    held = np.bincount(of, words * segments, minlength=count)
    return held > share * np.maximum(np.bincount(of, words, minlength=count), 1)


def leaking_documents(survey: Survey, share: float) -> np.ndarray:
    """The training documents of which more than a share, counted in words, stands, or nearly, in valid or test."""
    others = np.isin(survey["sources"], survey["sources"][survey.of_split("valid", "test")])
    return above_share(survey, survey.of_split("train") & (others | (survey["near"] > 0)), share)


def related_documents(survey: Survey, share: float) -> np.ndarray:
    """Pairs of documents of which more than a share of the words of either stands in both, or which are nearly equal:
    (pairs, 2). Segments of more than 20 documents tell nothing."""
    of, words = survey.document_of, survey["source_tokens"]
    cells = np.unique(np.stack([survey["sources"], of, words.astype(np.int64)], axis=1), axis=0)
    counts: Counter[tuple[int, int]] = Counter()
    _, first, times = np.unique(cells[:, 0], return_index=True, return_counts=True)
    for start, stop in zip(first[times > 1], (first + times)[times > 1], strict=True):
        some = cells[start:stop] if stop - start <= 20 else cells[:0]
        for place, (_, one, length) in enumerate(some.tolist()):
            for _, other, _ in some[place + 1 :].tolist():
                counts[one, other] += length
    total = np.bincount(of, words, minlength=len(survey.names))
    pairs = [pair for pair, shared in counts.items() if shared > share * max(1, min(total[list(pair)]))]
    return np.concatenate([np.array(pairs, dtype=np.int64).reshape(-1, 2), survey.near_pairs])
