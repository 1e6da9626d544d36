"""Words for comparing texts: separated by spaces, or single characters in scripts without spaces."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator

import regex

# Chinese and Japanese with their punctuation and full-width forms, Tibetan, and the scripts of Southeast Asia that
# Unicode calls complex: Thai, Lao, Khmer, Burmese ... Korean uses spaces.
_UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\u30fc\p{Block=CJK_Symbols_And_Punctuation}"
    r"\p{Block=Halfwidth_And_Fullwidth_Forms}\p{Tibetan}\p{Line_Break=Complex_Context}"
)
_WORD = regex.compile(rf"[{_UNSPACED}]\p{{M}}*|[^\s{_UNSPACED}]+", regex.V1)
_BARE = regex.compile(rf"[\w&&[{_UNSPACED}]]\p{{M}}*|[\w--[{_UNSPACED}]]+", regex.V1)
_TOKEN = regex.compile(rf"[{_UNSPACED}]\p{{M}}*|[\w--[{_UNSPACED}]]+|[^\w\s{_UNSPACED}]", regex.V1)
_RUN = regex.compile(rf"[\w&&[{_UNSPACED}]]+", regex.V1)
SPACED = rf"[\w--[{_UNSPACED}]]"  # a letter of a script with spaces, in a pattern of version 1 of the library regex
LONGEST = 6  # characters of a term in a script without spaces


def spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each word in a text."""
    return [match.span() for match in _WORD.finditer(text)]


def words(text: str) -> list[str]:
    """The words of a text with their punctuation; in most languages this is `text.split()`."""
    return _WORD.findall(text)


def token_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each word without punctuation, and of each punctuation mark."""
    return [match.span() for match in _TOKEN.finditer(text)]


def bare_words(text: str) -> list[str]:
    """The words of a text without punctuation."""
    return _BARE.findall(text)


def unspaced(text: str) -> bool:
    """Whether a text contains characters of a script without spaces."""
    return _RUN.search(text) is not None


def written_without_spaces(texts: Iterable[str]) -> bool:
    """Whether spaces in these texts separate whole clauses rather than words: more than three words between spaces."""
    chunks = counted = 0
    for text in texts:
        chunks += len(text.split())
        counted += len(words(text))
    return counted > 3 * chunks


def candidates(text: str) -> Iterator[str]:
    """Possible names and terms: words without punctuation, and in scripts without spaces, whose word lengths are
    unknown, every run of up to `LONGEST` characters."""
    for match in _BARE.finditer(text):
        if not unspaced(match[0]):
            yield match[0]
    for match in _RUN.finditer(text):
        run = match[0]
        yield from (run[i:j] for i in range(len(run)) for j in range(i + 1, min(i + LONGEST, len(run)) + 1))


def phrase(text: str) -> regex.Pattern[str]:
    """A pattern that finds the text as whole words, ignoring case."""
    before = "" if unspaced(text[:1]) else rf"(?<!{SPACED})"
    after = "" if unspaced(text[-1:]) else rf"(?!{SPACED})"
    return regex.compile(f"{before}{regex.escape(text)}{after}", regex.V1 | regex.IGNORECASE)


def spaced(text: str) -> str:
    """The text with composed characters (NFC) and single spaces: what two equal segments have in common."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def hash_of_text(text: str) -> int:
    """A number below 2 ** 63 for a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big") >> 1
