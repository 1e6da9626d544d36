"""Schedules computed by hand, and which parameters decay."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import Timer
from torch import nn

from scaleformer.training.optimization import OptimizerConfig, ScheduleConfig, refresh_rates


def test_inverse_sqrt_rises_then_falls_with_the_root_of_the_step() -> None:
    schedule = ScheduleConfig("inverse_sqrt", warmup_steps=4)
    assert [schedule.factor(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert schedule.factor(15) == pytest.approx(0.5)  # the 16th step: sqrt(4 / 16)


def test_cosine_rises_then_falls_to_its_floor() -> None:
    schedule = ScheduleConfig("cosine", warmup_steps=10, total_steps=110, floor=0.1)
    assert schedule.factor(4) == pytest.approx(0.5)
    assert schedule.factor(10) == pytest.approx(1.0)
    assert schedule.factor(60) == pytest.approx(0.1 + 0.9 * 0.5)
    assert schedule.factor(110) == schedule.factor(500) == pytest.approx(0.1)
    assert schedule.factor(35) == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 4)))


@pytest.mark.parametrize(("steps", "told"), [(3, True), (4, True), (5, False), (-1, False)])
def test_a_warmup_that_outlasts_the_training_is_told(steps: int, told: bool) -> None:
    trainer = SimpleNamespace(max_steps=steps, callbacks=[])
    assert bool(ScheduleConfig("constant", warmup_steps=4).notes(trainer)) == told  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("warmup", "total", "steps", "end"), [(4, 10, 12, "10"), (10, 3, 16, "11"), (4, 10, 10, ""), (10, 3, 11, "")]
)
def test_a_cosine_that_ends_before_the_training_is_told(warmup: int, total: int, steps: int, end: str) -> None:
    trainer = SimpleNamespace(max_steps=steps, callbacks=[])
    schedule = ScheduleConfig("cosine", warmup, total)
    said = f"the learning rate is 0 of its peak from step {end} on: schedule.total_steps={total} is below"
    assert [line[: len(said)] for line in schedule.notes(trainer)] == [said] * bool(end)  # type: ignore[arg-type]
    assert not end or (schedule.factor(int(end)) < 1e-9 < schedule.factor(int(end) - 1))


@pytest.mark.parametrize("steps", [None, -1])
def test_a_cosine_without_steps_ends_with_the_time(monkeypatch: pytest.MonkeyPatch, steps: int | None) -> None:
    schedule = ScheduleConfig("cosine", warmup_steps=10, total_steps=steps, floor=0.1)
    assert schedule.factor(4, 0.0) == pytest.approx(0.5)
    assert schedule.factor(4, 0.5) == pytest.approx(0.5 * (0.1 + 0.9 * 0.5))  # still rising
    assert schedule.factor(1000, 0.25) == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 4)))
    assert schedule.factor(1000, 1.0) == schedule.factor(1000, 1.1) == pytest.approx(0.1)
    clock = Timer("00:00:01:40")
    monkeypatch.setattr(clock, "time_elapsed", lambda stage=None: 50.0)
    trainer: Any = SimpleNamespace(callbacks=[clock], max_steps=-1, world_size=1)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=2.0)
    assert schedule.notes(trainer) == []
    scheduler = schedule.build(optimizer, trainer)
    scheduler.last_epoch = 20
    refresh_rates(scheduler)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(2 * (0.1 + 0.9 * 0.5))
    trainer.world_size = 2
    with pytest.raises(ValueError, match=r"^schedule=cosine ends .*, and the clocks of 2 processes differ: set"):
        schedule.notes(trainer)
    trainer.callbacks = []
    with pytest.raises(ValueError, match=r"^schedule=cosine ends with .*, and neither is set: set trainer.max_steps"):
        schedule.notes(trainer)


def test_constant_stays_where_the_warmup_ends() -> None:
    schedule = ScheduleConfig("constant", warmup_steps=2)
    assert [schedule.factor(step) for step in (0, 1, 1000)] == [0.5, 1.0, 1.0]


def test_only_matrices_decay_and_the_schedule_drives_the_rate() -> None:
    module = nn.ModuleDict({"linear": nn.Linear(3, 2), "norm": nn.LayerNorm(2)})
    module.gate = nn.Parameter(torch.ones(2, 3))
    optimizer = OptimizerConfig(weight_decay=0.5, learning_rate=1.0).build(module.named_parameters())
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert decay[id(module["linear"].weight)] == 0.5
    assert decay[id(module["linear"].bias)] == decay[id(module["norm"].weight)] == decay[id(module.gate)] == 0.0
    scheduler = ScheduleConfig("constant", warmup_steps=4).build(optimizer)
    assert optimizer.param_groups[0]["lr"] == 0.25
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: OptimizerConfig(name="sgd"), "it must be one of adam, adamw"),
        (lambda: OptimizerConfig(learning_rate=0.0), "optimizer.learning_rate is 0.0: it must be a float above 0"),
        (
            lambda: OptimizerConfig(weight_decay=-1.0),
            "optimizer.weight_decay is -1.0: it must be a float of at",
        ),
        (
            lambda: OptimizerConfig(weight_decay=math.nan),
            "optimizer.weight_decay is nan: it must be a float of at",
        ),
        (lambda: OptimizerConfig(eps=0.0), "optimizer.eps is 0.0: it must be a float above 0"),
        (lambda: ScheduleConfig(name="step"), "it must be one of inverse_sqrt"),
        (lambda: ScheduleConfig(warmup_steps=-5), "schedule.warmup_steps is -5: it must be an int of at least 0"),
        (lambda: ScheduleConfig(floor=0.5), "only schedule=cosine has a floor, not inverse_sqrt"),
        (lambda: ScheduleConfig(floor=-1.0), r"schedule.floor is -1.0: it must be a float from 0 to 1"),
        (lambda: ScheduleConfig(floor=7.0), r"schedule.floor is 7.0: it must be a float from 0 to 1"),
        (
            lambda: ScheduleConfig(floor=math.nan),
            r"schedule.floor is nan: it must be a float from 0 to 1",
        ),
    ],
    ids=[
        *("optimizer", "rate", "decay", "decay no number", "eps", "schedule", "warmup"),
        *("floor of another", "below 0", "above the peak", "no number"),
    ],
)
def test_wrong_settings_are_named(build, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        build()
