"""Terms, and their forms in a text."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import regex

from scaleformer.system.schema import shown
from scaleformer.text.spans import apart
from scaleformer.text.stems import VOWELS, bare, stem
from scaleformer.text.words import SPACED, unspaced
from scaleformer.vocabulary import PLACEHOLDERS

Terms = Mapping[str, str]  # target forms by their source forms
SHORTEST, LONGER = 3, 6  # fewest letters of a word with other forms, and how many more one of them may have
SECONDS = 1.0  # time limit of a regular expression on one text
# Marks of emphasis, links and tags, and what stands for them; not between two letters, as in snake_case.
_MARK = rf"(?:[*_~`]{{1,3}}|!?\[|\]\([^()\s]{{0,300}}\)|\]|</?[A-Za-z][^<>]{{0,300}}>|{'|'.join(PLACEHOLDERS)})"
_VARIANTS = regex.compile(
    r"(?P<apostrophe>[\u2018\u2019\u02bc])|(?P<hyphen>[\u2010\u2011])|(?P<unseen>[\u00ad\u200b\u2060\ufeff])"
    rf"|(?P<mark>(?:(?<!\w){_MARK}++(?=\S)|(?<=\S){_MARK}++(?!\w)))|\X"
)
_MARKS = regex.compile(_MARK)
_INFLECTED = regex.compile(rf"[\p{{L}}\p{{M}}]{{{SHORTEST},}}")
_WRITTEN = {"apostrophe": "'", "hyphen": "-", "unseen": "", "mark": ""}


@dataclass(frozen=True)
class Term:
    """A source form and the target form required for it.

    source     one or several words, found as whole words, ignoring case, the form of apostrophes and hyphens, soft
               hyphens, the composition of accents, and marks of emphasis, links and tags unless it has such.
               A word of at least 3 letters is found with other endings, too (`stem`): file finds Files.
               `/.../` is a regular expression (library regex, ignoring case unless it says otherwise)
    target     the form to write; with another ending it also counts as present
    languages  of source and target
    prose      whether it is not required in code and quotations (`apart`)
    Raises ValueError for an empty form, an invalid expression, or an expression as target.
    """

    source: str
    target: str
    languages: tuple[str, str] = ("", "")
    prose: bool = False

    def __post_init__(self) -> None:
        for name in ("source", "target"):
            form = getattr(self, name)
            if not isinstance(form, str) or not form.strip():
                raise ValueError(f"the {name} form {shown(form)} of a term is not text: wanted one or several words")
            if any("\ud800" <= character <= "\udfff" for character in form):
                raise ValueError(f"the {name} form {shown(form)} of a term has a lone surrogate (\\ud800-\\udfff)")
            object.__setattr__(self, name, " ".join(form.split()))
        if is_expression(self.target):
            raise ValueError(f"the target form {shown(self.target)} of a term is an expression: wanted text to write")
        if is_expression(self.source):
            _expression(self.source)  # raises for an invalid one

    def find(self, text: str) -> list[tuple[int, int]]:
        """Where a text, comparable unless the source form is an expression, has it. Raises TimeoutError."""
        if is_expression(self.source):
            return [match.span() for match in _expression(self.source).finditer(text, timeout=SECONDS)]
        return _find(self.source, self.languages[0], text)

    def count(self, translation: str) -> int:
        """How often a translation has the target form."""
        text, _ = _comparable(translation, marks=_has_marks(self.target))
        return len(_find(self.target, self.languages[1], text))


class Match(NamedTuple):
    """An occurrence of a term in a source."""

    start: int
    stop: int
    term: Term


def is_expression(form: str) -> bool:
    """Whether a form is a regular expression."""
    return len(form) > 2 and form.startswith("/") and form.endswith("/")


@lru_cache(1 << 16)
def _expression(form: str) -> regex.Pattern[str]:
    try:
        return regex.compile(form[1:-1], regex.IGNORECASE)
    except regex.error as error:
        raise ValueError(f"the source form {shown(form)} of a term is not a valid expression: {error}") from None


@lru_cache(1 << 16)
def _words_of(form: str, language: str) -> tuple[regex.Pattern[str], list[str]]:
    """A pattern that finds all that may be a form of these words, and more; and their stems, "" for what has none."""
    words = _comparable(form, marks=True)[0].split()
    stems = [stem(word, language) if _INFLECTED.fullmatch(word) and not unspaced(word) else "" for word in words]
    before = "" if unspaced(form[:1]) else rf"(?<!{SPACED})"
    after = "" if unspaced(form[-1:]) else rf"(?!{SPACED})"
    likely = []
    for word, own in zip(words, stems, strict=True):
        begin = "".join(SPACED if bare(letter) in VOWELS else regex.escape(letter) for letter in word[:SHORTEST])
        likely.append(rf"{begin}{SPACED}{{0,{len(word) - SHORTEST + LONGER}}}" if own else regex.escape(word))
    return regex.compile(before + r"\s+".join(likely) + after, regex.IGNORECASE | regex.V1), stems


def _find(form: str, language: str, text: str) -> list[tuple[int, int]]:
    """Where a comparable text has a form, with whatever endings."""
    pattern, stems = _words_of(form, language)
    spans: list[tuple[int, int]] = []
    for match in pattern.finditer(text, overlapped=True):
        pairs = zip(stems, match[0].split(), strict=True)
        if all(not own or own == stem(word, language) for own, word in pairs) and (
            not spans or match.start() >= spans[-1][1]
        ):
            spans.append(match.span())
    return spans


def _has_marks(form: str) -> bool:
    return _MARKS.search(form) is not None


def _comparable(text: str, marks: bool) -> tuple[str, list[tuple[int, int]]]:
    """A text with one form of apostrophes, hyphens and accents, without what is not seen and, unless `marks`, without
    marks; and where each of its characters begins and ends in the text."""
    written: list[str] = []
    places: list[tuple[int, int]] = []
    for found in _VARIANTS.finditer(text):
        kind = found.lastgroup
        now = unicodedata.normalize("NFC", found[0]) if kind is None or (kind == "mark" and marks) else _WRITTEN[kind]
        written.append(now)
        places += [found.span()] * len(now)
    return "".join(written), places


def find_terms(text: str, terms: Sequence[Term]) -> list[Match]:
    """The occurrences of the terms from left to right, without overlaps: the leftmost wins, then the longest, then the
    term given first. Raises ValueError if an expression takes too long."""
    found = []
    others = apart(text) if any(term.prose for term in terms) else []
    read = {marks: _comparable(text, marks) for marks in {_has_marks(term.source) for term in terms}}
    for number, term in enumerate(terms):
        if is_expression(term.source):
            written, places = text, [(place, place + 1) for place in range(len(text))]
        else:
            written, places = read[_has_marks(term.source)]
        try:
            spans = term.find(written)
        except TimeoutError:
            raise ValueError(f"the source form {shown(term.source)} of a term takes too long: simplify it") from None
        for start, stop in ((places[a][0], places[b - 1][1]) for a, b in spans if b > a):
            if not (term.prose and any(a < stop and start < b for a, b in others)):
                found.append((start, -stop, number, term))
    matches: list[Match] = []
    for start, stop, _, term in sorted(found, key=lambda one: one[:3]):
        if not matches or start >= matches[-1].stop:
            matches.append(Match(start, -stop, term))
    return matches


def make_terms(
    forms: Mapping[str, str], languages: tuple[str, str] = ("", ""), prose: bool = False
) -> tuple[Term, ...]:
    """Terms from a mapping of source to target forms. Raises ValueError like `Term`."""
    return tuple(Term(source, target, languages, prose) for source, target in forms.items())
