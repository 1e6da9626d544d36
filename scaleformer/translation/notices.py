"""What a user has to know of translations: what was cut, what is missing, what the model has never seen the like of."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from scaleformer.data.tokenizer import Tokenizer

if TYPE_CHECKING:
    from scaleformer.translation.translations import Translation

log = logging.getLogger(__name__)
Place = Callable[[int, int], str]  # what to call a segment, by document and segment


def warn_of_cut(translations: Sequence[Translation], names: Sequence[str]) -> None:
    """Name the documents that hit the length limit."""
    cut = [name for name, translation in zip(names, translations, strict=True) if not translation.finished]
    if cut:
        log.warning(
            "%d of %d documents hit the length limit and are cut (decoding.max_length_ratio, max_length_offset): %s",
            len(cut),
            len(translations),
            some_of(cut),
        )


def warn_of_empty(documents: Sequence[Sequence[str]], translations: Sequence[Translation], place: Place) -> None:
    """Name the segments with text whose translation has none."""
    empty = [
        place(n, i)
        for n, (segments, translation) in enumerate(zip(documents, translations, strict=True))
        for i in empty_places(segments, translation)
    ]
    if empty:
        log.warning("%d segments have an empty translation: %s", len(empty), some_of(empty))


def warn_of_copied(words: int) -> None:
    """Tell how many words stand there because the vocabulary could not write them."""
    if words:
        log.warning("%d unknown words were taken from the source (decoding.copy_unknown)", words)


def warn_of_long(documents: Sequence[Sequence[str]], tokenizer: Tokenizer, longest: int, place: Place) -> None:
    """Name the segments that have more tokens than the longest one of the training, `<sep>` and `</s>` counted."""
    long = [
        f"{place(n, i)} ({len(tokens) + 2:,})"
        for n, segments in enumerate(documents)
        for i, tokens in enumerate(tokenizer.encode_batch(segments))
        if is_long(tokens, longest)
    ]
    if long:
        log.warning(
            "%d segments have more tokens than the longest of the training (%d), and parts of them may be left out: "
            "make each sentence a segment (in text a line): %s",
            len(long),
            longest,
            some_of(long),
        )


def empty_places(segments: Sequence[str], translation: Translation) -> list[int]:
    """The segments with text whose translation has none, and which the one before them does not translate, too."""
    return [
        i
        for i, (segment, text) in enumerate(zip(segments, translation.segments, strict=False))
        if segment.strip() and not text.strip() and i not in translation.hypotheses[0].shared
    ]


def is_long(tokens: Sequence[int], longest: int | None) -> bool:
    """Whether a segment of these tokens is longer than the longest one of the training, `<sep>` and `</s>` counted."""
    return longest is not None and len(tokens) + 2 > longest


def some_of(names: Sequence[str]) -> str:
    """The first ten names in a line."""
    return ", ".join(names[:10]) + (" ..." if len(names) > 10 else "")
