"""Documents translated twice, their segments beside each other: the number of steps is that of the longest segment.

The first pass translates each segment by itself. The second translates each once more after the first pass's
translation of all that stands before it, as if the model had just written that: near segments whole, and what recall
keeps of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from scaleformer.decoding.active import Watch
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import Hypothesis, decode
from scaleformer.model.transformer import DecoderState, Transformer
from scaleformer.translation.batches import make_batches, pad
from scaleformer.translation.pieces import make_hypothesis, translate_pieces
from scaleformer.translation.streaming import SegmentStreams
from scaleformer.translation.told import Told
from scaleformer.translation.translations import Translation
from scaleformer.vocabulary import BOS, EOS, SEP

if TYPE_CHECKING:
    from scaleformer.translation.translator import Translator

# Contexts are read, not written: so many times the tokens of a batch, for fewer steps.
SHARE = 4
CONTEXT = 4  # segments before one that count where batches are made; the model's own window may be another


class _State(NamedTuple):
    """inner: of the model; numbers (rows,) long, of the segments that the rows write; first: of no token yet."""

    inner: DecoderState
    numbers: Tensor
    first: bool


class FirstPass:
    """A document and its first translation, as the second pass reads them.

    source    its tokens, with the tag and `</s>`
    target    tokens of each segment's translation, without `<sep>`

    Raises ValueError as `Transformer.read_target`.
    """

    def __init__(self, model: Transformer, source: Sequence[int], target: Sequence[Sequence[int]]) -> None:
        device = next(model.parameters()).device
        tokens = torch.tensor([[BOS, *(token for segment in target for token in (*segment, SEP))]], device=device)
        self.model = model
        self.memory = model.encode(*pad([source], device))
        self.segments = (tokens == SEP).cumsum(1)  # (1, L)
        self.inputs = model.read_target(self.memory, tokens, self.segments)

    def states(self, numbers: Tensor) -> DecoderState:
        """Before the segments of these numbers (n,)."""
        starts = torch.searchsorted(self.segments[0], numbers)
        return self.model.states_before(self.memory, self.inputs, self.segments, starts)


class InContext:
    """Segments of one document, by their numbers, as so many sources to `decode`: each after those before it."""

    def __init__(self, first: FirstPass, numbers: Sequence[int]) -> None:
        self.first, self.model = first, first.model
        self.most_target_tokens = self.model.most_target_tokens
        self.numbers = torch.tensor(numbers, device=first.segments.device)

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> None:
        """Nothing: the document is encoded."""

    def init_state(self, memory: None, beams: int) -> _State:
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
    model: Transformer,
    segments: Mapping[int, Sequence[int]],
    translations: Sequence[Sequence[int]],
    before: Sequence[int],
    config: DecodingConfig,
    *,
    keys: Sequence[str],
    told: Sequence[Mapping[int, Sequence[int]]],
    watch: Callable[[Sequence[int]], Watch] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """The second pass of one document: its segments by their numbers, in any order, and what `decode` has of each.

    segments: source tokens by number, of those that have any text; translations: target tokens of the first pass of
    all segments, neither with `<sep>`; before: the tag; keys, told: of all segments; watch: of segments by number.
    """
    sources = [segments.get(n, ()) for n in range(len(translations))]
    first = FirstPass(model, [*before, *(token for tokens in sources for token in (*tokens, SEP)), EOS], translations)
    alone = {n: [*before, *tokens, SEP, EOS] for n, tokens in segments.items()}
    # Those that read about as many tokens stand beside each other.
    lengths = [len(tokens) + 1 for tokens in translations]
    context = {n: sum(lengths[max(0, n - CONTEXT) : n + 1]) for n in alone}
    for numbers in make_batches(context, replace(config, batch_tokens=SHARE * config.batch_tokens)):
        hypotheses = decode(
            InContext(first, numbers),
            *pad([alone[n] for n in numbers], first.segments.device),
            config,
            keys=[keys[n] for n in numbers],
            forced=[told[n] for n in numbers],
            watch=None if watch is None else watch(numbers),
            progress=progress,
        )
        yield from zip(numbers, hypotheses, strict=True)


def translate_twice(
    translator: Translator,
    documents: Sequence[Sequence[Sequence[str]]],
    keys: Sequence[str],
    told: Sequence[Told],
    config: DecodingConfig,
    before: Sequence[int],
    progress: Callable[[float, int], None] | None,
    done: int,
    streams: SegmentStreams | None,
) -> Iterator[Translation]:
    """As `translate_pieces`, of documents, each of pieces of one segment: first by themselves, then in
    context. Raises ValueError without match_segments, for an ensemble, and as `Transformer.read_target`."""
    model = translator.model
    if not config.match_segments or not isinstance(model, Transformer):
        wanted = "match_segments=true" if not config.match_segments else "one model, no ensemble"
        raise ValueError(f"mode=two-pass: wanted {wanted}; or set mode=document")
    if config.memory_limit is not None:
        raise ValueError(
            f"decoding.memory_limit={config.memory_limit}: mode=two-pass fills its batches by "
            "decoding.batch_tokens alone: set decoding.memory_limit=null, or mode=document"
        )
    half = None if progress is None else lambda share, written: progress(share / 2, written)
    segments = [segment for document in documents for segment in document]
    first = list(translate_pieces(translator, segments, keys, told, config, before, half, done))
    total = max(1, sum(part.source_tokens for part in first))
    start = written = read = 0

    def report(tokens: int, share: float) -> None:
        nonlocal written
        written += tokens
        if progress is not None:
            progress((1 + (read + share * at_hand) / total) / 2, written)

    for document in documents:
        stop = start + len(document)
        sources, before_it = segments[start:stop], first[start:stop]
        encoded = translator.source_tokenizer.encode_segments
        found = {n: part for n, part in enumerate(before_it) if not part.source_tokens}
        at_hand = sum(part.source_tokens for part in before_it)
        again = translate_again(
            model,
            {n: encoded(source)[:-1] for n, source in enumerate(sources) if n not in found},
            translator.target_tokenizer.encode_batch([" ".join(part.segments) for part in before_it]),
            before,
            config,
            keys=keys[start:stop],
            told=[one.tokens(translator.target_tokenizer) for one in told[start:stop]],
            watch=None if streams is None else partial(streams.of, first=start),
            progress=report,
        )
        for n, hypotheses in again if len(found) < len(document) else ():
            made = tuple(make_hypothesis(translator, h, config, told[start + n]) for h in hypotheses)
            found[n] = Translation(made, 1, before_it[n].source_tokens)
        yield from (found[n] for n in range(len(document)))
        start, read = stop, read + at_hand
