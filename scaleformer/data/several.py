"""The Lightning data module of several corpora; each corpus is a data module of its own."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

from scaleformer.data.config import DataConfig
from scaleformer.data.cutting import Cutting, make_plan
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.mixture import JoinedLoader, MixedBatches, Passes
from scaleformer.data.report import CorpusReport, DataReport, SplitReport
from scaleformer.data.sampler import FixedLoader, Position
from scaleformer.data.tokenizer import Tokenizer, TokenizerConfig


def data_module(
    config: DataConfig, tokenizer: TokenizerConfig | None = None, tokenizers: tuple[Tokenizer, Tokenizer] | None = None
) -> DocumentDataModule:
    """The data module of one corpus, or of the several of `data.corpora`."""
    made = SeveralCorpora if config.parts else DocumentDataModule
    return made(config, tokenizer, tokenizers)


class SeveralCorpora(DocumentDataModule):
    """The corpora of `data.corpora`: batches with a fixed share of each, by the same tokenizers.

    Its state in a checkpoint also has the place of every process in each corpus.
    """

    _mixed: MixedBatches | None = None

    def _stage(self, config: DataConfig) -> DocumentDataModule:
        stage = SeveralCorpora(config, self.tokenizer_config, self.tokenizers)
        cut = {field.name: getattr(config, field.name) for field in fields(Cutting)}  # their seeds stay
        stage._parts = {name: self.parts[name]._stage(replace(self.parts[name].config, **cut)) for name in config.parts}
        return stage

    @cached_property
    def _parts(self) -> dict[str, DocumentDataModule]:
        return {name: DocumentDataModule(part, self.tokenizer_config) for name, part in self.config.parts.items()}

    @property
    def parts(self) -> dict[str, DocumentDataModule]:
        """The data module of each corpus, with the common tokenizers."""
        for part in self._parts.values():
            part._tokenizers, part.trainer = self.tokenizers, self.trainer
        return self._parts

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of the examples drawn from each corpus."""
        weights = self.config.weights
        if weights is None:
            weights = {}
            for name, part in self.parts.items():
                size = len(make_plan(part.encoded("train"), part.cutting, part._recipe.rng(0)))
                weights[name] = max(size, 1) ** (1 / self.config.temperature)
        total = sum(weights.values())
        return {name: weight / total for name, weight in weights.items()}

    def prepare_data(self) -> None:
        """Read, train tokenizers and encode every corpus (once; Lightning calls it in one process)."""
        for part in self.parts.values():
            part.prepare_data()

    def _train_batches(self, start: Position) -> MixedBatches:
        """The batches of all corpora; those encoded during training share the num_workers."""
        parts, workers = self.parts, self.config.num_workers
        each = -(-workers // max(1, sum(part.config.streaming for part in parts.values())))
        corpora = []
        for name, part in parts.items():
            windows = part._windows if part.config.streaming else part.encoded("train")
            corpora.append(Passes(name, self.shares[name], windows, part._recipe, min(each, part._workers)))
        self._mixed = MixedBatches(corpora, self._recipe, self._everywhere, start, self._places)
        return self._mixed

    def _validation_loader(self) -> JoinedLoader | list[Any]:
        """The validation batches of the corpora with such a split, one after the other (`Batch.corpus`); [] if none."""
        loaders = {name: part._validation_loader() for name, part in self.parts.items()}
        found = {name: loader for name, loader in loaders.items() if isinstance(loader, FixedLoader)}
        return JoinedLoader(found) if found else []

    def _report(self) -> DataReport:
        """A report with the splits of all corpora."""
        reports = {name: part.report.splits for name, part in self.parts.items()}
        splits = {f"{name}: {key}": split for name, own in reports.items() for key, split in own.items()}
        corpora = {name: CorpusReport(share) for name, share in self.shares.items()}
        return replace(self._empty_report, splits=splits, corpora=corpora)

    def _validation_report(self) -> dict[str, SplitReport]:
        found = {name: part._validation_report().items() for name, part in self.parts.items()}
        return {f"{name}: {key}": split for name, own in found.items() for key, split in own}

    @property
    def trained_report(self) -> DataReport | None:
        """`report` with the examples drawn from each corpus so far; None before there are batches."""
        if self._staged is not None:
            return super().trained_report
        if self._mixed is None or self._train_loader is None:
            return None
        drawn = self._mixed.progress(self._train_loader.position)
        corpora = {name: CorpusReport(share, *drawn[name]) for name, share in self.shares.items()}
        return replace(self.report, corpora=corpora)

    @property
    def longest_segment(self) -> int | None:
        """As for one corpus; None if one is streamed, since only its first window is known."""
        lengths = [part.longest_segment for part in self.parts.values()]
        known = [length for length in lengths if length is not None]
        return max(known) if len(known) == len(lengths) else None

    @cached_property
    def _signature(self) -> str:
        corpora = [[name, self.shares[name], part._signature] for name, part in self.parts.items()]
        return hashlib.sha256(json.dumps([corpora, self.config.seed]).encode()).hexdigest()

    def _state_at(self, position: Position) -> dict[str, Any]:
        """Also has the places of all processes in all corpora (`MixedBatches.places`)."""
        places = None if self._mixed is None else self._mixed.places(position)
        return {**super()._state_at(position), "places": places or self._places}

    @property
    def _places(self) -> Any:
        """The places of all processes in the loaded state; None if data or settings differ."""
        state = self._state
        return state.get("places") if state is not None and state["signature"] == self._signature else None
