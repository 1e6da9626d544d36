"""Segments of documents while they are being written, whatever pieces and batches those are in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.translation.active import Watch
from scaleformer.translation.batches import by_source
from scaleformer.vocabulary import EOS, steps_of


class SegmentStreams:
    """Tells of each segment as soon as it is final: `tell(document, first segment, texts)`, whose answer is whether the
    document is still wanted.

    pieces  of each document, in the order in which they are translated; first: the number of the first document
    match   whether a translation has the segments of its source; else which one a text belongs to is known at the end
            alone, and none is told. Nor is one of a search with several rows a document, which has no tokens before.
    """

    def __init__(
        self,
        pieces: Sequence[Sequence[Sequence[str]]],
        first: int,
        tokenizer: Tokenizer,
        match: bool,
        tell: Callable[[int, int, Sequence[str]], bool],
    ) -> None:
        self._places = [
            (document, start)
            for document, group in enumerate(pieces, first)
            for start, _ in zip(accumulate(map(len, group), initial=0), group, strict=False)
        ]
        self._tokenizer, self._match, self._tell = tokenizer, match, tell

    def of(self, pieces: Sequence[int], first: int = 0) -> Watch:
        """What watches a batch of these pieces, numbered from the piece `first` on."""
        pieces = [first + piece for piece in pieces]
        waiting: list[list[int]] = [[] for _ in pieces]  # tokens of the segment at hand
        following = [self._places[piece][1] for piece in pieces]

        def watch(place: int, tokens: Sequence[int]) -> bool:
            texts = self._ended(waiting[place], tokens) if self._match else []
            start = following[place]
            following[place] += len(texts)
            return self._tell(self._places[pieces[place]][0], start, texts)

        return watch

    def _ended(self, waiting: list[int], tokens: Sequence[int]) -> list[str]:
        """The segments that the tokens end; what follows the last of them waits."""
        texts: list[str] = []
        for token in tokens:
            if waiting[-1:] == [EOS]:  # what follows it is not read
                break
            waiting.append(token)
            if steps_of(token, self._tokenizer.counted):
                texts += by_source(self._tokenizer.decode_counted(waiting))[0]
                waiting.clear()
        return texts
