"""Segments of documents during decoding, across pieces and batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.decoding.active import Watch
from scaleformer.translation.matching import by_source
from scaleformer.vocabulary import EOS, steps_of


class SegmentStreams:
    """Reports each segment as soon as it is final: `tell(document, first segment, texts)` returns whether to continue
    the document.

    sizes   segments of each piece of each document, in decoding order; first: the number of the first document
    match   whether translations have the segments of their source. Otherwise texts can be assigned only at the end, and
            none is reported; nor are those of a search with several rows per document, whose tokens are not final.
    """

    def __init__(
        self,
        sizes: Sequence[Sequence[int]],
        first: int,
        tokenizer: Tokenizer,
        match: bool,
        tell: Callable[[int, int, Sequence[str]], bool],
    ) -> None:
        self._places = [
            (document, start)
            for document, group in enumerate(sizes, first)
            for start, _ in zip(accumulate(group, initial=0), group, strict=False)
        ]
        self._tokenizer, self._match, self._tell = tokenizer, match, tell

    def of(self, pieces: Sequence[int], first: int = 0) -> Watch:
        """The `watch` of a batch of these pieces, numbered from the piece `first`."""
        pieces = [first + piece for piece in pieces]
        waiting: list[list[int]] = [[] for _ in pieces]  # tokens of the current segment
        following = [self._places[piece][1] for piece in pieces]

        def watch(place: int, tokens: Sequence[int]) -> bool:
            texts = self._ended(waiting[place], tokens) if self._match else []
            start = following[place]
            following[place] += len(texts)
            return self._tell(self._places[pieces[place]][0], start, texts)

        return watch

    def _ended(self, waiting: list[int], tokens: Sequence[int]) -> list[str]:
        """The segments that the tokens complete; the rest stays in `waiting`."""
        texts: list[str] = []
        for token in tokens:
            if waiting[-1:] == [EOS]:  # ignore tokens after it
                break
            waiting.append(token)
            if steps_of(token):
                texts += by_source(self._tokenizer.decode_counted(waiting))[0]
                waiting.clear()
        return texts
