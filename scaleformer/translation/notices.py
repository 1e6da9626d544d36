"""Warnings about translations: cut documents, empty segments, segments longer than any in training."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.system.display import counted
from scaleformer.translation.request import Request
from scaleformer.translation.translations import Translation

log = logging.getLogger(__name__)


def warn_of_cut(request: Request, translations: Sequence[Translation]) -> None:
    """Log the documents that the length limit cut."""
    cut = [request.name(n) for n, translation in enumerate(translations) if not translation.finished]
    segments = sum(len(translation.cut) for translation in translations)
    if cut:
        log.warning(
            "%d of %d documents hit the length limit and are cut%s (decoding.max_length_ratio, max_length_offset): %s",
            len(cut),
            len(translations),
            f" in {counted(segments, 'segment')}" if segments else "",
            some_of(cut),
        )


def warn_of_empty(request: Request, translations: Sequence[Translation]) -> None:
    """Log the segments with text but an empty translation."""
    empty = [
        request.place(n, i)
        for n, (segments, translation) in enumerate(zip(request.documents, translations, strict=True))
        for i in empty_places(segments, translation)
    ]
    if empty:
        log.warning("empty translation of %s: %s", counted(len(empty), "segment"), some_of(empty))


def warn_of_unsure(request: Request, translations: Sequence[Translation], limit: float, left: bool) -> None:
    """Log the segments of which less than `limit` is expected, left untranslated or marked, and the documents of which
    nothing is known."""
    unsure = [request.place(n, i) for n, translation in enumerate(translations) for i in translation.unsure]
    if unsure:
        how = "left untranslated" if left else "marked in XLIFF, PO and JSON Lines"
        some = counted(len(unsure), "segment")
        log.warning("confidence below %g: %s, %s: %s", limit, some, how, some_of(unsure))
    if unknown := [request.name(n) for n, translation in enumerate(translations) if not translation.judged]:
        log.warning(
            "confidence is unknown of %s without text or with other segments than the source: %s",
            counted(len(unknown), "document"),
            some_of(unknown),
        )


def warn_of_broken(request: Request, translations: Sequence[Translation]) -> None:
    """Log the documents without characters of which the model wrote some bytes alone."""
    counts = [translation.hypotheses[0].broken for translation in translations]
    if any(counts):
        log.warning(
            "%d character%s left out, of which the model wrote only some of the bytes: %s",
            sum(counts),
            "s" * (sum(counts) != 1),
            some_of([f"{request.name(n)} ({count})" for n, count in enumerate(counts) if count]),
        )


def warn_of_long(request: Request, tokenizer: Tokenizer, longest: int | None) -> None:
    """Log the segments longer than `longest`, the longest in training; None: unknown, nothing is logged."""
    long = [
        f"{request.place(n, i)} ({len(tokens) + 2:,})"
        for n, segments in enumerate(() if longest is None else request.documents)
        for i, tokens in enumerate(tokenizer.encode_batch(segments))
        if is_long(tokens, longest)
    ]
    if long:
        log.warning(
            "%s of more tokens than the longest in training (%d); parts may stay untranslated: "
            "make each sentence a segment (in text: a line): %s",
            counted(len(long), "segment"),
            longest,
            some_of(long),
        )


def empty_places(segments: Sequence[str], translation: Translation) -> list[int]:
    """The segments with text but an empty translation, unless merged into the translation of the one before."""
    return [
        i
        for i, (segment, text) in enumerate(zip(segments, translation.segments, strict=False))
        if segment.strip() and not text.strip() and i not in translation.hypotheses[0].shared
    ]


def is_long(tokens: Sequence[int], longest: int | None) -> bool:
    """Whether a segment has more tokens than the longest in training, `<sep>` and `</s>` included."""
    return longest is not None and len(tokens) + 2 > longest


def some_of(names: Sequence[str]) -> str:
    """The first ten names, on one line."""
    return ", ".join(names[:10]) + (" ..." if len(names) > 10 else "")
