"""Prepare a generated corpus and load its first batch; print the times and the peak memory.

    python -m scripts.bench_data DIR [--segments 5000000] [--shards 8] [num_proc=2] [multi_resolution=true] ...

Settings are those of the group `data`, without its name. The corpus is written to DIR/corpus (once), all caches to
DIR/cache: a second call measures the caches. Memory is the proportional share of this process and its descendants (PSS:
shared pages count once), sampled five times a second. Pages of memory-mapped files, which the system reclaims when
needed, are listed separately. Linux only.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from scaleformer.data.config import DataConfig
from scaleformer.data.several import data_module
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.system.errors import one_line_errors
from scaleformer.system.schema import from_mapping

MIB = 1 << 20


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


def main(given: Sequence[str] | None = None) -> None:
    """Measure, print and write OUTPUT/result.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="folder of the corpus, its caches and result.json")
    parser.add_argument("data", nargs="*", metavar="KEY=VALUE", help="settings of the group data")
    parser.add_argument("--segments", type=int, default=5_000_000, help="of the generated corpus, about")
    parser.add_argument("--shards", type=int, default=8, help="files of the corpus")
    parser.add_argument("--vocabulary", type=int, default=700, help="pieces of the tokenizer")
    options = parser.parse_intermixed_args(given)
    output: Path = options.output
    places = {"format": "jsonl", "path": str(output / "corpus"), "cache_dir": str(output / "cache")}
    chosen: Any = OmegaConf.to_container(OmegaConf.from_dotlist(options.data))
    config = from_mapping(DataConfig, {**chosen, **places}, "data")
    rows: list[dict[str, Any]] = []
    with watched("write the corpus", rows):
        write_corpus(output / "corpus", options.segments, options.shards)
    module = data_module(config, TokenizerConfig(vocab_size=options.vocabulary))
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
    result = {"settings": {**vars(options), "output": str(output)}, "steps": rows, "peak_bytes": peak, "report": report}
    (output / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    with one_line_errors():
        main()
