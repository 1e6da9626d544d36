"""Consistency: does a document translate one name or term the same way throughout?

Without a list of terms the reference decides: a word of the source is an anchor if the reference translates it
consistently, that is, if some word occurs in exactly those segments of the reference whose source has the anchor. A
word that is the same on both sides is a name (names, numbers, identifiers), any other a term.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scaleformer.evaluation.alignment import align_segments
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.formats.lines import read_lines
from scaleformer.system.errors import DataError
from scaleformer.text.words import candidates, phrase, unspaced

#: shorter source words are not terms (two characters in a script without spaces); neither are words in more than this
#: share of the segments of a document
SHORTEST, SHORTEST_UNSPACED, WIDEST = 4, 2, 0.5


@dataclass(frozen=True)
class ConsistencyScore:
    """The consistency of one kind of word, over all documents.

    kind          "name", "term" or "listed" (from a list of terms)
    words         repeated words that were tested: (document, word) pairs
    mentions      segments that have them
    as_reference  share of the mentions whose hypothesis has (one of) the reference's words for it
    consistent    mean over words of the best agreement of one word of the hypothesis with the mentions: the segments
                  that have both, divided by those that have either; 1 where one word is used always and only there.
                  For a listed term, the share of its mentions with the variant that the document uses most
    """

    kind: str
    words: int
    mentions: int
    as_reference: float
    consistent: float


#: of each word of a kind: mentions, those as in the reference, agreement
_Tallies = dict[str, list[tuple[int, int, float]]]


def score_consistency(
    documents: Iterable[TranslatedDocument], terms: Mapping[str, Sequence[str]] | None = None
) -> tuple[ConsistencyScore, ...]:
    """Scores of names and terms, and of listed terms if there is a list; kinds without a word are left out.

    terms   source term -> its target variants, words or phrases, case ignored
    Documents whose source and reference differ in segment count are skipped; hypotheses are aligned.
    """
    tallies: _Tallies = defaultdict(list)
    for document in documents:
        if len(document.source) != len(document.target):
            continue
        hypothesis = align_segments(document.hypothesis, document.target)
        _anchors(tallies, document.source, document.target, hypothesis)
        for term, variants in (terms or {}).items():
            _listed(tallies, term, variants, document.source, document.target, hypothesis)
    found = []
    for kind in ("name", "term", "listed"):
        if words := tallies[kind]:
            mentions, kept, agreement = map(sum, zip(*words, strict=True))
            found.append(ConsistencyScore(kind, len(words), mentions, kept / mentions, agreement / len(words)))
    return tuple(found)


def read_variants(path: str) -> dict[str, list[str]]:
    """A list of terms, one per line: the source term, a tab, its target variants with `|` between them. Raises
    DataError with file and line."""
    found: dict[str, list[str]] = {}
    for number, line in read_lines(path):
        if not line.strip():
            continue
        term, _, rest = line.partition("\t")
        variants = [variant.strip() for variant in rest.split("|") if variant.strip()]
        if not term.strip() or not variants:
            raise DataError(f"{path}:{number}: wanted a source term, a tab and its translations with | between them")
        found[term.strip()] = variants
    if not found:
        raise DataError(f"{path}: no terms")
    return found


def _anchors(tallies: _Tallies, source: Sequence[str], reference: Sequence[str], hypothesis: Sequence[str]) -> None:
    sources, references, hypotheses = (_places(side) for side in (source, reference, hypothesis))
    by_places: dict[frozenset[int], list[str]] = defaultdict(list)
    for word, places in references.items():
        by_places[places].append(word)
    for word, places in _whole(sources).items():
        guides = by_places.get(places, [])
        is_name = word in guides
        if not is_name:
            guides = [guide for guide in guides if guide not in sources]  # except names
        if len(places) < 2 or not guides:
            continue
        if not is_name and (
            len(word) < (SHORTEST_UNSPACED if unspaced(word) else SHORTEST) or len(places) > WIDEST * len(source)
        ):
            continue
        wanted = [word] if is_name else guides
        kept = sum(any(place in hypotheses.get(w, ()) for w in wanted) for place in places)
        if is_name:
            found = hypotheses.get(word, frozenset())
            agreement = len(places & found) / len(places | found)
        else:
            agreement = max((len(places & found) / len(places | found) for found in hypotheses.values()), default=0.0)
        tallies["name" if is_name else "term"].append((len(places), kept, agreement))


def _listed(
    tallies: _Tallies,
    term: str,
    variants: Sequence[str],
    source: Sequence[str],
    reference: Sequence[str],
    hypothesis: Sequence[str],
) -> None:
    pattern = phrase(term)
    patterns = {variant: phrase(variant) for variant in variants}
    mentions = [place for place, text in enumerate(source) if pattern.search(text)]
    if len(mentions) < 2:
        return
    used = [{v for v, pattern in patterns.items() if pattern.search(hypothesis[place])} for place in mentions]
    right = [{v for v, pattern in patterns.items() if pattern.search(reference[place])} for place in mentions]
    counts = Counter(variant for found in used for variant in found)
    kept = sum(bool(ours & theirs) for ours, theirs in zip(used, right, strict=True))
    tallies["listed"].append((len(mentions), kept, max(counts.values(), default=0) / len(mentions)))


def _places(segments: Sequence[str]) -> dict[str, frozenset[int]]:
    """Each word (case kept, no punctuation; see `words.candidates`) and the segments that have it."""
    found: dict[str, set[int]] = defaultdict(set)
    for place, text in enumerate(segments):
        for word in candidates(text):
            found[word].add(place)
    return {word: frozenset(places) for word, places in found.items()}


def _whole(found: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
    """Drop parts of longer terms in the same segments, in scripts without spaces."""
    longest: dict[frozenset[int], list[str]] = defaultdict(list)
    for word in sorted(found, key=len, reverse=True):
        others = longest[found[word]]
        if not (unspaced(word) and any(word in other for other in others)):
            others.append(word)
    return {word: places for places, words in longest.items() for word in words}
