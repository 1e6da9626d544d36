"""Times of whole translations, encoder and search: many sentences in a batch, and one document, against CTranslate2."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from scaleformer.decoding.search import decode
from scripts.bench_decoding.ctranslate import CTRANSLATE2, CTranslate2
from scripts.bench_decoding.steps import Endless, fixed_length
from scripts.bench_training.models import Sizes, make_batch, make_model

#: segments of the document
SEGMENTS = 54


@dataclass(frozen=True)
class Throughput:
    """The speed of one system on `texts` texts of `tokens` source and target tokens, all in one batch.

    seconds  the median of the rounds; speed: target tokens per second; ratio: speed over the peer's, None without it
    """

    system: str
    precision: str
    texts: int
    tokens: int
    beams: int
    seconds: float
    speed: float
    ratio: float | None


def measure_throughput(
    systems: Sequence[str],
    sizes: Sizes,
    texts: int,
    segment: int,
    beams: Sequence[int],
    rounds: int,
    threads: int,
    peer: bool,
    said: Callable[[str], None],
) -> Iterator[Throughput]:
    """Sentences of `segment` tokens with each of `beams`, and greedily one document of 54 of them; fp32 and int8, each
    with its peer. Random weights; no text ends before its last token; systems and peer take turns."""
    document = SEGMENTS * segment
    for precision in ("fp32", "int8"):
        models = {name: make_model(name, sizes).eval() for name in systems}
        if precision == "int8":
            for model in models.values():
                model.to_int8()
        other = CTranslate2(sizes, threads, "float32" if precision == "fp32" else precision) if peer else None
        for count, tokens, width in (*((texts, segment, width) for width in beams), (1, document, 1)):
            batch = make_batch(count, tokens, segment, sizes.vocabulary, torch.Generator().manual_seed(0))
            config = fixed_length(tokens, width)
            times: dict[str, list[float]] = {name: [] for name in (*models, *([CTRANSLATE2] if other else []))}
            for _ in range(rounds + 1):
                for name, model in models.items():
                    said(f"{name}, {precision}, {count} x {tokens} tokens, beam {width}")
                    endless = Endless(model, segment if count == 1 else tokens + 1)
                    start = time.perf_counter()
                    decode(endless, batch.source, batch.source_mask, batch.source_segments, config)
                    times[name].append(time.perf_counter() - start)
                if other is not None:
                    times[CTRANSLATE2].append(other.seconds(batch.source, tokens, width))
            seconds = {name: median(values[1:]) for name, values in times.items()}  # the first round warms up
            for name, value in seconds.items():
                ratio = seconds[CTRANSLATE2] / value if other is not None else None
                yield Throughput(name, precision, count, tokens, width, value, count * tokens / value, ratio)
