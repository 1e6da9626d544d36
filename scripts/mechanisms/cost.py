"""The cost of an attention: a training pass of a small model, and of a single attention, at several lengths.

All measurements of an attention run in one process with limited memory, so that one that needs too much ends neither
the others nor the machine. Times are processor time of one thread, which other work on the machine disturbs least.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import torch
from torch import Tensor

from scaleformer.batch import Batch
from scaleformer.model.attention import MECHANISMS, build_attention
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.system.cpu import set_up_cpu
from scripts.timing import peak_memory

#: tokens of a segment of the measured texts
SEGMENT = 16
VOCABULARY = 700
OUT_OF_MEMORY = "out of memory"
REFUSED = "refused"


@dataclass(frozen=True)
class Conditions:
    """The conditions of the measurements.

    sizes         width, feedforward and heads of the model; more layers would only multiply the cost
    repeats       passes whose median counts; more for short ones, fewer beyond `most_seconds` in total
    most_seconds  that the passes of one measurement may take; a single attention skips a pass that would take longer
                  (predicted from the last length as if the cost were quadratic)
    memory_share  of the machine's memory that a process may take
    """

    sizes: Mapping[str, int]
    layers: int
    repeats: int
    most_seconds: float
    memory_share: float
    seed: int


def measure_model(attention: Mapping[str, Any], lengths: Sequence[int], how: Conditions) -> list[dict[str, Any]]:
    """Training passes (forward and backward) of an encoder-decoder with this attention, over one document per pass.

    Returns for each length {"length", "tokens_per_second", "memory"}, counting source and target tokens, and bytes on
    top of the weights; or {"length", "error"}.
    """
    return _in_a_process(_model_points, attention, lengths, how, [{"length": n} for n in lengths])


def measure_alone(attention: Mapping[str, Any], lengths: Sequence[int], how: Conditions) -> list[dict[str, Any]]:
    """Training passes of one attention with its projections, at each site that it serves itself.

    Returns {"site", "length", "seconds"} or {"site", "length", "error"} for each of them.
    """
    sites = MECHANISMS[attention["name"]].sites
    wanted = [{"site": site, "length": n} for site in sites for n in lengths]
    return _in_a_process(_alone_points, attention, lengths, how, wanted)


def _in_a_process(
    work: Callable[..., None],
    attention: Mapping[str, Any],
    lengths: Sequence[int],
    how: Conditions,
    wanted: Sequence[Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """The results that the process sends for each point; "out of memory" where it ended before."""
    receive, send = get_context("spawn").Pipe(duplex=False)
    process = get_context("spawn").Process(target=_begin, args=(work, dict(attention), list(lengths), how, send))
    process.start()
    send.close()
    points = []
    for point in wanted:
        try:
            points.append({**point, **receive.recv()})
        except EOFError:
            points.append({**point, "error": OUT_OF_MEMORY})
    process.join()
    return points


def _begin(
    work: Callable[..., None], attention: Any, lengths: Sequence[int], how: Conditions, send: Connection
) -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = int(how.memory_share * total)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    set_up_cpu(1)
    torch.manual_seed(how.seed)
    work(attention, lengths, how, send)


def _model_points(attention: Any, lengths: Sequence[int], how: Conditions, send: Connection) -> None:
    sizes: dict[str, Any] = {"encoder_layers": how.layers, "decoder_layers": how.layers, **how.sizes}
    model = Transformer(ModelConfig(VOCABULARY, VOCABULARY, attention=attention, **sizes))

    def passes(batch: Batch) -> Callable[[], None]:
        return lambda: model.logits(model(batch)).square().mean().backward()

    passes(one_document(256))()  # warm-up
    for length in lengths:
        step = passes(one_document(length))

        def point(length: int = length, step: Callable[[], None] = step) -> dict[str, Any]:
            seconds = time_of(step, how.repeats, how.most_seconds)
            return {"tokens_per_second": 2 * length / seconds, "memory": peak_memory(step, torch.device("cpu"))}

        send.send(_guarded(point))


def _alone_points(attention: Any, lengths: Sequence[int], how: Conditions, send: Connection) -> None:
    width, heads = how.sizes["width"], how.sizes["heads"]
    for site in MECHANISMS[attention["name"]].sites:
        module = build_attention(attention, site, width, heads)
        before: tuple[int, float] | None = None
        for length in lengths:
            if before and before[1] * (length / before[0]) ** 2 > how.most_seconds:
                send.send({})
                continue
            x = torch.randn(1, length, width, requires_grad=True)
            mask = torch.ones(1, length, dtype=torch.bool)
            layout = SegmentLayout(segments_of(length), segments_of(length), mask)

            def step(module: Any = module, x: Tensor = x, layout: SegmentLayout = layout) -> None:
                module(x, x, layout).sum().backward()

            def point(step: Callable[[], None] = step) -> dict[str, Any]:
                step()  # warm-up
                return {"seconds": time_of(step, how.repeats, how.most_seconds)}

            found = _guarded(point)
            before = (length, found["seconds"]) if "seconds" in found else None
            send.send(found)


def _guarded(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The measurement, or {"error"} where memory or the attention itself does not allow it."""
    try:
        return measure()
    except (RuntimeError, MemoryError) as error:
        if not isinstance(error, MemoryError) and "memory" not in str(error):
            raise
        return {"error": OUT_OF_MEMORY}
    except ValueError as error:  # the length is more than the mechanism allows
        return {"error": REFUSED, "reason": str(error)}


def time_of(function: Callable[[], None], repeats: int, most: float) -> float:
    """Median seconds of `repeats` calls; of more if they are short, of fewer beyond `most` seconds in total."""
    seconds: list[float] = []
    while sum(seconds) < most and (len(seconds) < repeats or (sum(seconds) < 1 and len(seconds) < 50)):
        start = time.process_time()
        function()
        seconds.append(time.process_time() - start)
    return median(seconds)


def one_document(length: int) -> Batch:
    """One document with `length` source tokens and as many target tokens."""
    tokens = torch.randint(5, VOCABULARY, (1, length))
    mask = torch.ones(1, length, dtype=torch.bool)
    segments = segments_of(length)
    return Batch(tokens, mask, segments, tokens, tokens, mask, segments)


def segments_of(length: int) -> Tensor:
    """The segment of each position: (1, length)."""
    return (torch.arange(length) // SEGMENT)[None]
