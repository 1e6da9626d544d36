"""Times of decoding, token by token: by position, and against the generation of another library."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor

from scaleformer.batch import Batch
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import DecodableModel, decode
from scaleformer.model.states import DecoderState, Encoded
from scaleformer.model.transformer import Transformer
from scaleformer.vocabulary import EOS, SEP
from scripts.bench_decoding.state import state_bytes
from scripts.bench_training.models import Sizes, make_batch, make_model
from scripts.bench_training.peers import MARIAN, make_marian

#: first tokens, left out of every curve: allocators and caches are filling
WARM_UP = 100


@dataclass(frozen=True)
class DecodingCurve:
    """The decoding speed of one system, from the 100th position on.

    ends       the last position of each window
    seconds    the median time of a step in each window; a step writes one token of every document
    spread     largest of `seconds` divided by the smallest, minus 1
    state      bytes that one beam holds at the 50th position
    growth     bytes by which a beam grows with each written token
    memory     bytes per source token that a document holds for all its beams
    """

    system: str
    batch: int
    beams: int
    ends: list[int]
    seconds: list[float]
    spread: float
    state: float
    growth: float
    memory: float

    @property
    def speed(self) -> float:
        """Tokens per second over all windows, with one hypothesis per document."""
        return self.batch / median(self.seconds)


@dataclass(frozen=True)
class Comparison:
    """Beam search on one document at one position. seconds: the median time of a step; ratio: peer / this; state: bytes
    of everything kept between two steps."""

    system: str
    source: int
    position: int
    beams: int
    seconds: float
    ratio: float
    state: int


class Endless:
    """A model that never writes `</s>`, and writes `<sep>` at every `segment`-th position.

    sizes  position -> bytes of the hypotheses' state after it, for the positions to watch
    """

    def __init__(self, model: Transformer, segment: int, watch: tuple[int, ...] = ()) -> None:
        self.model = model
        self.most_target_tokens = model.most_target_tokens
        self.segment = segment
        self.watch = watch
        self.position = 0
        self.sizes: dict[int, int] = {}
        self.state: DecoderState | None = None

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> Encoded:
        return self.model.encode(source, source_mask, source_segments)

    def init_state(self, encoded: Encoded, beams: int) -> DecoderState:
        return self.model.init_state(encoded, beams)

    def step(self, tokens: Tensor, segments: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        logits, self.state = self.model.step(tokens, segments, state)
        self.position += 1
        if self.position in self.watch:
            self.sizes[self.position] = state_bytes([layer.own for layer in self.state.layers])
        logits[:, EOS] = float("-inf")
        logits[:, SEP] = 1e4 if self.position % self.segment == 0 else float("-inf")
        return logits, self.state

    def reorder(self, state: DecoderState, rows: Tensor, documents: Tensor | None) -> DecoderState:
        return self.model.reorder(state, rows, documents)


def fixed_length(tokens: int, beams: int) -> DecodingConfig:
    """A search that writes exactly `tokens` target tokens for every document. One beam is greedy."""
    return DecodingConfig(
        strategy="greedy" if beams == 1 else "beam",
        beam_size=beams,
        max_length_ratio=0,
        max_length_offset=tokens,
        match_segments=False,
    )


def step_times(model: DecodableModel, batch: Batch, beams: int, steps: int) -> list[float]:
    """Seconds of every step except the first, with model, ranking and bookkeeping. One beam is greedy."""
    config = fixed_length(steps, beams)
    marks: list[tuple[int, float]] = []  # steps since the last mark, time
    decode(
        model,
        batch.source,
        batch.source_mask,
        batch.source_segments,
        config,
        progress=lambda tokens, _: marks.append((tokens // len(batch), time.perf_counter())),
    )
    times: list[float] = []
    for (_, before), (count, after) in pairwise(marks):
        times += [(after - before) / count] * count
    return times


def measure_curve(
    attention: str, sizes: Sizes, documents: int, beams: int, positions: int, source: int, segment: int, windows: int
) -> DecodingCurve:
    """One curve: random weights, documents of `source` tokens, `positions` tokens written in `windows` windows."""
    batch = make_batch(documents, source, segment, sizes.vocabulary, torch.Generator().manual_seed(0))
    early = min(50, positions - 1)
    model = Endless(make_model(attention, sizes).eval(), segment, (early, positions))
    times = step_times(model, batch, beams, positions)
    first = min(WARM_UP, positions // 2)
    ends = [first + round((w + 1) * (len(times) - first) / windows) for w in range(windows)]
    seconds = [median(times[start:end]) for start, end in pairwise([first, *ends])]
    assert model.state is not None
    return DecodingCurve(
        attention,
        documents,
        beams,
        ends,
        seconds,
        max(seconds) / min(seconds) - 1,
        model.sizes[early] / documents / beams,
        (model.sizes[positions] - model.sizes[early]) / (positions - early) / documents / beams,
        state_bytes([layer.cross for layer in model.state.layers]) / documents / source,
    )


def compare(
    attentions: Sequence[str],
    sizes: Sizes,
    source: int,
    position: int,
    steps: int,
    beams: int,
    segment: int,
    rounds: int,
) -> list[Comparison]:
    """Ours against `generate` of Hugging Face transformers (Marian, with its cache), in turn: the `steps` steps up to
    the target's `position`. Ours writes the whole target; the peer gets all but the last steps at once."""
    batch = make_batch(1, source, segment, sizes.vocabulary, torch.Generator().manual_seed(0))
    models = {attention: make_model(attention, sizes).eval() for attention in attentions}
    peer = make_marian(sizes, positions=max(source, position) + 8).eval()
    times: dict[str, list[float]] = {name: [] for name in (*models, MARIAN)}
    states: dict[str, int] = {}
    for _ in range(rounds):
        for name, model in models.items():
            endless = Endless(model, segment)
            times[name] += step_times(endless, batch, beams, position)[-steps:]
            states[name] = state_bytes(endless.state)
        more, states[MARIAN] = generate_times(peer, batch, position - steps, steps, beams)
        times[MARIAN] += more
    seconds = {name: median(values) for name, values in times.items()}
    return [
        Comparison(name, source, position, beams, value, seconds[MARIAN] / value, states[name])
        for name, value in seconds.items()
    ]


class _Clock:
    """A logits processor that changes nothing and records the time of each step."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def __call__(self, tokens: Tensor, scores: Tensor) -> Tensor:
        self.marks.append(time.perf_counter())
        return scores


@torch.inference_mode()
def generate_times(model: Any, batch: Batch, prefix: int, steps: int, beams: int) -> tuple[list[float], int]:
    """Seconds of each of the last steps of `generate` with its cache, after a prefix given at once; and the bytes of
    the cache. One document; the encoder is not timed."""
    clock = _Clock()
    target = batch.target_input.repeat(1, 1 + prefix // batch.target_input.shape[1])[:, : prefix + 1]
    mask = batch.source_mask.long()
    out = model.generate(
        encoder_outputs=model.get_encoder()(input_ids=batch.source, attention_mask=mask),
        attention_mask=mask,
        decoder_input_ids=target,
        num_beams=beams,
        do_sample=False,
        min_new_tokens=steps + 1,
        max_new_tokens=steps + 1,
        use_cache=True,
        logits_processor=[clock],
        return_dict_in_generate=True,
    )
    return [after - before for before, after in pairwise(clock.marks)], state_bytes(out.past_key_values)
