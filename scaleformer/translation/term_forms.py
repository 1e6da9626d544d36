"""The terms and names that documents repeat, with every form in which they were written, where and how often.

A term is a word or up to `WORDS` neighbours, at least `LEAST` times there and far oftener than their ranks in the
vocabulary lead to expect [Ahmad et al. 1999, TREC-8, "weirdness"]. What was written for it is learned from word
alignments: the linked words that seldom stand where the term does not. Forms learned twice are then looked for in all
segments that have the term.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

import regex

from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.text.spans import apart
from scaleformer.text.stems import bare, stem
from scaleformer.text.words import spans, unspaced
from scaleformer.translation.request import Request
from scaleformer.translation.translations import Translation
from scaleformer.translation.word_alignments import align_words
from scaleformer.vocabulary import SPACE

LEAST, WORDS = 3, 3
UNUSUAL, RARE = 20.0, 10.0  # how much oftener than expected a term is, and at least each word of a longer one
SHORTEST = 4  # letters of a word that is not written in capitals
FEWEST = 1000  # words of a document; shorter ones count as if they had so many
LIFT = 2.0  # how much oftener a word stands in segments with the term than in others
CLEAR = 0.5  # share of the clearness of the clearest linked word that others need
ALIKE = 0.6  # share of the letters with which two forms of a word begin
_CORE = regex.compile(r"[\p{L}\p{M}\p{N}](?:.*[\p{L}\p{M}\p{N}])?")
_Key = tuple[str, ...]  # the stems of a term or of a form
Form = str | None  # None: nothing was found


@dataclass(frozen=True)
class WrittenTerm:
    """A term as it stands most often, and what was written for each of its places: form, document, segment."""

    source: str
    places: tuple[tuple[Form, int, int], ...]

    def counts(self, document: int | None = None) -> Counter[Form]:
        """How often each form stands in a document, or in all."""
        return Counter(form for form, where, _ in self.places if document in (None, where))


class _Word(NamedTuple):
    """A word without the punctuation around it, and its stem; "" for code, quotations and numbers."""

    start: int
    stop: int
    stem: str


@dataclass
class _Unit:
    """A target segment with the source segments that it translates, `place` the first of them: the texts and words of
    both sides, and the target words linked to each source word. taken: target words that belong to a form."""

    document: int
    place: int
    texts: tuple[str, str]
    words: tuple[list[_Word], list[_Word]]
    links: Mapping[int, Sequence[int]]
    taken: set[int] = field(default_factory=set)

    def text(self, side: int, words: Sequence[int]) -> str:
        """From the first to the last of these words."""
        return self.texts[side][self.words[side][words[0]].start : self.words[side][words[-1]].stop]

    def take(self, form: _Key) -> bool:
        """Take the first words that are a form, with at most one other between two of them, if it is there."""
        stems = ["" if n in self.taken else word.stem for n, word in enumerate(self.words[1])]
        for start in range(len(stems)):
            found = [start - 1]
            for wanted in form:
                ahead = range(found[-1] + 1, min(found[-1] + 2 + (len(found) > 1), len(stems)))
                found += [n for n in ahead if _alike(stems[n], wanted)][:1] or [len(stems)]
            if found[-1] < len(stems):
                self.taken.update(found[1:])
                return True
        return False


_Places = list[tuple[_Unit, list[int]]]  # of a term: units and source words
_Linker = Callable[[_Unit, Sequence[int]], list[int]]


def find_forms(
    loaded: LoadedModel, request: Request, translations: Sequence[Translation], tag: Sequence[int] = ()
) -> list[WrittenTerm]:
    """The repeated terms of some documents and what these translations have for them, the most frequent first.

    tag  the tokens that preceded the sources when they were translated
    Terms in code and quotations do not count. Scripts without spaces have none. Raises ValueError as `align_words`.
    """
    units = list(_units(loaded, request, translations, tag))
    repeated, linked = _repeated(units, loaded.source_tokenizer), _linker(units)
    found: dict[_Key, _Places] = defaultdict(list)
    for unit in units:
        free = set(range(len(unit.words[0])))
        for n in range(len(unit.words[0])):
            for key, words in [one for one in _keys(unit, n) if one[0] in repeated and free.issuperset(one[1])][-1:]:
                free -= {*words}
                found[key].append((unit, words))
    terms = []
    for key in sorted(found, key=len, reverse=True):  # a longer term takes its words first
        if len(places := found[key]) >= LEAST:
            [(shown, _)] = Counter(unit.text(0, words) for unit, words in places).most_common(1)
            forms = zip(_written(places, linked), places, strict=True)
            terms.append(WrittenTerm(shown, tuple((form, unit.document, unit.place) for form, (unit, _) in forms)))
    return sorted(terms, key=lambda term: -len(term.places))


def _units(
    loaded: LoadedModel, request: Request, translations: Sequence[Translation], tag: Sequence[int]
) -> Iterator[_Unit]:
    links = align_words(loaded, request.documents, translations, tag)
    for number, (segments, translation) in enumerate(zip(request.documents, translations, strict=True)):
        shared = translation.hypotheses[0].shared
        firsts = [place for place in range(len(segments)) if place not in shared]
        for first, stop in zip(firsts, [*firsts[1:], len(segments)], strict=True):
            texts = " ".join(segments[first:stop]), translation.segments[first]
            words = _words(texts[0], request.languages[0]), _words(texts[1], request.languages[1])
            linked: dict[int, list[int]] = defaultdict(list)
            for ours, theirs in links[number][first]:
                if ours < len(words[0]) and theirs < len(words[1]):  # a vocabulary may read one character as two words
                    linked[ours].append(theirs)
            yield _Unit(number, first, texts, words, linked)


def _words(text: str, language: str) -> list[_Word]:
    """The words of a text, as alignments count them."""
    others, found = apart(text), []
    for start, stop in spans(text):
        core = _CORE.search(text, start, stop)
        if core is None or not any(map(str.isalpha, core[0])) or any(a < stop and start < b for a, b in others):
            found.append(_Word(start, stop, ""))
        else:
            found.append(_Word(core.start(), core.end(), stem(core[0], language)))
    return found


def _repeated(units: Sequence[_Unit], tokenizer: Tokenizer) -> set[_Key]:
    pieces = sorted(((tokenizer.score(n), tokenizer.piece(n)) for n in range(tokenizer.vocab_size)), reverse=True)
    whole = [
        piece[len(SPACE) :].lower() for _, piece in pieces if piece.startswith(SPACE) and piece[len(SPACE) :].isalpha()
    ]
    expected: dict[str, float] = defaultdict(float)  # the share of a word of all words, by Zipf's law
    for rank, piece in enumerate(whole, 1):
        expected[piece] += 1 / rank / math.log(len(pieces))
    sizes = Counter[int]()
    counts: dict[_Key, Counter[int]] = defaultdict(Counter)  # by document
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for unit in units:
        sizes[unit.document] += len(unit.words[0])
        for n, word in enumerate(unit.words[0]):
            forms[word.stem][unit.text(0, [n])] += 1
            for key, _ in _keys(unit, n):
                counts[key][unit.document] += 1
    unusual: dict[str, float] = defaultdict(float)
    for (own, *more), some in counts.items():
        best = forms[own].most_common(1)[0][0]
        if not more and (len(best) >= SHORTEST or (len(best) > 1 and best.isupper())):
            usual = sum(expected[form] for form in {form.lower() for form in forms[own]})
            usual = usual or 1 / len(pieces) / math.log(len(pieces))
            shares = [count / max(sizes[document], FEWEST) for document, count in some.items()]
            shares.append(some.total() / max(sum(sizes[document] for document in some), FEWEST))
            unusual[own] = max(shares) / usual
    return {
        key
        for key, some in counts.items()
        if some.total() >= LEAST
        and min(unusual[own] for own in key) >= RARE
        and math.prod(unusual[own] for own in key) >= UNUSUAL ** len(key)
    }


def _keys(unit: _Unit, first: int) -> Iterator[tuple[_Key, list[int]]]:
    """What may be a term from a source word on: it, and it with neighbours that only spaces part from it."""
    words, text = unit.words[0], unit.texts[0]
    for n in range(first, min(first + WORDS, len(words))):
        parted = n > first and text[words[n - 1].stop : words[n].start].strip()
        if parted or not words[n].stem or unspaced(words[n].stem):
            return
        yield tuple(word.stem for word in words[first : n + 1]), list(range(first, n + 1))


def _linker(units: Sequence[_Unit]) -> _Linker:
    """Finds the target words that stand for source words of a unit: of those linked to them the clearest, and others
    near it that are nearly as clear. A word is the clearer, the greater the share of its units that have the source
    word; it has to be `LIFT` times as frequent there as in others."""
    having: tuple[dict[str, set[int]], ...] = (defaultdict(set), defaultdict(set))
    for number, unit in enumerate(units):
        for words, found in zip(unit.words, having, strict=True):
            for word in words:
                found[word.stem].add(number)

    @lru_cache(1 << 16)
    def share(source: str, target: str) -> float:
        ours, theirs = having[0][source], having[1][target]
        both = len(ours & theirs)
        lift = (both + 0.5) / (len(ours) + 1) * (len(units) - len(ours) + 1) / (len(theirs) - both + 0.5)
        return both / len(theirs) if target and lift >= LIFT else 0.0

    def linked(unit: _Unit, words: Sequence[int]) -> list[int]:
        shares: dict[int, float] = defaultdict(float)
        for ours in words:
            for theirs in unit.links.get(ours, ()):
                found = share(unit.words[0][ours].stem, unit.words[1][theirs].stem)
                shares[theirs] = max(shares[theirs], found)
        best = max(sorted(shares), key=shares.__getitem__, default=0)
        return [n for n in sorted(shares) if 0 < shares[n] >= CLEAR * shares[best] and abs(n - best) <= WORDS]

    return linked


def _written(places: _Places, linked: _Linker) -> list[Form]:
    """What was written for each occurrence of a term; forms of one word as the most frequent of them."""
    found: dict[int, _Key] = {}
    shown: dict[_Key, Counter[str]] = defaultdict(Counter)
    forms: list[_Key] = []
    for unit, ours in places:
        theirs = linked(unit, ours)
        forms.append(tuple(unit.words[1][n].stem for n in theirs))
        shown[forms[-1]].update([unit.text(1, theirs)] if theirs else [])
    for form in sorted(shown, key=lambda form: -shown[form].total()):
        for n, (unit, _) in enumerate(places):
            if shown[form].total() > 1 and n not in found and unit.take(form):
                found[n] = form
    for n, form in enumerate(forms):
        known = {one for one in found.values() if len(one) == len(form) and all(map(_alike, one, form))}
        if n not in found and form and not known:  # a known one is not there once more
            found[n] = form
    return [shown[found[n]].most_common(1)[0][0] if n in found else None for n in range(len(places))]


@lru_cache(1 << 16)
def _alike(one: str, other: str) -> bool:
    """Whether two stems look like those of forms of one word, such as interfaz and interfac."""
    first, second = ("".join(map(bare, word)) for word in (one, other))
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
    return first == second != "" or same >= max(3, ALIKE * max(len(first), len(second)))
