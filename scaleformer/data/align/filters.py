"""Filters out beads that are useless for training: wrong script, wrong language, repeated words."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from scaleformer.data.align.lexicon import words
from scaleformer.system.errors import DataError
from scaleformer.text.languages import base_language
from scaleformer.text.spans import find_spans, mask

FILTERS = ("script", "language", "repetition")
FEWEST_LETTERS = 10  # to judge a text's script
TELLING_LETTERS = 60  # to judge a text's language
SURE_LETTERS = 200  # to believe in a language of neither side where the neighbours are of the right one
SHARE = 0.1  # of the letters of a side; a script with this share is usual there
MARGIN = 10.0  # nats by which another language has to be likelier
FEWEST_WORDS = 12  # to judge repetition
DISTINCT = 0.25  # share of distinct words below which a text is repetitive

DOUBTFUL = "short, and of a third language"  # to be kept between beads that are kept, else "language"
EXCHANGED = "of the other side's language"  # both texts are

Check = Callable[[str, str], str]  # why a source and a target text are left out, "" if they are kept


def make_check(filters: Sequence[str], sides: Sequence[Iterable[str]], languages: Sequence[str | None]) -> Check:
    """The check of the named filters, for a corpus with these texts on each side.

    script      most letters belong to scripts with less than `SHARE` of that side of the corpus
    language    a language other than the side's is likelier by `MARGIN`, for texts of at least `TELLING_LETTERS`; off
                for languages that py3langid does not know, or if none is given
    repetition  less than `DISTINCT` of at least `FEWEST_WORDS` words are distinct, on one side only
    Raises DataError if py3langid is needed but not installed.
    """
    scripts = [_usual_scripts(map(_prose, texts)) if "script" in filters else None for texts in sides]
    codes = [base_language(language or "") for language in languages]
    tell = _language_of() if "language" in filters and any(codes) else None

    def check(source: str, target: str) -> str:
        both = _prose(source), _prose(target)
        for text, usual in zip(both, scripts, strict=True):
            if usual is not None and _foreign(text, usual):
                return "script"
        if tell is not None:
            others = [tell(text, code) for text, code in zip(both, codes, strict=True)]
            if others == codes[::-1]:
                return EXCHANGED
            if any(other == code for other, code in zip(others, codes[::-1], strict=True) if code):
                return "language"
            if foreign := [text for text, other in zip(both, others, strict=True) if other]:
                return "language" if any(_count_letters(text) >= SURE_LETTERS for text in foreign) else DOUBTFUL
        repeats = [_repeats(text) for text in both]
        return "repetition" if "repetition" in filters and repeats[0] != repeats[1] else ""

    return check


def _prose(text: str) -> str:
    """The text without code, markup and links, which are of no language."""
    return mask(text, ((place, " ") for place in find_spans(text)))


def _count_letters(text: str) -> int:
    return sum(map(str.isalpha, text))


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


def _language_of() -> Callable[[str, str], str]:
    """A function that says which language a text has, if it clearly is not the one named, else ""."""
    try:
        import py3langid
    except ImportError:
        message = "the language filter needs py3langid: pip install 'scaleformer[documents]' (or filters=[script])"
        raise DataError(message) from None
    known = dict(py3langid.rank(""))

    def other(text: str, language: str) -> str:
        if language not in known or _count_letters(text) < TELLING_LETTERS:
            return ""
        found = py3langid.classify(text)[0]
        if found == language:
            return ""
        ranking = dict(py3langid.rank(text))
        return str(found) if max(ranking.values()) - ranking[language] > MARGIN else ""

    return other


def _repeats(text: str) -> bool:
    found = words(text)
    return len(found) >= FEWEST_WORDS and len(set(found)) < DISTINCT * len(found)
