"""Joins several corpora in one data module; each corpus is a data module of its own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from scaleformer.data.cutting import make_plan
from scaleformer.data.mixture import JoinedLoader, MixedBatches, Passes
from scaleformer.data.report import CorpusReport, DataReport
from scaleformer.data.sampler import FixedLoader, Position

if TYPE_CHECKING:
    from scaleformer.data.datamodule import DocumentDataModule


class SeveralCorpora:
    """The corpora of `data.corpora`, for the data module `whole`."""

    def __init__(self, whole: DocumentDataModule) -> None:
        self._whole = whole
        made = type(whole)
        self._parts = {name: made(part, whole.tokenizer_config) for name, part in whole.config.parts.items()}
        self._mixed: MixedBatches | None = None

    @property
    def parts(self) -> dict[str, DocumentDataModule]:
        """The data module of each corpus, with the common tokenizers."""
        for part in self._parts.values():
            part._tokenizers, part.trainer = self._whole.tokenizers, self._whole.trainer
        return self._parts

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of the examples drawn from each corpus."""
        weights = self._whole.config.weights
        if weights is None:
            weights = {}
            for name, part in self.parts.items():
                size = len(make_plan(part.encoded("train"), part.cutting, part._recipe.rng(0)))
                weights[name] = max(size, 1) ** (1 / self._whole.config.temperature)
        total = sum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def train_batches(self, start: Position, places: Any = None) -> MixedBatches:
        """The batches of all corpora; those encoded during training share the num_workers."""
        parts, workers = self.parts, self._whole.config.num_workers
        each = -(-workers // max(1, sum(part.config.streaming for part in parts.values())))
        corpora = []
        for name, part in parts.items():
            windows = part._windows if part.config.streaming else part.encoded("train")
            corpora.append(Passes(name, self.shares[name], windows, part._recipe, min(each, part._workers)))
        self._mixed = MixedBatches(corpora, self._whole._recipe, self._whole._everywhere, start, places)
        return self._mixed

    def places(self, position: Position) -> Any:
        """The places of all processes in all corpora (`MixedBatches.places`); None before there are batches."""
        return self._mixed.places(position) if self._mixed is not None else None

    def validation(self) -> JoinedLoader | list[Any]:
        """The validation batches of the corpora that have such a split; [] if none has one."""
        loaders = {name: part.val_dataloader() for name, part in self.parts.items()}
        found = {name: loader for name, loader in loaders.items() if isinstance(loader, FixedLoader)}
        return JoinedLoader(found) if found else []

    def report(self, empty: DataReport) -> DataReport:
        """A report with the splits of all corpora."""
        reports = {name: part.report.splits for name, part in self.parts.items()}
        splits = {f"{name}: {key}": split for name, own in reports.items() for key, split in own.items()}
        return replace(empty, splits=splits, corpora={name: CorpusReport(share) for name, share in self.shares.items()})

    def trained_report(self, report: DataReport, position: Position) -> DataReport | None:
        """The report with the examples drawn up to a position; None before there are batches."""
        if self._mixed is None:
            return None
        drawn = self._mixed.progress(position)
        return replace(report, corpora={name: CorpusReport(share, *drawn[name]) for name, share in self.shares.items()})

    @property
    def longest_segment(self) -> int | None:
        """As for a data module; None if a corpus is streamed, since only its first window is known."""
        lengths = [part.longest_segment for part in self.parts.values()]
        known = [length for length in lengths if length is not None]
        return max(known) if len(known) == len(lengths) else None

    def signature(self) -> str:
        """A hash of everything that must stay the same for a place within an epoch to keep its meaning."""
        corpora = [[name, self.shares[name], part._signature] for name, part in self.parts.items()]
        return hashlib.sha256(json.dumps([corpora, self._whole.config.seed]).encode()).hexdigest()
