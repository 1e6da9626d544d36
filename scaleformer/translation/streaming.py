"""Reports the segments of documents while they are decoded in pieces and batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.decoding.active import Watch
from scaleformer.translation.matching import by_source
from scaleformer.vocabulary import EOS, steps_of


class SegmentStreams:
    """Reports each segment as soon as it is final.

    sizes   numbers of segments of each piece, by document; first: the number of the first of these documents
    match   whether target segments belong to source segments. If not, no text is reported; nor is any of a search with
            several rows per document, whose tokens are final only at the end
    tell    called with a document, the place of the first newly final segment and the texts; returns whether to go on
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

    def of(self, pieces: Sequence[int]) -> Watch:
        """The `watch` of `decode` for a batch of pieces, by their numbers."""
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
