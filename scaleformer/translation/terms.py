"""Which terms the segments of a translation require, and which of these it lacks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from scaleformer.system.errors import DataError
from scaleformer.text.terms import Term, find_terms, make_terms
from scaleformer.translation.notices import log, some_of
from scaleformer.translation.request import Request
from scaleformer.translation.translations import DocumentHypothesis, Translation


class Required(NamedTuple):
    """The terms that the target segment at `first` requires: those in the source segments from `first` up to `stop`,
    which it translates.

    wanted  how often each target form must occur
    """

    first: int
    stop: int
    wanted: Counter[Term]


class TermCount(NamedTuple):
    """How often target forms are wanted and missing in all translations, and the segments that lack some."""

    wanted: int
    missing: int
    where: tuple[str, ...]

    def __str__(self) -> str:
        there = self.wanted - self.missing
        return f"terms: {self.wanted:,} in the source, {there:,} as required, {self.missing:,} not placed"


def requirements(segments: Sequence[str], hypothesis: DocumentHypothesis, terms: Sequence[Term]) -> list[Required]:
    """What each segment of a translation requires, where its source has terms. The terms of a segment that is merged
    with the one before (`DocumentHypothesis.shared`) are required there."""
    if not terms:
        return []
    # all terms with the same target form are counted under the first one
    named = {term.target: term for term in reversed(terms)}
    found = [Counter(named[match.term.target] for match in find_terms(segment, terms)) for segment in segments]
    every = []
    for first in range(min(len(segments), len(hypothesis.segments))):
        if first in hypothesis.shared:
            continue
        stop = first + 1
        while stop in hypothesis.shared:
            stop += 1
        if wanted := sum(found[first:stop], Counter[Term]()):
            every.append(Required(first, stop, wanted))
    return every


def missing_from(text: str, wanted: Counter[Term]) -> Counter[Term]:
    """How often each target form is missing in a text, by term; only of those that are."""
    there = {term: term.count(text) for term in wanted}
    return Counter({term: count - there[term] for term, count in wanted.items() if count > there[term]})


def count_terms(request: Request, translations: Sequence[Translation]) -> TermCount:
    """Count what all documents of a request require, and what their translations lack."""
    wanted = missing = 0
    where = []
    each = zip(request.documents, translations, request.required, strict=True)
    for number, (segments, translation, terms) in enumerate(each):
        for first, _, some in requirements(segments, translation.hypotheses[0], terms):
            left = missing_from(translation.segments[first], some)
            wanted, missing = wanted + some.total(), missing + left.total()
            if left:
                where.append(f"{request.place(number, first)} ({', '.join(term.target for term in left)})")
    return TermCount(wanted, missing, tuple(where))


def warn_of_terms(count: TermCount) -> None:
    """Log the segments in which a term could not be placed."""
    if count.missing:
        log.warning("%d of %d terms could not be placed: %s", count.missing, count.wanted, some_of(count.where))


def report_terms(request: Request, translations: Sequence[Translation]) -> None:
    """Print on stderr how many terms the documents have and how many their translations lack, if they have any."""
    if any(request.required):
        print(count_terms(request, translations), file=sys.stderr)


def read_terms_of(record: Mapping[str, Any], where: str) -> dict[str, str]:
    """The "terms" of a document in JSON Lines, `{"source": "target"}`. Raises a DataError that starts with `where`."""
    found = record.get("terms", {})
    if not isinstance(found, dict):
        wanted = 'an object of target forms by their source forms, {"source": "target"}'
        raise DataError(f"{where}: 'terms' is {type(found).__name__}, wanted {wanted}")
    try:
        make_terms(found)
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None
    return found
