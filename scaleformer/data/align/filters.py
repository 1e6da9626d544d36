"""Filters out beads that are useless for training: wrong script, wrong language, repeated words."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from scaleformer.data.align.lexicon import words
from scaleformer.system.errors import DataError

FILTERS = ("script", "language", "repetition")
FEWEST_LETTERS = 10  # to judge a text's script
TELLING_LETTERS = 60  # to judge a text's language
SHARE = 0.1  # of the letters of a side; a script with this share is usual there
MARGIN = 10.0  # nats by which another language has to be likelier
FEWEST_WORDS = 12  # to judge repetition
DISTINCT = 0.25  # share of distinct words below which a text is repetitive

Check = Callable[[str, str], str]  # why a source and a target text are left out, "" if they are kept


def make_check(filters: Sequence[str], sides: Sequence[Iterable[str]], languages: Sequence[str | None]) -> Check:
    """The check of the named filters, for a corpus with these texts on each side.

    script      most letters belong to scripts with less than `SHARE` of that side of the corpus
    language    a language other than the side's is likelier by `MARGIN`, for texts of at least `TELLING_LETTERS`; off
                for languages that py3langid does not know, or if none is given
    repetition  less than `DISTINCT` of at least `FEWEST_WORDS` words are distinct, on one side only
    Raises DataError if py3langid is needed but not installed.
    """
    scripts = [_usual_scripts(texts) if "script" in filters else None for texts in sides]
    tongues = [_language_check(language) if "language" in filters and language else None for language in languages]

    def check(source: str, target: str) -> str:
        for text, usual in zip((source, target), scripts, strict=True):
            if usual is not None and _foreign(text, usual):
                return "script"
        for text, is_other in zip((source, target), tongues, strict=True):
            if is_other is not None and is_other(text):
                return "language"
        repeats = [_repeats(text) for text in (source, target)]
        return "repetition" if "repetition" in filters and repeats[0] != repeats[1] else ""

    return check


@cache
def _script(character: str) -> str:
    """LATIN, CYRILLIC, CJK ...: the first word of a letter's Unicode name; "" for other characters."""
    return unicodedata.name(character, "").split(" ")[0].split("-")[0] if character.isalpha() else ""


def _letters(texts: Iterable[str]) -> Counter[str]:
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(text)
    scripts: Counter[str] = Counter()
    for character, count in characters.items():
        if script := _script(character):
            scripts[script] += count
    return scripts


def _usual_scripts(texts: Iterable[str]) -> set[str]:
    scripts = _letters(texts)
    return {script for script, count in scripts.items() if count >= SHARE * scripts.total()}


def _foreign(text: str, usual: set[str]) -> bool:
    scripts = _letters([text])
    own = sum(count for script, count in scripts.items() if script in usual)
    return scripts.total() >= FEWEST_LETTERS and own < scripts.total() / 2


def _language_check(language: str) -> Callable[[str], bool] | None:
    try:
        import py3langid
    except ImportError:
        message = "the language filter needs py3langid: pip install 'scaleformer[documents]' (or filters=[script])"
        raise DataError(message) from None
    language = language.replace("_", "-").split("-")[0].lower()
    if language not in dict(py3langid.rank("")):
        return None

    def is_other(text: str) -> bool:
        if sum(map(str.isalpha, text)) < TELLING_LETTERS or py3langid.classify(text)[0] == language:
            return False
        ranking = dict(py3langid.rank(text))
        return max(ranking.values()) - ranking[language] > MARGIN

    return is_other


def _repeats(text: str) -> bool:
    found = words(text)
    return len(found) >= FEWEST_WORDS and len(set(found)) < DISTINCT * len(found)
