"""The Lightning data module: reads documents, trains or reuses tokenizers, encodes once, and yields batches."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any, cast

import pytorch_lightning as pl
from pytorch_lightning.trainer.states import TrainerFn

from scaleformer.data.batching import make_batches, make_example, share
from scaleformer.data.config import DataConfig
from scaleformer.data.corpora import DocumentStream
from scaleformer.data.cutting import Cutting, Plan, make_plan
from scaleformer.data.encoded import encode_documents
from scaleformer.data.loader import TrainLoader
from scaleformer.data.mixture import JoinedLoader, MixedBatches
from scaleformer.data.report import CorpusReport, DataReport, SplitReport, report_split, stage_name
from scaleformer.data.sampler import FixedLoader, KeptBatches, Position, Recipe, unchanged
from scaleformer.data.sources import warn_of_one_document
from scaleformer.data.splits import EncodedSplits
from scaleformer.data.stages import Beginning, StagedBatches, StageValidation, is_over
from scaleformer.data.streaming import Counted, EncodedWindows, StreamedBatches, document_windows
from scaleformer.system.devices import gathered


class DocumentDataModule(EncodedSplits, pl.LightningDataModule):
    """Documents of a corpus: as batches for training and validation, and whole for decoding (`several.data_module`).

    tokenizers: (source, target) models, for example from a checkpoint; otherwise they are trained on the training split
    and cached. Everything is lazy: evaluation on a test split needs no training split.

    Its state in a checkpoint is the epoch, its window (0 for a kept corpus) and the number of batches trained on, the
    same for all processes, and where each of `data.stages` began. Training resumes with the very next batch. If
    settings or data have changed, it warns and continues with the next epoch.
    """

    _state: dict[str, Any] | None = None
    _train_loader: TrainLoader | None = None
    _staged: StagedBatches | None = None
    _counted: Counted | None = None

    @property
    def parts(self) -> dict[str, DocumentDataModule]:
        """The data module of each of several corpora; {} for a single one."""
        return {}

    @cached_property
    def _made_stages(self) -> list[DocumentDataModule]:
        return [self._stage(config) for config in self.config.staged]

    @property
    def stages(self) -> list[DocumentDataModule]:
        """The data module of each of `data.stages`, of the same encoded corpus; [] without."""
        for stage in self._made_stages:
            stage.trainer, stage._everywhere = self.trainer, self._everywhere  # type: ignore[method-assign]
        return self._made_stages

    def _stage(self, config: DataConfig) -> DocumentDataModule:
        stage = type(self)(config, self.tokenizer_config, self.tokenizers)
        stage._encoded = self._encoded
        return stage

    def prepare_data(self) -> None:
        """Read, train tokenizers and encode for training (once; Lightning calls it in one process)."""
        if self.config.streaming:
            _ = self.tokenizers  # raise now if the settings are wrong
        else:
            self.encoded("train")
        if "valid" in self.sources:
            self.encoded("valid")

    def train_dataloader(self) -> TrainLoader:
        """Batches of the training split, one epoch per iteration; without a length.

        Each example is in one batch of one process, and all processes have equally many batches.
        """
        trained, stages, trainer = self._trained(), self.stages or [self], cast(Any, self.trainer)
        began = [Beginning(*values) for values in (self._state or {}).get("began", [()])][: len(stages)]
        present = stages[len(began) - 1]
        present._state = self._state
        start = present._start
        if self.stages:
            steps = None if trained is None else lambda: trainer.global_step
            make = [stage._train_batches for stage in stages]
            self._staged = StagedBatches(make, self._is_over, self._recipe, steps, began)
        self._train_loader = TrainLoader(self._staged or self._train_batches(start), start, trained)
        return self._train_loader

    def _present(self) -> int:
        """The number of the present stage, from 0."""
        staged, loader = self._staged, self._train_loader
        return 0 if staged is None or loader is None else staged.stage(loader.position[0])

    def _is_over(self, stage: int, steps: int) -> bool:
        until = self.config.stage_settings[stage].until
        return until is not None and is_over(until, steps, self.trainer)

    def _train_batches(self, start: Position) -> KeptBatches | StreamedBatches | MixedBatches:
        if not self.config.streaming:
            return KeptBatches(self.encoded("train"), self._recipe, self.config.num_workers)
        if self._state is not None and self._state["signature"] != self._signature:
            self._counted = Counted(epoch=start[0])  # the old counts belong to other data or batches
        batches = StreamedBatches(self._windows, self._workers, self._everywhere, self._counted)
        self._counted = batches.counted
        return batches

    @property
    def _windows(self) -> EncodedWindows:
        recipe = self._recipe
        documents = DocumentStream(self.source("train"), recipe.rank, recipe.world)
        return EncodedWindows(documents, self.tokenizers, recipe, self.config.window, self._masking, self.tag)

    @property
    def _workers(self) -> int:
        # `datasets` would give each of several workers its own share, which would change the order of windows.
        most = 1 if self.config.streaming and self.config.format == "hub" else self.config.num_workers
        return min(self.config.num_workers, most)

    def val_dataloader(self) -> Any:
        """A loader of the validation split, cut by `data.level` and `data.max_tokens`; [] if there is none. Where a
        stage cuts otherwise, a list with a second one, `StageValidation`."""
        whole, usual = self._validation_loader(), self._validation_cutting
        own = {n: s._validation_loader() for n, s in enumerate(self.stages) if s._validation_cutting != usual}
        return [whole, StageValidation(own, self._present)] if whole and own else whole

    def _validation_loader(self) -> FixedLoader | JoinedLoader | list[Any]:
        """Batches of the validation split, cut like training batches but always the same; [] if there is none.

        Each document counts once across all processes; all have equally many batches, at least one.
        """
        if "valid" not in self.sources:
            return []
        plan, recipe = self._validation_plan, self._recipe
        batches = share(make_batches(plan, self.config.batch_tokens, None), recipe.rank, recipe.world)
        return FixedLoader(self.encoded("valid"), plan, batches, self.config.num_workers)

    def validation_ids(self) -> list[str]:
        """The names of the examples of the validation split, across all processes."""
        corpus, plan = self.encoded("valid"), self._validation_plan
        return [make_example(corpus, plan.segments(example)).id for example in range(len(plan))]

    @cached_property
    def _validation_plan(self) -> Plan:
        return make_plan(self.encoded("valid"), self._validation_cutting, self._recipe.rng(0))

    @cached_property
    def report(self) -> DataReport:
        """Counts of training in its first epoch (streamed: its first window; by stage, if any) and of validation."""
        if not self.stages:
            return self._report()
        report = self._empty_report
        for number, stage in enumerate(self.stages, 1):
            splits = stage.report.splits.items()
            report.splits |= {stage_name(number, key): split for key, split in splits if key.endswith("train")}
            shares = stage.report.corpora or {"": CorpusReport(1.0)}
            report.corpora |= {stage_name(number, name): share for name, share in shares.items()}
        report.splits |= self._validation_report()
        return report

    def _report(self) -> DataReport:
        config, report = self.config, self._empty_report
        if "train" in self.sources:
            if config.streaming:
                first = next(document_windows(DocumentStream(self.source("train")), config.window))
                name = "train (first window)"
                corpus = encode_documents(map(self._masking or unchanged, first), *self.tokenizers)
                corpus = replace(corpus, tag=self.tag)
            else:
                name, corpus = "train", self.encoded("train")
            report.splits[name] = report_split(corpus, self._recipe)
        report.splits |= self._validation_report()
        for name, counts in report.splits.items():
            warn_of_one_document(self.source(name.split()[0]), counts.documents, counts.segments)
        return report

    def _validation_report(self) -> dict[str, SplitReport]:
        if "valid" not in self.sources:
            return {}
        recipe = replace(self._recipe, cutting=self._validation_cutting)
        return {"valid": report_split(self.encoded("valid"), recipe, shuffle=False)}

    @property
    def _empty_report(self) -> DataReport:
        return DataReport(self.config.max_tokens, self.config.batch_tokens, self._recipe.world)

    @property
    def trained_report(self) -> DataReport | None:
        """`report` after training in stages, with what each has drawn; or on streamed documents: for all windows that
        all processes have read so far in the first epoch (with the current data and settings). None if there is nothing
        to add to `report`."""
        if self._staged is not None and self._train_loader is not None:
            corpora = dict(self.report.corpora)
            for number, (steps, drawn) in enumerate(self._staged.drawn(self._train_loader.position), 1):
                for name in self.stages[number - 1].parts or [""]:
                    key, (examples, epochs) = stage_name(number, name), drawn.get(name, (0, 0.0))
                    corpora[key] = CorpusReport(corpora[key].share, int(examples), epochs, steps)
            return replace(self.report, corpora=corpora)
        if not self.config.streaming or self._counted is None or not self._counted.windows:
            return None
        validation = {name: counts for name, counts in self.report.splits.items() if name == "valid"}
        splits = {self._counted.name: self._counted.counts} | validation
        return replace(self.report, splits=splits)

    @property
    def longest_segment(self) -> int | None:
        """Tokens of the longest training segment, with its `</s>`; for a stream, of those read so far."""
        if not self.config.streaming:
            return max(s.longest_segment for name, s in self.report.splits.items() if name.endswith("train"))
        return None if self._counted is None else self._counted.counts.longest_segment

    @property
    def _validation_cutting(self) -> Cutting:
        """Examples as long as possible, joined as in training, with nothing left out."""
        return replace(self.cutting, multi_resolution=False, max_ratio=None)

    @property
    def _recipe(self) -> Recipe:
        """How this process makes batches; rank and number of processes are known once a trainer is attached."""
        trainer, config = self.trainer, self.config
        ranks = (0, 1, 1)
        if trainer is not None:
            ranks = trainer.global_rank, trainer.world_size, trainer.accumulate_grad_batches
        return Recipe(self.cutting, config.batch_tokens, config.seed, *ranks, config.consecutive)

    def _everywhere(self, value: Any) -> list[Any]:
        """Gather a value from every process."""
        return gathered(value, 1 if self.trainer is None else self.trainer.world_size)

    def _trained(self) -> Callable[[], int] | None:
        if self.trainer is None or self.trainer.state.fn != TrainerFn.FITTING:
            return None
        progress: Any = self.trainer.fit_loop.epoch_loop.batch_progress.total
        return lambda: progress.processed

    @cached_property
    def _signature(self) -> str:
        """A hash of everything that must stay the same for a place within an epoch to keep its meaning."""
        config, recipe = self.config, self._recipe
        parts = [asdict(self.cutting), config.batch_tokens, config.seed, recipe.world, recipe.accumulated]
        parts += [config.streaming, config.window, config.consecutive, self.tag, *(t.hash for t in self.tokenizers)]
        parts += [self._fingerprint("train"), None if self._masking is None else self._masking.key]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def state_dict(self) -> dict[str, Any]:
        """Epoch, its window, and the batches of the window that were trained on: the same for all processes; and where
        the stages so far began."""
        position = self._train_loader.position if self._train_loader is not None else self._start
        if self._staged is None:
            return self._state_at(position)
        began = [list(beginning) for beginning in self._staged.began[: self._present() + 1]]
        return {**self.stages[self._present()]._state_at(position), "began": began}

    def _state_at(self, position: Position) -> dict[str, Any]:
        epoch, window, done = position
        counted = {} if self._counted is None else {"counted": self._counted.to_dict()}
        return {"epoch": epoch, "window": window, "done": done, "signature": self._signature, **counted}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume after the batches that the state counts."""
        self._state = dict(state_dict)
        if "counted" in state_dict:
            self._counted = Counted.from_dict(state_dict["counted"])

    @property
    def _start(self) -> Position:
        if self._state is None:
            return 0, 0, 0
        epoch, window, done = (self._state[name] for name in ("epoch", "window", "done"))
        if not (window or done) or self._state["signature"] == self._signature:
            return epoch, window, done
        warnings.warn(
            f"data, tokenizer or batch settings changed since the checkpoint was written inside epoch {epoch}: "
            f"continuing with epoch {epoch + 1}",
            stacklevel=2,
        )
        return epoch + 1, 0, 0
