"""Prepare a generated corpus and load its first batch; print the times and the peak memory.

    scaleformer benchmark data segments=5000000 output=DIR [data.num_proc=2] [shards=8] [data.multi_resolution=true]

The corpus is written to DIR/corpus (once), all caches to DIR/cache: a second call measures the caches. Memory is the
proportional share of this process and its descendants (PSS: shared pages count once), sampled five times a second.
Pages of memory-mapped files, which the system reclaims when needed, are listed separately. Linux only.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from scaleformer.data.config import DataConfig
from scaleformer.data.several import data_module
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.system.schema import Positive, from_mapping

MIB = 1 << 20


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/benchmark_data.yaml describes them."""

    segments: Positive
    output: str
    shards: Positive
    vocab_size: int
    seed: int
    data: dict[str, Any]


def write_corpus(folder: Path, segments: int, shards: int) -> None:
    """Write JSON Lines shards of generated documents, about so many segments in total, unless they exist."""
    if (folder / "done").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    documents = generate(SyntheticConfig(train=segments, segments=(1, 19)), "train")
    left = segments
    for shard in range(shards):
        with open(folder / f"train-{shard:05d}.jsonl", "w", encoding="utf-8") as file:
            while left > segments * (shards - 1 - shard) // shards:
                document = next(documents)
                file.write(document.to_json() + "\n")
                left -= len(document.source)
    (folder / "done").touch()


def memory() -> tuple[int, int]:
    """Bytes of this process and its descendants: in total, and of these in pages of files."""
    own = Path("/proc/self")
    whole = files = 0
    waiting = [own.resolve()]
    while waiting:
        process = waiting.pop()
        try:
            sizes = dict(line.split()[:2] for line in (process / "smaps_rollup").read_text().splitlines()[1:])
            children = [path.read_text() for path in process.glob("task/*/children")]
        except (OSError, ValueError):
            continue  # it has ended
        whole += int(sizes["Pss:"]) << 10
        files += int(sizes.get("Pss_File:", 0)) << 10
        waiting += [Path("/proc") / number for text in children for number in text.split()]
    return whole, files


@contextmanager
def watched(name: str, rows: list[dict[str, Any]]) -> Iterator[None]:
    """Append the seconds and the peak memory of the block to `rows`, and print them."""
    ended = threading.Event()
    most = [(0, 0)]

    def watch() -> None:
        while not ended.wait(0.2):
            most[0] = max(most[0], memory())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    start = time.perf_counter()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    whole, files = max(most[0], memory())
    rows.append({"step": name, "seconds": time.perf_counter() - start, "bytes": whole, "bytes_of_files": files})
    print(f"{name:32} {rows[-1]['seconds']:8.1f} s {whole / MIB:8,.0f} MiB, {files / MIB:,.0f} of files", flush=True)


def main(options: Options, given: Sequence[str]) -> None:
    """Measure, print and write OUTPUT/result.json."""
    output = Path(options.output)
    rows: list[dict[str, Any]] = []
    with watched("write the corpus", rows):
        write_corpus(output / "corpus", options.segments, options.shards)
    places = {"path": str(output / "corpus"), "cache_dir": str(output / "cache")}
    config = from_mapping(DataConfig, {**options.data, **places}, "data")
    module = data_module(config, TokenizerConfig(vocab_size=options.vocab_size))
    with watched("hash the files", rows):
        module.fingerprint()
    with watched("tokenizer", rows):
        assert module.tokenizers
    with watched("encode", rows):
        module.prepare_data()
    batches = iter(module.train_dataloader())
    with watched("first batch", rows):
        first = next(batches)
    with watched("100 more batches", rows):
        tokens = sum(int(batch.target_mask.sum()) for batch in islice(batches, 100))
    with watched("report", rows):
        report = module.report.to_dict()
    peak = max(row["bytes"] for row in rows[1:])
    print(f"first batch: {tuple(first.source.shape)} source tokens; {tokens:,} target tokens in the next 100")
    print(f"peak memory after writing the corpus: {peak / MIB:,.0f} MiB")
    result = {"settings": asdict(options), "steps": rows, "peak_bytes": peak, "report": report}
    (output / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
