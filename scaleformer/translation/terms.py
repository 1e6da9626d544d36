"""Terms in translations: which ones each segment needs, and which are missing."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from scaleformer.system.errors import DataError
from scaleformer.text.terms import Term, find_terms, make_terms
from scaleformer.translation.notices import Place, log, some_of
from scaleformer.translation.translations import DocumentHypothesis, Translation

Terms = Mapping[str, str]  # target forms by their source forms


class Asked(NamedTuple):
    """The terms that one target segment needs: those of its source segments, `first` to `stop`.

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
        return f"terms: {self.wanted:,} in the source, {there:,} as asked, {self.missing:,} not placed"


def terms_of(
    documents: Sequence[Sequence[str]], terms: Terms | Sequence[Terms] | None, match: bool, n_best: int
) -> list[tuple[Term, ...]]:
    """The terms of each document, from one mapping for all or one for each. Raises ValueError if they are malformed,
    without `match` (decoding.match_segments), or with several hypotheses per document."""
    if not terms:
        return [()] * len(documents)
    if isinstance(terms, Mapping):
        found = [make_terms(terms)] * len(documents)
    elif len(terms) != len(documents):
        raise ValueError(f"terms has {len(terms)} entries for {len(documents)} documents: wanted one for each")
    else:
        found = [make_terms(some) for some in terms]
    if any(found) and not match:
        raise ValueError("terms refer to source segments: set decoding.match_segments=true")
    if any(found) and n_best > 1:
        raise ValueError(f"n_best={n_best}: terms are enforced in one translation: set n_best=1")
    return found


def asked_of(segments: Sequence[str], hypothesis: DocumentHypothesis, terms: Sequence[Term]) -> list[Asked]:
    """The terms of each target segment whose source has some. Segments merged with the one before them count
    there."""
    if not terms:
        return []
    found = [Counter(_named(match.term, terms) for match in find_terms(segment, terms)) for segment in segments]
    asked = []
    for first in range(min(len(segments), len(hypothesis.segments))):
        if first in hypothesis.shared:
            continue
        stop = first + 1
        while stop in hypothesis.shared:
            stop += 1
        if wanted := sum(found[first:stop], Counter[Term]()):
            asked.append(Asked(first, stop, wanted))
    return asked


def _named(term: Term, terms: Sequence[Term]) -> Term:
    """One term for all with the same target form."""
    return next(one for one in terms if one.target == term.target)


def missing_from(text: str, wanted: Counter[Term]) -> Counter[Term]:
    """How often each target form is missing in a translation."""
    there = {term: len(term.target_pattern.findall(text)) for term in wanted}
    return Counter({term: count - there[term] for term, count in wanted.items() if count > there[term]})


def count_terms(
    documents: Sequence[Sequence[str]],
    translations: Sequence[Translation],
    terms: Sequence[Sequence[Term]],
    place: Place,
) -> TermCount:
    """Count the terms of all documents in their translations."""
    wanted = missing = 0
    where = []
    for number, (segments, translation, some) in enumerate(zip(documents, translations, terms, strict=True)):
        for asked in asked_of(segments, translation.hypotheses[0], some):
            left = missing_from(translation.segments[asked.first], asked.wanted)
            wanted, missing = wanted + asked.wanted.total(), missing + left.total()
            if left:
                where.append(f"{place(number, asked.first)} ({', '.join(term.target for term in left)})")
    return TermCount(wanted, missing, tuple(where))


def warn_of_terms(count: TermCount) -> None:
    """Name the segments in which a term could not be placed."""
    if count.missing:
        log.warning("%d of %d terms could not be placed: %s", count.missing, count.wanted, some_of(count.where))


def merge_terms(every: Terms, own: Sequence[Terms], documents: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """The terms of each document: the common ones, overridden by its own."""
    return [{**every, **some} for some in own or [{}] * len(documents)]


def tell_of_terms(
    documents: Sequence[Sequence[str]],
    translations: Sequence[Translation],
    terms: Sequence[Terms] | None,
    markers: bool,
) -> None:
    """Report the terms of the documents on stderr, if they have any; markers: whether the vocabulary has those of
    annotated sources."""
    if not terms or not any(terms):
        return
    count = count_terms(documents, translations, terms_of(documents, terms, True, 1), lambda *_: "")
    how = "" if markers else "; the vocabulary has no term markers: search alone"
    print(f"{count}{how}", file=sys.stderr)


def parse_terms(line: str, where: str) -> dict[str, str]:
    """The "terms" of a document in JSON Lines, `{"source": "target"}`.

    `line` is valid JSON (`parse_document`). Raises a DataError that starts with `where`.
    """
    if '"terms"' not in line:
        return {}
    found: Any = json.loads(line).get("terms", {})
    if not isinstance(found, dict):
        wanted = 'an object of target forms by their source forms, {"source": "target"}'
        raise DataError(f"{where}: 'terms' is {type(found).__name__}, wanted {wanted}")
    try:
        make_terms(found)
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None
    return found
