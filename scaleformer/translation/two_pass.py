"""Translation in two passes, each of which decodes the segments of a document beside each other.

The first pass translates each segment by itself. The second translates each again, as if the model had just written the
first translations of all segments before it. So a document takes as many steps as its longest segment, twice, in place
of a step for each of its tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from scaleformer.decoding.active import Watch
from scaleformer.decoding.search import Hypothesis, decode
from scaleformer.model.transformer import DecoderState, Transformer
from scaleformer.system.bars import Progress
from scaleformer.translation.batches import make_batches, pad
from scaleformer.translation.pieces import Piece, PieceTranslator
from scaleformer.translation.streaming import SegmentStreams
from scaleformer.translation.translations import Translation
from scaleformer.vocabulary import BOS, EOS, SEP

# Contexts are read, not written: so many times the tokens of a batch, for fewer steps.
SHARE = 4
CONTEXT = 4  # segments before one that count where batches are made; the model's own window may be another


class _State(NamedTuple):
    """inner: the state of the model; numbers (rows,) long: of the segment that each row writes; first: whether no token
    is written yet."""

    inner: DecoderState
    numbers: Tensor
    first: bool


class FirstPass:
    """A document and its first translation, read by the model once for all segments of the second pass.

    source  tokens of the document, with the tag, `<sep>` after each segment, and `</s>`
    target  tokens of the translation of each segment, without `<sep>`

    Raises ValueError as `Transformer.read_target`, for a model that cannot read a target at once.
    """

    def __init__(self, model: Transformer, source: Sequence[int], target: Sequence[Sequence[int]]) -> None:
        device = next(model.parameters()).device
        tokens = torch.tensor([[BOS, *(token for segment in target for token in (*segment, SEP))]], device=device)
        self.model = model
        self.encoded = model.encode(*pad([source], device))
        self.segments = (tokens == SEP).cumsum(1)  # (1, L)
        self.inputs = model.read_target(self.encoded, tokens, self.segments)

    def states(self, numbers: Tensor) -> DecoderState:
        """The states before the segments of these numbers (n,), a row each."""
        starts = torch.searchsorted(self.segments[0], numbers)
        return self.model.states_before(self.encoded, self.inputs, self.segments, starts)


class InContext:
    """A model for `decode` (`DecodableModel`) whose sources are segments of one document, given by their numbers: each
    row continues the first translations of the segments before its own."""

    def __init__(self, first: FirstPass, numbers: Sequence[int]) -> None:
        self.first, self.model = first, first.model
        self.most_target_tokens = self.model.most_target_tokens
        self.numbers = torch.tensor(numbers, device=first.segments.device)

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> None:
        """Nothing: the document is encoded already."""

    def init_state(self, encoded: None, beams: int) -> _State:
        numbers = self.numbers.repeat_interleave(beams)
        return _State(self.first.states(numbers), numbers, True)

    def step(self, tokens: Tensor, segments: Tensor, state: _State) -> tuple[Tensor, _State]:
        if state.first:  # what the model reads before a segment is the end of the one before
            tokens = torch.where(state.numbers > 0, SEP, BOS)
        logits, inner = self.model.step(tokens, segments + state.numbers, state.inner)
        return logits, _State(inner, state.numbers, False)

    def reorder(self, state: _State, rows: Tensor, documents: Tensor | None) -> _State:
        # All rows are of one document: what is kept of its source stays as it is.
        return _State(self.model.reorder(state.inner, rows, None), state.numbers[rows], state.first)


@torch.inference_mode()
def translate_again(
    pieces: PieceTranslator,
    document: Sequence[Piece],
    first: Sequence[Translation],
    watch: Callable[[Sequence[int]], Watch] | None,
    progress: Callable[[int, float], None],
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """The second pass of one document. Yields the number of each segment with text, in any order, and its hypotheses.

    document  a piece for each segment; first: the translation of each by itself
    watch     makes the `watch` of `decode` for a batch of segments, given by their numbers
    progress  as in `decode`
    """
    loaded, config = pieces.loaded, pieces.config
    encode = loaded.source_tokenizer.encode_segments
    sources = [encode(piece.segments) if of.source_tokens else [SEP] for piece, of in zip(document, first, strict=True)]
    targets = loaded.target_tokenizer.encode_batch([" ".join(of.segments) for of in first])
    both = FirstPass(loaded.model, [*pieces.tag, *(token for tokens in sources for token in tokens), EOS], targets)
    # Those that read about as many tokens stand beside each other.
    lengths = [len(tokens) + 1 for tokens in targets]
    context = {n: sum(lengths[max(0, n - CONTEXT) : n + 1]) for n, of in enumerate(first) if of.source_tokens}
    for numbers in make_batches(context, replace(config, batch_tokens=SHARE * config.batch_tokens)):
        hypotheses = decode(
            InContext(both, numbers),
            *pad([[*pieces.tag, *sources[n], EOS] for n in numbers], loaded.device),
            config,
            keys=[document[n].name for n in numbers],
            forced=[document[n].forced.tokens(loaded.target_tokenizer) for n in numbers],
            watch=None if watch is None else watch(numbers),
            progress=progress,
        )
        yield from zip(numbers, hypotheses, strict=True)


def translate_twice(
    pieces: PieceTranslator,
    documents: Sequence[Sequence[Piece]],
    progress: Progress | None,
    done: int,
    streams: SegmentStreams | None,
) -> Iterator[Translation]:
    """`PieceTranslator.translate` in two passes, of documents whose pieces are single segments.

    The first half of the progress is the first pass; streams report the second. Raises ValueError without
    match_segments, with a memory_limit, for an ensemble, and as `FirstPass`.
    """
    config = pieces.config
    if not config.match_segments or not isinstance(pieces.loaded.model, Transformer):
        wanted = "match_segments=true" if not config.match_segments else "one model, no ensemble"
        raise ValueError(f"mode=two-pass: wanted {wanted}; or set mode=document")
    if config.memory_limit is not None:
        raise ValueError(
            f"decoding.memory_limit={config.memory_limit}: mode=two-pass fills its batches by "
            "decoding.batch_tokens alone: set decoding.memory_limit=null, or mode=document"
        )
    half = None if progress is None else lambda share, written: progress(share / 2, written)
    first = list(pieces.translate([piece for document in documents for piece in document], half, done))
    total = max(1, sum(part.source_tokens for part in first))
    start = written = read = 0

    def report(tokens: int, share: float) -> None:
        nonlocal written
        written += tokens
        if progress is not None:
            progress((1 + (read + share * at_hand) / total) / 2, written)

    for document in documents:
        stop = start + len(document)
        by_itself = first[start:stop]
        found = {n: part for n, part in enumerate(by_itself) if not part.source_tokens}
        at_hand = sum(part.source_tokens for part in by_itself)
        watch = None if streams is None else partial(streams.of, first=start)
        again = translate_again(pieces, document, by_itself, watch, report)
        for n, hypotheses in again if len(found) < len(document) else ():
            texts = tuple(pieces.text(hypothesis, document[n].forced) for hypothesis in hypotheses)
            found[n] = Translation(texts, 1, by_itself[n].source_tokens)
        yield from (found[n] for n in range(len(document)))
        start, read = stop, read + at_hand
