"""Stages: what each draws and where it ends, alone and of two processes, and runs that stop and resume in each."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pytorch_lightning.callbacks import Timer

from scaleformer.data.config import DataConfig
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.sampler import FixedLoader
from scaleformer.data.stages import StageValidation, is_over
from tests.data.mixtures import drawn, mixed
from tests.data.test_datamodule_resume import VALIDATING, fit
from tests.data.toy import module

SENTENCES_FIRST = ({"level": "segment", "until": 5}, {"level": "document", "multi_resolution": True})
MIXTURES = (
    {"corpora": {"long": 1, "short": 3}, "until": 4},
    {"corpora": {"short": 1.0}, "level": "segment", "max_tokens": 50, "until": 7},
    {},
)


def epochs_of(data: DocumentDataModule, count: int) -> list[list[Any]]:
    loader = data.train_dataloader()
    return [[batch.source.tolist() for batch in loader] for _ in range(count)]


def test_each_stage_begins_an_epoch_of_its_own_examples(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "scaleformer")
    data = module(cache, stages=SENTENCES_FIRST)
    first, second, third = epochs_of(data, 3)
    assert first == epochs_of(module(cache, level="segment"), 1)[0][:5]
    assert [second, third] == epochs_of(module(cache, multi_resolution=True), 3)[1:]
    assert caplog.messages == ["stage 2 of 2 begins after step 5"]
    assert all(stage.encoded("train") is data.encoded("train") for stage in data.stages)


def test_a_stage_may_last_several_epochs(cache: Path) -> None:
    length = len(epochs_of(module(cache, level="segment"), 1)[0])
    until = 2 * length
    data = module(cache, stages=({"level": "segment", "until": until}, {}))
    epochs = epochs_of(data, 3)
    assert epochs[:2] == epochs_of(module(cache, level="segment"), 2)
    assert epochs[2] == epochs_of(module(cache), 3)[2]


def test_what_each_stage_drew_is_reported(cache: Path, folders: dict[str, str]) -> None:
    data = module(cache, stages=SENTENCES_FIRST)
    segments, pieces = (report.examples for name, report in data.report.splits.items() if name.endswith("train"))
    assert segments == module(cache, level="segment").report.splits["train"].examples > pieces
    assert data.report.splits["valid"] == module(cache).report.splits["valid"]
    lengths = [len(epoch) for epoch in epochs_of(data, 2)]
    report = data.trained_report
    assert report is not None
    one, two = report.corpora.values()
    whole = len(epochs_of(module(cache, level="segment"), 1)[0])
    assert (one.steps, one.epochs, two.steps, two.epochs) == (5, 5 / whole, lengths[1], 1.0)
    assert "steps so far" in [str(cell) for cell in report.table().columns[0].cells]

    data = mixed(cache, folders, stages=MIXTURES)
    loader = data.train_dataloader()
    found = [drawn([batch.ids for batch in loader]) for _ in range(3)]
    report = data.trained_report
    assert report is not None
    examples = {name: corpus.examples for name, corpus in report.corpora.items()}
    assert examples == {
        **{f"stage 1: {name}": found[0][name] for name in ("long", "short")},
        "stage 2: short": found[1]["short"],
        **{f"stage 3: {name}": found[2][name] for name in ("long", "short")},
    }
    assert [corpus.share for corpus in report.corpora.values()] == [0.25, 0.75, 1.0, 0.75, 0.25]
    assert found[1].total() == found[1]["short"]
    assert found[2]["long"] / found[2].total() == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("options", [{}, {"trainer": VALIDATING}, {"mixed": True}], ids=["one", "validating", "mixed"])
def test_runs_resume_with_the_very_next_batch(
    cache: Path, tmp_path: Path, folders: dict[str, str], options: dict[str, Any]
) -> None:
    def make() -> DocumentDataModule:
        if "mixed" in options:
            return mixed(cache, folders, stages=MIXTURES)
        return module(cache, stages=SENTENCES_FIRST)

    trainer, steps = options.get("trainer", {}), 12
    whole_run = make()
    whole = fit(whole_run, steps, tmp_path, **trainer)
    expected = whole_run.trained_report
    for done in (2, 4, 5, 6, 7, 9):
        data, checkpoint = make(), tmp_path / f"step={done}.ckpt"
        assert fit(data, steps, None, checkpoint, **trainer) == whole[done:]
        assert data.trained_report == expected


def test_a_stage_ends_with_a_whole_step(cache: Path, tmp_path: Path) -> None:
    """An epoch of 26 batches has six steps of four and one of two: steps are counted, not batches."""

    def make() -> DocumentDataModule:
        return module(cache, stages=({"level": "segment", "until": 9}, {}))

    options, data = {"accumulate_grad_batches": 4}, make()
    whole = fit(data, 11, tmp_path, **options)
    report = data.trained_report
    assert report is not None
    one, two = report.corpora.values()
    assert (one.steps, one.epochs, two.steps) == (9, pytest.approx(1 + 2 * 4 / 26), 2)
    assert len(whole) == 26 + 2 * 4 + 2 * 4
    for done, batches in ((2, 2 * 4), (8, 26 + 4), (9, 26 + 8), (10, 26 + 12)):
        assert fit(make(), 11, None, tmp_path / f"step={done}.ckpt", **options) == whole[batches:]


def test_two_processes_share_the_batches_of_each_stage(cache: Path) -> None:
    def process(rank: int, world: int, accumulated: int) -> list[list[Any]]:
        data = module(cache, stages=SENTENCES_FIRST)
        data.trainer = SimpleNamespace(
            state=SimpleNamespace(fn=None),
            world_size=world,
            accumulate_grad_batches=accumulated,
            global_rank=rank,
            max_steps=12,
        )
        loader = data.train_dataloader()
        return [[batch.ids for batch in loader] for _ in range(2)]

    one, two, alone = process(0, 2, 1), process(1, 2, 1), process(0, 1, 2)
    assert [len(epoch) for epoch in one] == [len(epoch) for epoch in two]
    assert len(one[0]) == 5
    for a, b, both in zip(one, two, alone, strict=True):
        assert Counter(i for batch in a + b for i in batch) == Counter(i for batch in both for i in batch)


def test_validation_is_of_documents_and_as_the_stage_cuts(cache: Path) -> None:
    data = module(cache, stages=SENTENCES_FIRST)
    loader = data.train_dataloader()
    whole, own = data.val_dataloader()
    assert isinstance(whole, FixedLoader)
    assert isinstance(own, StageValidation)
    valid, plan = data.encoded("valid"), data.stages[0]._validation_plan
    assert len(plan) == valid.segments == sum(len(batch) for batch in own)
    assert len(own) == len(list(own))
    assert sum(len(batch) for batch in whole) == len(module(cache)._validation_plan)
    list(loader)
    assert list(own) == []  # the stage of documents cuts as validation does
    assert isinstance(module(cache, stages=({"multi_resolution": True, "until": 3}, {})).val_dataloader(), FixedLoader)


@pytest.mark.parametrize(
    ("elapsed", "until", "over"), [(10.0, 0.5, False), (50.0, 0.5, True), (79.0, 0.8, False), (80.0, 0.8, True)]
)
def test_shares_of_time_where_steps_have_no_limit(elapsed: float, until: float, over: bool) -> None:
    timer = Timer(duration={"seconds": 100})
    timer.time_elapsed = lambda *_: elapsed  # type: ignore[method-assign]
    timer.time_remaining = lambda *_: 100 - elapsed  # type: ignore[method-assign]
    assert is_over(until, 1, SimpleNamespace(callbacks=[timer], max_steps=-1)) == over  # type: ignore[arg-type]
    assert not is_over(until, 19, SimpleNamespace(callbacks=[timer], max_steps=40))  # type: ignore[arg-type]
    assert is_over(until, 32, SimpleNamespace(callbacks=[timer], max_steps=40))  # type: ignore[arg-type]


CORPORA = {"a": {"format": "jsonl", "path": "A"}, "b": {"format": "jsonl", "path": "B", "tag": "b"}}


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"stages": ()}, "data.stages is []: it must be a nonempty list of {name: value} or null"),
        (
            {"stages": ({"levle": "segment"},)},
            "data.stages[0].levle: no such setting (did you mean data.stages[0].level?)",
        ),
        ({"stages": ({"level": "word"},)}, "data.stages[0].level is 'word': it must be one of"),
        ({"stages": ({"until": 1.5}, {})}, "data.stages[0].until is 1.5: it must be"),
        ({"stages": ({"until": 0}, {})}, "data.stages[0].until is 0: it must be"),
        ({"stages": ({}, {})}, "data.stages[0].until is null: it must say where the stage ends"),
        ({"stages": ({"until": 3},)}, "data.stages[0].until is 3: the last stage goes on to the end: leave it out"),
        ({"stages": ({"level": "segment"},)}, "so the last stage has to agree: set data.level=segment"),
        ({"stages": ({"max_tokens": 99},)}, "so the last stage has to agree: set data.max_tokens=99"),
        ({"stages": ({},), "streaming": True}, "data.stages does not work with streaming=true"),
        (
            {"stages": ({"level": "segment", "until": 3}, {}), "join_segments": (1, 4)},
            "data.stages[0]: data.join_segments is [1, 4]: data.level=segment cannot join segments",
        ),
        ({"stages": ({"corpora": {"a": 1}},)}, "some of data.corpora, which are none"),
        ({"stages": ({"corpora": {"c": 1}},), "corpora": CORPORA}, "some of data.corpora, which are a, b"),
        ({"stages": ({"corpora": {}},), "corpora": CORPORA}, "data.stages[0].corpora is {}: it must give weights"),
        ({"stages": ({"corpora": {"a": 0}},), "corpora": CORPORA}, "data.stages[0].corpora is {'a': 0}: it must be"),
    ],
)
def test_wrong_stages_are_refused_in_one_line(options: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)) as error:
        DataConfig(**options)
    assert "\n" not in str(error.value)


def test_a_stage_inherits_what_it_leaves_out() -> None:
    config = DataConfig(
        max_tokens=100, multi_resolution=True, corpora=CORPORA, stages=({"corpora": {"b": 2.0}, "until": 0.5}, {})
    )
    first, last = config.staged
    assert (first.max_tokens, first.multi_resolution, first.weights, first.stages) == (100, True, {"b": 2.0}, None)
    assert first.parts["b"].tag == "b"
    assert last.corpora == CORPORA
