"""What a training on many GPUs takes, from measured figures: the tables of docs/scaling.md.

    python -m scripts.scaling                       # prints the tables
    python -m scripts.scaling --measure CORPUS      # measures the data and the checkpoint, which need no GPU

CORPUS is a folder with train.jsonl.gz. Seconds of the data are those of one core; of the checkpoint, by the clock.
Figures of GPUs are those of the log of experiments; the tables say which. What is not measured there is an assumption
with its name in `ASSUMED`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scaleformer.batch import Batch
from scaleformer.checkpoints.lightning_io import SafeCheckpointIO
from scaleformer.data.config import DataConfig
from scaleformer.data.corpora import DocumentStream
from scaleformer.data.encoded import EncodedCorpus, encode_documents
from scaleformer.data.sampler import Recipe, batch_loader, batch_parts, plan_epoch
from scaleformer.data.several import data_module
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.system.errors import one_line_errors
from scaleformer.training.optimization import OptimizerConfig
from scripts.bench_training.models import Sizes, make_model
from scripts.bench_training.steps import weight_flops
from scripts.bench_training.tables import markdown

SMALL, BASE = Sizes(), Sizes(6, 512, 2048, 8, 32_000)
CORPUS = 10_000_000_000  # tokens, source and target together
GPUS = (1, 8, 64)
#: entry 59: milliseconds of a step of `small` on an H200, 16,384 source and as many target tokens, by tokens of a
#: document: with graphs, and without
STEPS = {512: (31.2, 102.0), 2048: (32.3, 94.6), 8192: (33.6, 92.9), 32_768: (65.3, 85.6)}
STEP_PAIRS = 16_384
#: entry 62: tokens a second of whole trainings of `small` on an H200, documents of at most 512 tokens, batches of
#: 16,384 tokens: with graphs, as one GPU trains, and without, as several do; the middle of what the entry says
TRAINED = (232_000.0, 133_500.0)
#: entry 54: TFLOP/s of torch's own large products on that GPU
PRODUCTS = 236.0
#: `--measure` with the manuals of docs/data-formats.md and 8,000 pieces, on one core of an AMD EPYC with other load:
#: tokens a second, of both sides, that are read from JSON Lines, encoded, and made into batches; segments a second in
#: the plan of an epoch; bytes of text (not compressed) a token, tokens of a segment
READ, ENCODED, MADE, PLANNED = 17.3e6, 1.21e6, 8.06e6, 3.44e6
TEXT_BYTES, SEGMENT_TOKENS = 4.17, 66.9
ASSUMED = {
    "efficiency of several GPUs": 0.9,
    "bytes of gradients that a GPU sends and receives, for each of the weights": 8.0,
    "bytes a second within a machine": 250e9,
    "bytes a second between machines": 40e9,
}


def pairs_a_second(step_ms: float) -> float:
    """Of a step: a pair is one source and one target token."""
    return STEP_PAIRS / step_ms * 1e3


def pace_of_base(pace: float) -> float:
    """The pace of `base`, where it makes as many FLOP of the GPU as `small` does at this pace."""
    return pace * weight_flops(SMALL, 1, 1) / weight_flops(BASE, 1, 1)


def gpu_hours(tokens: float, pace: float) -> float:
    """pace: tokens a second of a GPU."""
    return tokens / pace / 3600


def parameters(sizes: Sizes) -> int:
    """Of a model with the default attention."""
    with torch.device("meta"):
        return sum(p.numel() for p in make_model("segment_recall", sizes).parameters())


def step_table() -> str:
    rows = []
    for length, times in STEPS.items():
        share = weight_flops(SMALL, STEP_PAIRS, STEP_PAIRS) / times[0] / 1e9 / PRODUCTS
        paces = [2 * pairs_a_second(ms) for ms in times]
        rows.append(
            [f"{length:,}", *(f"{pace:,.0f}" for pace in paces), f"{share:.0%}", f"{pace_of_base(paces[0]):,.0f}"]
        )
    return markdown(
        ["tokens of a document", "`small`, graphs", "without", "share of the products", "`base` at that share"], rows
    )


def cost_table() -> str:
    """One pass over the corpus."""
    rows = []
    efficiency = ASSUMED["efficiency of several GPUs"]
    for gpus in GPUS:
        alone = gpus == 1
        small = TRAINED[0] if alone else TRAINED[1] * efficiency
        row = [f"{gpus}", "with" if alone else "without"]
        for pace in (small, pace_of_base(small)):
            hours = gpu_hours(CORPUS, pace)
            row += [f"{hours / gpus:,.2g}" if hours / gpus < 10 else f"{hours / gpus:,.0f}", f"{hours:,.0f}"]
        rows.append(row)
    return markdown(["GPUs", "graphs", "`small`, hours", "GPU hours", "`base`, hours", "GPU hours"], rows)


def data_table() -> str:
    """The corpus on one core, and on disk."""
    segments, gb = CORPUS / SEGMENT_TOKENS, 1e9
    encoded = 2 * CORPUS + 16 * segments  # an offset of each segment on each side
    plan = 33 * segments  # its number, lengths of both sides, document and missing separators
    rows = [
        ["JSON Lines, read", f"{TEXT_BYTES * CORPUS / gb:,.0f} GB", f"{CORPUS / READ / 3600:,.1f} h"],
        ["encoded: two bytes a token, and offsets", f"{encoded / gb:,.0f} GB", f"{CORPUS / ENCODED / 3600:,.1f} h"],
        [
            "the plan of an epoch, in each process",
            f"{plan / gb:,.1f} GB",
            f"{segments / PLANNED / 60:,.0f} min",
        ],
        ["the batches of an epoch", "", f"{CORPUS / MADE / 3600:,.1f} h"],
    ]
    return markdown(["", "size", "one core"], rows)


def exchange_table() -> str:
    rows = []
    for name, sizes in (("small", SMALL), ("base", BASE)):
        count = parameters(sizes)
        moved = count * ASSUMED["bytes of gradients that a GPU sends and receives, for each of the weights"]
        times = [moved / ASSUMED[f"bytes a second {where}"] * 1e3 for where in ("within a machine", "between machines")]
        rows.append(
            [f"`{name}`", f"{count / 1e6:,.1f} M", f"{moved / 1e6:,.0f} MB", *(f"{ms:,.1f} ms" for ms in times)]
        )
    return markdown(["", "weights", "a GPU and step", "within a machine", "between machines"], rows)


@contextmanager
def timed(name: str, clock: object = time.process_time) -> Iterator[list[float]]:
    """Seconds of the block, in the list that it gets."""
    assert callable(clock)
    start, spent = clock(), [0.0]
    yield spent
    spent[0] = clock() - start
    print(f"{name}: {spent[0]:.2f} s", flush=True)


def repeated(corpus: EncodedCorpus, times: int) -> EncodedCorpus:
    """The corpus so many times, one after the other."""

    def ends(x: NDArray[Any]) -> NDArray[Any]:  # offsets, from 0 on
        return np.concatenate([[0], *(x[1:] + n * x[-1] for n in range(times))])

    parts: dict[str, Any] = {name: np.tile(getattr(corpus, name), times) for name in ("source", "target", "single")}
    parts |= {name: ends(getattr(corpus, name)) for name in ("source_offsets", "target_offsets", "documents")}
    return replace(corpus, ids=[name for _ in range(times) for name in corpus.ids], **parts)


def measure(corpus: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        config = DataConfig(format="jsonl", path=str(corpus), cache_dir=folder, max_tokens=512, batch_tokens=16_384)
        module = data_module(config, TokenizerConfig(vocab_size=8000))
        tokenizers = module.tokenizers
        with timed("read") as read:
            documents = list(DocumentStream(module.source("train"), 0, 1))
        with timed("encode") as encode:
            encoded = encode_documents(documents, *tokenizers)
        tokens, segments = len(encoded.source) + len(encoded.target), encoded.segments
        text = sum(len(document.to_json().encode()) + 1 for document in documents)
        recipe = replace(module._recipe, world=64)
        many = repeated(encoded, 20)
        with timed(f"plan an epoch of 64 processes, {many.segments:,} segments") as planned:
            plan_epoch(many, recipe, 0)
        alone: Recipe = replace(recipe, world=1)
        plan, batches = plan_epoch(encoded, alone, 0)
        made: list[Batch] = []
        with timed("make batches") as batch:
            made += islice(batch_loader(encoded, batch_parts(encoded, plan, batches, False), 0), 200)
        inside = sum(int(b.source_mask.sum() + b.target_mask.sum()) for b in made)
        print(f"{segments:,} segments, {tokens:,} tokens, {text:,} bytes of JSON Lines, {len(plan):,} examples")
        print(f"TEXT_BYTES {text / tokens:.2f}, SEGMENT_TOKENS {tokens / segments:.1f}")
        print(f"READ {tokens / read[0]:,.0f} tokens/s, {segments / read[0]:,.0f} segments/s")
        print(f"ENCODED {tokens / encode[0]:,.0f} tokens/s")
        print(f"PLANNED {many.segments / planned[0]:,.0f} segments/s, MADE {inside / batch[0]:,.0f} tokens/s")
        measure_checkpoints(Path(folder))


def measure_checkpoints(folder: Path) -> None:
    """Weights and both moments of Adam, as a run writes and reads them."""
    for name, sizes in (("small", SMALL), ("base", BASE)):
        model = make_model("segment_recall", sizes)
        optimizer = OptimizerConfig().build(model.named_parameters(), fused=True)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        optimizer.step()
        content = {"state_dict": model.state_dict(), "optimizer_states": [optimizer.state_dict()]}
        path = folder / f"{name}.ckpt"
        with timed(f"write {name}", time.perf_counter):
            SafeCheckpointIO().save_checkpoint(content, path)
        with timed(f"read {name}", time.perf_counter):
            torch.load(path, weights_only=True)
        count = sum(p.numel() for p in model.parameters())
        print(f"{name}: {count:,} weights, {path.stat().st_size:,} bytes, {path.stat().st_size / count:.1f} each")


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--measure", type=Path, metavar="CORPUS", help="measure the data of a folder and the checkpoints"
    )
    options = parser.parse_args(given)
    if options.measure is not None:
        torch.set_num_threads(1)
        measure(options.measure)
        return
    for table in (step_table, cost_table, exchange_table, data_table):
        print(f"\n{table()}")


if __name__ == "__main__":
    with one_line_errors():
        main()
