"""What is wrong with segments, told from their texts: script, language, repetition, copies, mojibake, lengths, ..."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from scaleformer.data.align.lexicon import words
from scaleformer.system.errors import DataError
from scaleformer.text.languages import base_language
from scaleformer.text.placeholders import keeps_placeholders
from scaleformer.text.spans import find_spans, mask
from scaleformer.text.words import spaced

log = logging.getLogger(__name__)

FEWEST_LETTERS = 10  # to judge a text's script, or to call it a copy
TELLING_LETTERS = 60  # to judge a text's language
SOME_LETTERS = 20  # to doubt it, which counts where the alignment is doubtful, too
SURE_LETTERS = 200  # to believe in a language of neither side where the neighbours are of the right one
SHARE = 0.1  # of the letters of a side; a script with this share is usual there
MARGIN = 10.0  # nats by which another language has to be likelier
FEWEST_WORDS = 12  # to judge repetition
DISTINCT = 0.25  # share of distinct words below which a text is repetitive
LONG = 30  # characters of the longer text from which the ratio of the lengths tells anything
READ = 3000  # characters by which the language of a document is told

DOUBTFUL = "short, and of a third language"  # no fault between segments without any
UNSURE, UNSURE_BIT = "perhaps of another language", 1 << 20  # a fault where the alignment is doubtful, too
EXCHANGED = "exchanged"  # both texts are of the other side's language
#: Faults of a segment, a bit each; a report counts also those after "score", for which there are no filters.
FAULTS = ("script", "language", "repetition", "copies", "mojibake", "ratio", "alignment", "score")
BITS = {n: 1 << k for k, n in enumerate((*FAULTS, EXCHANGED, "empty", "numbers", "URLs", "tags", "placeholders"))}

# UTF-8 that was read as Windows-1252: a letter that leads two or three bytes, and what can follow it; and what follows
# Ä, Å, Ð and Ñ in good texts, too, there not within a word.
_FOLLOWS, _CLOSE = "\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ", "[»”’…–—›²³¹±ºª°·®©\xa0\xad]"
_MOJIBAKE = re.compile(
    rf"[ÂÃ][{_FOLLOWS}]|[ÐÑ](?!{_CLOSE})[{_FOLLOWS}]|[ÄÅ](?!{_CLOSE})[\x80-\xbf]|(?<=[a-zß-ÿ])[ÄÅÐÑ]{_CLOSE}|"
    rf"[ÄÅÐÑ]{_CLOSE}(?=[^\W\d_])|â€|ã[\x80-\x83€‚ƒ]|ï»¿|\ufffd|[\x80-\x84\x86-\x9f]"
)
_NUMBER = re.compile(r"\d+(?:[.,\u00a0\u202f ]\d{3})*(?:[.,]\d+)*")
_URL, _TAG = re.compile(r"(?:https?|ftp|ssh|git|file)://|www\.|mailto:"), re.compile(r"</?[A-Za-z]")

Prose = tuple[str, list[str]]  # a text without code, markup and links, which are of no language; and these


class SegmentChecks:
    """The checks of the filters that are on, for a corpus with (a sample of) these texts on each side.

    script      most letters belong to scripts with less than `SHARE` of that side of the corpus
    language    a language other than the side's is likelier by `MARGIN`, for texts of at least `TELLING_LETTERS`; off
                for languages that py3langid does not know (a warning names them), or if none is given
    repetition  less than `DISTINCT` of at least `FEWEST_WORDS` words are distinct, on one side only
    everything  look also for what no filter takes
    Raises DataError if py3langid is needed but not installed.
    """

    def __init__(
        self,
        filters: Mapping[str, Any],
        sides: Sequence[Iterable[str]],
        languages: Sequence[str | None],
        everything: bool = False,
    ) -> None:
        self._filters, self._everything = filters, everything
        self._scripts = [
            _usual_scripts(_prose(t)[0] for t in texts) if "script" in filters else None for texts in sides
        ]
        self._codes = [base_language(language or "") for language in languages]
        if "language" in filters and any(self._codes):
            require_languages()
            for code in (code for code in self._codes if code and not can_tell(code)):
                log.warning("the language filter cannot tell %r from others: nothing of that side is left out", code)

    def document(self, parts: Sequence[tuple[str, str]]) -> tuple[list[int], tuple[str, ...]]:
        """The faults of each source and target text of a document, as a sum of `BITS`; and the languages of both sides,
        those of the corpus where they cannot be told."""
        prose = [(_prose(source), _prose(target)) for source, target in parts]
        others = self._others([" ".join(sides[side][0] for sides in prose)[:READ] for side in (0, 1)])
        found = []
        for part, sides in zip(parts, prose, strict=True):
            names = set(self.faults(part, sides))
            names |= {"language"} if EXCHANGED in names else set()
            # what is too short to be of a language has that of its document
            short = [_letters_of(text) < TELLING_LETTERS for text, _ in sides]
            if "empty" not in names and any(other and few for other, few in zip(others, short, strict=True)):
                names.add("language")
            found.append(names)
        good = [False, *(not names - {UNSURE} for names in found), False]
        for number, names in enumerate(found):
            if DOUBTFUL in names and not (good[number] and good[number + 2]):
                names.add("language")
        spoken = tuple(other or code for other, code in zip(others, self._codes, strict=True))
        return [sum(BITS.get(name, UNSURE_BIT) for name in names - {DOUBTFUL}) for names in found], spoken

    def faults(self, part: tuple[str, str], sides: tuple[Prose, Prose]) -> list[str]:
        """The names of the faults of a pair of texts; EXCHANGED or DOUBTFUL may stand for "language"."""
        (source, target), on = part, self._filters
        if not (source.strip() and target.strip()):
            return ["empty"] if self._everything else []
        both = sides[0][0], sides[1][0]
        short, long = sorted((len(source.strip()), len(target.strip())))
        repeats = [_repeats(text) for text in both] if "repetition" in on else [False, False]
        same = "copies" in on and spaced(source) == spaced(target)
        found = {
            "script": any(u is not None and _foreign(text, u) for text, u in zip(both, self._scripts, strict=True)),
            self._language(both): True,
            UNSURE: any(self._others(both, SOME_LETTERS)),
            "repetition": repeats[0] != repeats[1],
            "copies": same and _letters_of(both[0]) >= FEWEST_LETTERS,
            "mojibake": "mojibake" in on and any(map(_MOJIBAKE.search, part)),
            "ratio": "ratio" in on and long >= LONG and long > on["ratio"] * short,
        }
        return [name for name, is_so in found.items() if name and is_so] + self._differences(part, sides)

    def _others(self, both: Sequence[str], least: int = TELLING_LETTERS) -> list[str]:
        """The languages of both texts of so many letters where they clearly are not those of their side, else ""."""
        if "language" not in self._filters:
            return ["", ""]
        return [other_language(text, code, least) if code else "" for text, code in zip(both, self._codes, strict=True)]

    def _language(self, both: Sequence[str]) -> str:
        others, codes = self._others(both), self._codes
        if any(others) and others == codes[::-1]:
            return EXCHANGED
        if any(other == code for other, code in zip(others, codes[::-1], strict=True) if code):
            return "language"
        if foreign := [text for text, other in zip(both, others, strict=True) if other]:
            return "language" if any(_letters_of(text) >= SURE_LETTERS for text in foreign) else DOUBTFUL
        return ""

    def _differences(self, part: tuple[str, str], sides: tuple[Prose, Prose]) -> list[str]:
        """What both texts have differently often, of that which translations keep."""
        if not self._everything:
            return []
        kept = {
            "numbers": [Counter(re.sub(r"\D", "", found) for found in _NUMBER.findall(text)) for text in part],
            "URLs": [Counter(filter(_URL.search, spans)) for _, spans in sides],
            "tags": [Counter(filter(_TAG.match, spans)) for _, spans in sides],
        }
        found = [name for name, (source, target) in kept.items() if source != target]
        return found if keeps_placeholders(*part) else [*found, "placeholders"]


def _prose(text: str) -> Prose:
    places = find_spans(text)
    return mask(text, ((place, " ") for place in places)), [text[start:stop] for start, stop in places]


def _letters_of(text: str) -> int:
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


def require_languages() -> None:
    """Raise DataError without py3langid."""
    try:
        _known_languages()
    except ImportError:
        message = "the language filter needs py3langid: pip install 'scaleformer[corpora]' (or filters.language=false)"
        raise DataError(message) from None


@cache
def _known_languages() -> frozenset[str]:
    import py3langid

    return frozenset(language for language, _ in py3langid.rank(""))


def can_tell(code: str) -> bool:
    """Whether texts in a language can be told from others."""
    return base_language(code) in _known_languages()


@lru_cache(maxsize=64)  # a document of one segment is asked twice
def other_language(text: str, language: str, least: int = TELLING_LETTERS) -> str:
    """The language of a text if it clearly is not the one named ("" for any), else "" """
    import py3langid

    if (language and language not in _known_languages()) or _letters_of(text) < least:
        return ""
    found = str(py3langid.classify(text)[0])
    if not language:
        return found
    if found == language:
        return ""
    ranking = dict(py3langid.rank(text))
    return found if max(ranking.values()) - ranking[language] > MARGIN else ""


def _repeats(text: str) -> bool:
    found = words(text)
    return len(found) >= FEWEST_WORDS and len(set(found)) < DISTINCT * len(found)
