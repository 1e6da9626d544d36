"""What the forms of a word have in common, by the stemmers of Snowball (snowballstem.org)."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import snowballstemmer

from scaleformer.text.languages import base_language

_STEMMERS = (
    "ar:arabic ca:catalan cs:czech da:danish de:german el:greek en:english eo:esperanto es:spanish et:estonian "
    "eu:basque fa:persian fi:finnish fr:french ga:irish hi:hindi hu:hungarian hy:armenian id:indonesian it:italian "
    "lt:lithuanian nb:norwegian ne:nepali nl:dutch nn:norwegian no:norwegian pl:polish pt:portuguese ro:romanian "
    "ru:russian sr:serbian st:sesotho sv:swedish ta:tamil tr:turkish yi:yiddish"
)
_NAMES = dict(pair.split(":") for pair in _STEMMERS.split())
VOWELS = "aeiouy\u03b1\u03b5\u03b7\u03b9\u03bf\u03c5\u03c9\u0430\u0435\u0438\u043e\u0443\u044b\u044d\u044e\u044f"


@lru_cache(1 << 16)
def stem(word: str, language: str) -> str:
    """What all forms of a word have in common; a language that Snowball lacks, or "", is taken for English.

    Snowball takes off endings of derivation, too, but from long words only. So it reads a word once more from the last
    syllable before its ending on, and then again from that before the new ending: compiling becomes compil, compiler
    stays as it is.
    """
    stemmer = snowballstemmer.stemmer(_NAMES.get(base_language(language), "english"))  # its own: not safe in threads
    word = found = unicodedata.normalize("NFC", word.casefold())
    end = len(stemmer.stemWord(word))
    for _ in range(2):
        start = min(end, len(word))
        for vowels in (True, False, True, False):
            while start and (bare(word[start - 1]) in VOWELS) == vowels:
                start -= 1
        found = word[:start] + stemmer.stemWord(word[start:])
        end = len(found)
    return found


def bare(letter: str) -> str:
    """A letter without its accent, in lower case."""
    return unicodedata.normalize("NFD", letter.lower())[0]
