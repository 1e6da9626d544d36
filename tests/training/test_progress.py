"""The progress display: numbers, shares, time left, and its width."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pytorch_lightning.callbacks import Callback
from rich.console import Console

from scaleformer.training import progress, saving
from scaleformer.training.metrics_csv import MetricsCsv
from scaleformer.training.progress import StatusBar, TrainingProgress
from tests.trainings import Batches, make_module, make_trainer, read_metrics

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pytorch_lightning", "ignore:.*treespec")


class Clock(Callback):
    """A fake clock: a step takes 2 seconds, a validation 100."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def on_before_zero_grad(self, *_: Any) -> None:
        self.now += 2

    def on_validation_batch_start(self, *_: Any) -> None:
        self.now += 100


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def fit(folder: Path, clock: Clock, console: Console, **options: Any) -> None:
    options = {"max_steps": 4, "log_every_n_steps": 2, "val_check_interval": 2, **options}
    trainer = make_trainer(folder, [TrainingProgress(console), clock], logger=[MetricsCsv(folder)], **options)
    trainer.fit(make_module(), Batches(4), Batches(1))


def plain(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width)


def test_lines_without_a_terminal(tmp_path: Path, clock: Clock) -> None:
    console = plain(40)
    fit(tmp_path, clock, console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split("  ")[:2] for line in lines] == [
        [" 50%", "step 2"],
        [" 50%", "step 2"],
        ["100%", "step 4"],
        ["100%", "step 4"],
    ]
    rows = read_metrics(tmp_path)
    assert f"loss {float(rows[0]['train/loss']):.3f}" in lines[0]
    assert ["val" in line for line in lines] == [False, True, False, True]  # an old value is not repeated
    assert f"val {float(rows[0]['val/loss']):.3f}" in lines[1]
    assert lines[0].endswith("left 0:00:04")  # 2 steps took 4 seconds
    assert lines[1].endswith("left 0:01:44")  # and 104 with the validation
    assert lines[3].endswith("left 0:00:00")


def test_speed_counts_real_tokens_over_training_time(tmp_path: Path, clock: Clock) -> None:
    fit(tmp_path, clock, plain())
    batches = list(Batches(4))
    for row, pair in zip(read_metrics(tmp_path), (batches[:2], batches[2:]), strict=True):
        masks = [mask for batch in pair for mask in (batch.source_mask, batch.target_mask)]
        tokens, positions = sum(int(m.sum()) for m in masks), sum(m.numel() for m in masks)
        assert float(row["train/tokens_per_second"]) == pytest.approx(tokens / 4)
        assert float(row["train/padding"]) == pytest.approx(1 - tokens / positions)


def test_checkpoints_between_batches_do_not_count(tmp_path: Path, monkeypatch, clock: Clock) -> None:
    def write(*_: Any) -> None:
        clock.now += 1000

    monkeypatch.setattr(saving, "write_status", write)
    monkeypatch.setattr(saving, "time", SimpleNamespace(monotonic=clock.perf_counter))
    checkpoints = saving.LastCheckpoint(tmp_path / "run" / "checkpoints" / "last.ckpt", 1)
    options = {"max_steps": 3, "log_every_n_steps": 3, "logger": [MetricsCsv(tmp_path)], "enable_checkpointing": True}
    make_trainer(tmp_path, [TrainingProgress(plain()), clock, checkpoints], **options).fit(make_module(), Batches(3))
    tokens = sum(int(batch.source_mask.sum() + batch.target_mask.sum()) for batch in Batches(3))
    assert clock.now > 2000
    assert float(read_metrics(tmp_path)[0]["train/tokens_per_second"]) == pytest.approx(tokens / 6)


def test_accumulated_batches_are_counted_with_their_step(tmp_path: Path, clock: Clock) -> None:
    options = {"max_steps": 2, "log_every_n_steps": 1, "accumulate_grad_batches": 2, "val_check_interval": 100}
    fit(tmp_path, clock, plain(), **options)
    batches = list(Batches(4))
    for row, pair in zip(read_metrics(tmp_path), (batches[:2], batches[2:]), strict=True):
        tokens = sum(int(batch.source_mask.sum() + batch.target_mask.sum()) for batch in pair)
        assert float(row["train/tokens_per_second"]) == pytest.approx(tokens / 2)  # a step of two batches, 2 seconds


def test_a_bar_of_two_lines_fits_eighty_columns(tmp_path: Path, clock: Clock) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    shown, notes = TrainingProgress(console), []

    class Note(Callback):
        def on_validation_batch_start(self, *_: Any) -> None:
            assert shown.bar is not None
            notes.append(shown.bar.status)

    trainer = make_trainer(tmp_path, [shown, clock, Note()], val_check_interval=2)
    trainer.fit(make_module(), Batches(4), Batches(1))
    assert [note.split("  ")[0] for note in notes] == ["step 2", "step 4"]
    assert all(note.endswith("validating") for note in notes)
    assert shown.bar is None
    assert "step 4  loss" in console.file.getvalue()  # type: ignore[attr-defined]
    bar = StatusBar(Console(width=80))
    bar.status = "step 1,250,000  loss 12.123  val 12.123  BLEU 12.3  1,234,567 tokens/s"
    bar.update(bar.task, completed=0.5, left="12 days, 23:59:59")
    lines = Console(width=80, file=io.StringIO()).render_lines(bar.get_renderable())
    texts = ["".join(segment.text for segment in line).rstrip() for line in lines]
    assert texts[1] == bar.status
    assert texts[0].endswith("50% 0:00:00 left 12 days, 23:59:59")


def place(step: int, elapsed: float, clock: Clock, **limits: Any) -> dict[str, Any]:
    """The time left shown `elapsed` seconds after a start at step 10."""
    shown = TrainingProgress(plain())
    trainer: Any = SimpleNamespace(global_step=10, is_global_zero=True, max_steps=-1, callbacks=[], profiler=None)
    shown.on_train_start(trainer, None)  # type: ignore[arg-type]
    clock.now += elapsed
    trainer.global_step = step
    trainer.max_steps = limits.get("max_steps", -1)
    if "remaining" in limits:
        timer = progress.Timer(duration="00:00:10:00")
        timer._offset = 600 - limits["remaining"]
        trainer.callbacks = [timer]
    return shown._place(trainer)


@pytest.mark.parametrize(
    ("limits", "done", "left"),
    [
        ({"max_steps": 50}, 0.4, "0:01:30"),  # 10 steps of this process took 30 seconds, 30 are left
        ({"remaining": 150}, 0.75, "0:02:30"),
        ({"max_steps": 50, "remaining": 150}, 0.75, "0:01:30"),
        ({"max_steps": 50, "remaining": 60}, 0.9, "0:01:00"),
        ({}, 0.0, "-:--:--"),
    ],
    ids=["steps of a resumed run", "time", "steps before time", "time before steps", "no end"],
)
def test_time_left(clock: Clock, limits: dict[str, int], done: float, left: str) -> None:
    shown = place(20, 30.0, clock, **limits)
    assert shown["completed"] == pytest.approx(done)
    assert shown["left"] == left


def test_time_left_is_unknown_before_the_first_step(clock: Clock) -> None:
    assert place(10, 5.0, clock, max_steps=50)["left"] == "-:--:--"
