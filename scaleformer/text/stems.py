"""Whether two words are forms of one word, by the stemmers of Snowball (snowballstem.org)."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import regex
import snowballstemmer

from scaleformer.text.languages import base_language

_STEMMERS = (
    "ar:arabic ca:catalan cs:czech da:danish de:german el:greek en:english eo:esperanto es:spanish et:estonian "
    "eu:basque fa:persian fi:finnish fr:french ga:irish hi:hindi hu:hungarian hy:armenian id:indonesian it:italian "
    "lt:lithuanian nb:norwegian ne:nepali nl:dutch nn:norwegian no:norwegian pl:polish pt:portuguese ro:romanian "
    "ru:russian sr:serbian st:sesotho sv:swedish ta:tamil tr:turkish yi:yiddish"
)
_NAMES = dict(pair.split(":") for pair in _STEMMERS.split())
_VOWELS = "aeiouy\u03b1\u03b5\u03b7\u03b9\u03bf\u03c5\u03c9\u0430\u0435\u0438\u043e\u0443\u044b\u044d\u044e\u044f"


@lru_cache(1 << 16)
def stem(word: str, language: str) -> str:
    """The stem of a word. A language that Snowball lacks, or that is not known (""), is taken for English."""
    name = _NAMES.get(base_language(language), "english")
    return str(snowballstemmer.stemmer(name).stemWord(word.casefold()))  # a new one: they are not for threads


@lru_cache(1 << 16)
def same_word(one: str, other: str, language: str) -> bool:
    """Whether two words differ in an ending of inflection only, such as compile and compiling.

    Their stems are the same, and stay so without all but the last syllable that both have before their endings: the
    stemmers take the endings of derivation, as of compiler, from long words only.
    """
    words = [unicodedata.normalize("NFC", word.casefold()) for word in (one, other)]
    if words[0] == words[1]:
        return True
    if stem(words[0], language) != stem(words[1], language):
        return False
    bare = ["".join(map(_bare, word)) for word in words]
    start = next((n for n, (a, b) in enumerate(zip(*bare, strict=False)) if a != b), min(map(len, bare)))
    for vowels in (True, False, True, False):
        while start and (bare[0][start - 1] in _VOWELS) == vowels:
            start -= 1
    return stem(words[0][start:], language) == stem(words[1][start:], language)


def first_letters(word: str, count: int) -> str:
    """A regular expression for the first letters of all forms of a word, whose vowels may change."""
    return "".join(r"\w" if _bare(letter) in _VOWELS else regex.escape(letter) for letter in word[:count])


def _bare(letter: str) -> str:
    """A letter without its accent, in lower case."""
    return unicodedata.normalize("NFD", letter.lower())[0]
