"""Two corpora, mixed, for tests of one process or two."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scaleformer.data.config import DataConfig
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.several import data_module
from scaleformer.data.tokenizer import TokenizerConfig

Ids = list[tuple[str, ...]]


def mixed(
    cache: Path,
    folders: dict[str, str],
    long: dict[str, Any] | None = None,
    short: dict[str, Any] | None = None,
    tokenizer: dict[str, Any] | None = None,
    **options: Any,
) -> DocumentDataModule:
    entries = {
        "long": {"path": folders["long"], "weight": 3, **(long or {})},
        "short": {"path": folders["short"], "weight": 1, **(short or {})},
    }
    corpora = {name: {k: v for k, v in entry.items() if v is not None} for name, entry in entries.items()}
    settings = {"format": "jsonl", "cache_dir": str(cache), "max_tokens": 60, "batch_tokens": 600, **options}
    return data_module(
        DataConfig(corpora=corpora, **settings), TokenizerConfig(**{"vocab_size": 450, **(tokenizer or {})})
    )


def shares(data: DocumentDataModule) -> list[float]:
    return [corpus.share for corpus in data.report.corpora.values()]


def drawn(batches: Ids) -> Counter[str]:
    """Examples by corpus."""
    return Counter(name.split("-")[0] for batch in batches for name in batch)


def epochs_of(data: DocumentDataModule, count: int = 1) -> list[Ids]:
    loader = data.train_dataloader()
    return [[batch.ids for batch in loader] for _ in range(count)]


def of_two_processes(make: Any, count: int = 1) -> list[list[Ids]]:
    """By process what `epochs_of` gives; the two exchange as over a network."""
    barrier, given, found = threading.Barrier(2, timeout=60), [None, None], [None, None]

    def process(rank: int) -> None:
        data = make()

        def everywhere(value: Any) -> list[Any]:
            given[rank] = value
            barrier.wait()
            values = list(given)
            barrier.wait()
            return values

        data.trainer = SimpleNamespace(
            state=SimpleNamespace(fn=None), world_size=2, accumulate_grad_batches=1, global_rank=rank
        )
        data._everywhere = everywhere
        found[rank] = epochs_of(data, count)

    threads = [threading.Thread(target=process, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in found
    return found
