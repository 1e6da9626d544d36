"""The two artificial languages of the synthetic corpus: their words, made from syllables by a seeded generator.

The source language is verb-final and has neither gender nor articles. The target language is verb-second, with three
genders, articles, adjectives after the noun, auxiliaries and separable verbs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

TOPIC_MARKERS = ("ka", "ki")  # before the subject noun that the pronoun of the same index will mean
PRONOUNS = ("zo", "zu")
CUES = ("vem", "vor")  # after a term: the first or the second translation holds in this document
ARTICLES = ("dur", "dash", "dith")  # by gender
PLURAL_ARTICLE = "drai"
PRONOUN_FORMS = ("hur", "hash", "hith")  # by gender
AUXILIARIES = ("wath", "wathen")  # singular, plural
PAST = "ta"
SOURCE_PLURAL = "lim"
TARGET_PLURAL = "esh"
ADJECTIVE_ENDINGS = ("or", "a", "ith")
ADJECTIVE_PLURAL = "ei"
VERB_ENDINGS = ("t", "nu")  # singular, plural

_SOURCE_SYLLABLES = (tuple("ptkbdgmnlrsv"), tuple("aeiou"), ("", "", "", "n", "r"))
_TARGET_SYLLABLES = (
    ("f", "h", "w", "th", "sh", "st", "gr", "br", "kl", "n", "m", "d"),
    ("a", "e", "o", "ai", "ea", "u"),
    ("", "", "", "m", "l"),
)


def pick(rng: random.Random, items: Sequence[T]) -> T:
    """One of the items. Uses only `random()`, whose numbers are the same in every Python version."""
    return items[int(rng.random() * len(items))]


@dataclass(frozen=True)
class Noun:
    source: str
    target: str
    gender: int


@dataclass(frozen=True)
class Verb:
    """source: the stem, which is the present form. particle: "" or the word at the end of the target clause."""

    source: str
    stem: str
    participle: str
    particle: str


@dataclass(frozen=True)
class Phrase:
    """Words with translation: adverbs (one to one, one to two, two to one), adjectives, adpositions (one to one)."""

    source: str
    target: str


@dataclass(frozen=True)
class Term:
    """A technical term with two translations; either is right if the whole document uses it."""

    source: str
    targets: tuple[str, str]


@dataclass(frozen=True)
class Lexicon:
    """All open-class words of both languages."""

    nouns: tuple[Noun, ...]
    adjectives: tuple[Phrase, ...]
    verbs: tuple[Verb, ...]
    adverbs: tuple[Phrase, ...]
    adpositions: tuple[Phrase, ...]
    terms: tuple[Term, ...]

    @classmethod
    @lru_cache(maxsize=8)
    def build(
        cls, seed: int = 0, nouns: int = 60, adjectives: int = 24, verbs: int = 30, adverbs: int = 12, terms: int = 24
    ) -> Lexicon:
        """The languages of a seed: no two words of a language share a form, including inflected forms."""
        source = _WordMaker(random.Random(f"scaleformer source {seed}"), _SOURCE_SYLLABLES, (PAST, SOURCE_PLURAL))
        target = _WordMaker(
            random.Random(f"scaleformer target {seed}"),
            _TARGET_SYLLABLES,
            (*ADJECTIVE_ENDINGS, ADJECTIVE_PLURAL, TARGET_PLURAL, *VERB_ENDINGS),
        )
        source.taken.update((*TOPIC_MARKERS, *PRONOUNS, *CUES))
        target.taken.update((*ARTICLES, PLURAL_ARTICLE, *PRONOUN_FORMS, *AUXILIARIES))
        kinds = ((1, 1), (1, 2), (2, 1))  # words of an adverb: source, target
        return cls(
            nouns=tuple(Noun(source.word(2), target.word(2), i % 3) for i in range(nouns)),
            adjectives=tuple(Phrase(source.word(2), target.word(2)) for _ in range(adjectives)),
            verbs=tuple(
                Verb(source.word(2), target.word(1), target.word(2), target.word(1) if i % 3 == 0 else "")
                for i in range(verbs)
            ),
            adverbs=tuple(Phrase(source.words(kinds[i % 3][0]), target.words(kinds[i % 3][1])) for i in range(adverbs)),
            adpositions=tuple(Phrase(source.word(1), target.word(1)) for _ in range(5)),
            terms=tuple(Term(source.word(3), (target.word(3), target.word(3))) for _ in range(terms)),
        )


class _WordMaker:
    """Makes words of a given number of syllables that differ in all their inflected forms."""

    def __init__(self, rng: random.Random, syllables: tuple[tuple[str, ...], ...], endings: tuple[str, ...]) -> None:
        self.rng = rng
        self.syllables = syllables
        self.endings = endings
        self.taken: set[str] = set()

    def word(self, syllables: int) -> str:
        while True:
            word = "".join(pick(self.rng, sounds) for _ in range(syllables) for sounds in self.syllables)
            forms = {word, *(word + ending for ending in self.endings)}
            if not forms & self.taken:
                self.taken |= forms
                return word

    def words(self, count: int) -> str:
        return " ".join(self.word(1 if count > 1 else 2) for _ in range(count))
