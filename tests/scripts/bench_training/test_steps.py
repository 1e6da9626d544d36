"""The training benchmark: what is timed, predicted and skipped. The times themselves do not matter here."""

from __future__ import annotations

import re

import pytest
import torch

from scripts.bench_training import peers, steps
from scripts.bench_training.models import Sizes, make_batch, make_model
from scripts.bench_training.steps import Course, Limits, TrainedSystem, foresee, measure_steps, take_turns
from tests.helpers import PAD

SIZES = Sizes(layers=1, width=8, feedforward=12, heads=2, vocabulary=30)


def test_a_step_changes_the_weights_and_counts_its_memory() -> None:
    trained = TrainedSystem("segment_recall", SIZES, 16, "bfloat16")
    before = [p.detach().clone() for p in trained.model.parameters()]
    trained.step(make_batch(2, 16, 5, 30, torch.Generator().manual_seed(0)))
    assert any(not p.equal(old) for p, old in zip(trained.model.parameters(), before, strict=True))
    numbers = sum(p.numel() for p in before)
    assert 3 * 4 * numbers <= trained.held() <= 3 * 4 * numbers + 100 * len(before)  # weights and two moments


@pytest.mark.parametrize(
    ("known", "margin", "expected"),
    [
        ({128: 1.0}, 0.0, 4.0),  # growth unknown: assumes quadratic attention
        ({128: 1.0, 512: 1.0}, 0.3, 1.0),  # flat stays flat
        ({128: 1.0, 512: 2.0}, 0.0, 4.0),  # the square root of the length
        ({128: 1.0, 512: 2.0}, 0.5, 8.0),
        ({128: 1.0, 512: 64.0}, 0.0, 256.0),  # no more than quadratic
        ({128: 2.0, 512: 1.0}, 0.3, 1.0),  # no less than flat
    ],
    ids=["one", "flat", "root", "margin", "steep", "falling"],
)
def test_costs_are_predicted_from_shorter_lengths(known: dict[int, float], margin: float, expected: float) -> None:
    length = 4 * max(known)
    assert foresee(known, length, margin, alone=1.0) == pytest.approx(expected)


def test_one_length_predicts_less_time_than_memory() -> None:
    limits = Limits(step_seconds=10, memory=1e9, seconds=1, repeats=1)
    one = {128: 1e-3}
    assert Course(0, one, {128: 1e3}).reason_to_skip(512, 4096, limits) == ""  # 8 s; 16 if it were quadratic
    assert Course(0, one, {128: 1e3}).reason_to_skip(512, 8192, limits) == "skipped: about 16 s a step"
    assert Course(0, one, {128: 1e6}).reason_to_skip(512, 512, limits) == "skipped: about 2 GiB"


def test_infeasible_lengths_are_skipped_with_a_reason() -> None:
    limits = Limits(step_seconds=10, memory=4 * steps.GIB, seconds=1, repeats=1)
    assert Course().reason_to_skip(2048, 2048, limits) == ""
    flat = {128: 1e-3, 512: 1e-3}
    assert Course(0, flat, flat).reason_to_skip(2048, 2048, limits) == ""
    assert Course(0, flat, flat).reason_to_skip(20480, 20480, limits) == "skipped: about 20 s a step"
    heavy = {128: 2.0**21, 512: 2.0**21}
    assert Course(steps.GIB, flat, heavy).reason_to_skip(2048, 2048, limits) == "skipped: about 5 GiB"


def test_steps_take_turns_and_slow_ones_stop() -> None:
    calls: list[str] = []
    steps = {name: (lambda name=name: calls.append(name)) for name in "ab"}
    assert {name: len(times) for name, times in take_turns(steps, Limits(1, 1, 60.0, 3)).items()} == {"a": 3, "b": 3}
    assert calls == ["a", "b"] * 3
    assert {name: len(times) for name, times in take_turns(steps, Limits(1, 1, 0.0, 5)).items()} == {"a": 2, "b": 2}


def test_operations_are_those_of_the_weights() -> None:
    """Every matrix counts once for each token that it processes: those of the encoder, and of the keys and values of
    cross-attention, process source tokens."""
    model = make_model("softmax", SIZES)
    source = target = 0
    for name, weight in model.named_parameters():
        if weight.dim() != 2 or "embedding" in name:
            continue
        if name.startswith("encoder") or "cross_attention.key" in name or "cross_attention.value" in name:
            source += weight.numel()
        else:
            target += weight.numel()
    assert steps.weight_flops(SIZES, 7, 11) == 6 * (7 * source + 11 * target)


def test_rows_of_all_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of our systems under the name of a peer, which need not be installed."""
    make_system = steps.make_system

    def replaced(system: str, *rest: object) -> object:
        return make_system("softmax" if system == peers.MARIAN else system, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(steps, "make_system", replaced)
    limits = Limits(step_seconds=60, memory=float("inf"), seconds=0, repeats=2)
    said: list[str] = []
    systems = ["scaleformer", peers.MARIAN]
    rows = [
        row
        for some in measure_steps(systems, SIZES, "float32", [16, 8], 32, 5, limits, 1e9, said.append)
        for row in some
    ]
    assert [(row.system, row.length, row.documents) for row in rows] == [
        ("scaleformer", 8, 4),
        (peers.MARIAN, 8, 4),
        ("scaleformer", 16, 2),
        (peers.MARIAN, 16, 2),
    ]
    assert said
    for row in rows:
        assert row.count == 2
        assert row.speed == pytest.approx(64 / row.seconds)
        assert row.memory > 0
        assert row.share == pytest.approx(steps.weight_flops(SIZES, 32, 32) / row.seconds / 1e9)
        assert row.ratio == 1.0 or row.system == "scaleformer"


def test_systems_too_slow_to_warm_up_are_not_timed() -> None:
    limits = Limits(step_seconds=0, memory=float("inf"), seconds=0, repeats=2)
    found = measure_steps(["softmax"], SIZES, "float32", [8, 16], 32, 5, limits, 1e9, lambda what: None)
    rows = [row for some in found for row in some]
    assert len(rows) == 2
    assert all(re.fullmatch(r"skipped: \d+ s to warm up", row.skipped) for row in rows)
    assert all(row.count == 0 and row.speed == 0 for row in rows)


def test_peers_know_the_padding_token() -> None:
    assert peers.PAD == PAD
