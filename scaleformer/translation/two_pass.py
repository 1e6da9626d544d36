"""Documents translated twice, their segments beside each other: the number of steps is that of the longest segment.

The first pass translates each segment by itself. The second translates each once more after the first pass's
translation of all that stands before it, as if the model had just written that: near segments whole, and what recall
keeps of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.model.transformer import DecoderState, Memory, Transformer
from scaleformer.translation.batches import make_batches, pad
from scaleformer.translation.config import DecodingConfig
from scaleformer.translation.search import Hypothesis, decode
from scaleformer.translation.state import Watch
from scaleformer.vocabulary import BOS, EOS, SEP


class _State(NamedTuple):
    """inner: of the model; numbers (rows,) long, of the segments that the rows write; first: of no token yet."""

    inner: DecoderState
    numbers: Tensor
    first: bool


class InContext:
    """Segments of one document as so many sources to `decode`, each after the translation of those before it.

    memory   the encoded document
    target   (1, L) long, the first pass's translation: each segment with a `<sep>`, no `</s>`
    numbers  of the segments in the source, in the order of the sources

    Raises ValueError as `Transformer.states_before`.
    """

    def __init__(self, model: Transformer, memory: Memory, target: Tensor, numbers: Sequence[int]) -> None:
        self.model, self.memory = model, memory
        self.most_target_tokens = model.most_target_tokens
        self.target = functional.pad(target, (1, 0), value=BOS)  # (1, L+1)
        self.segments = (self.target == SEP).cumsum(1)
        self.numbers = torch.tensor(numbers, device=target.device)

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> None:
        """Nothing: the document is encoded."""

    def init_state(self, memory: None, beams: int) -> _State:
        numbers = self.numbers.repeat_interleave(beams)
        starts = torch.searchsorted(self.segments[0], numbers)
        return _State(self.model.states_before(self.memory, self.target, self.segments, starts), numbers, True)

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
    counted: bool,
    keys: Sequence[str],
    told: Sequence[Mapping[int, Sequence[int]]],
    watch: Callable[[Sequence[int]], Watch] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Iterator[tuple[int, list[Hypothesis]]]:
    """The second pass of one document: its segments by their numbers, in any order, and what `decode` has of each.

    segments: source tokens by number, of those that have any text; translations: target tokens of the first pass of
    all segments, neither with `<sep>`; before: the tag; keys, told: of all segments; watch: of segments by number.
    """
    device = next(model.parameters()).device
    sources = [segments.get(n, ()) for n in range(len(translations))]
    document = [*before, *(token for tokens in sources for token in (*tokens, SEP)), EOS]
    memory = model.encode(*pad([document], device))
    target = torch.tensor([[token for tokens in translations for token in (*tokens, SEP)]], device=device)
    alone = {n: [*before, *tokens, SEP, EOS] for n, tokens in segments.items()}
    for numbers in make_batches({n: len(tokens) for n, tokens in alone.items()}, config):
        hypotheses = decode(
            InContext(model, memory, target, numbers),
            *pad([alone[n] for n in numbers], device),
            config,
            counted=counted,
            keys=[keys[n] for n in numbers],
            told=[told[n] for n in numbers],
            watch=None if watch is None else watch(numbers),
            progress=progress,
        )
        yield from zip(numbers, hypotheses, strict=True)
