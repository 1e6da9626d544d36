"""The decoding benchmark: which steps are timed, and the size of the state. The times themselves do not matter here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.vocabulary import SEP
from scripts.bench_decoding import steps
from scripts.bench_decoding.state import state_bytes
from scripts.bench_decoding.steps import Endless, compare, measure_curve, step_times
from scripts.bench_training.models import Sizes, make_batch, make_model
from scripts.bench_training.peers import MARIAN

SIZES = Sizes(layers=1, width=8, feedforward=12, heads=2, vocabulary=30)


def test_the_model_never_ends_and_writes_segments() -> None:
    batch = make_batch(2, 12, 5, 30, torch.Generator().manual_seed(0))
    model = Endless(make_model("scaleformer", SIZES).eval(), 4, (3, 10))
    config = DecodingConfig(
        strategy="beam", beam_size=2, max_length_ratio=0, max_length_offset=10, match_segments=False
    )
    found = decode(model, batch.source, batch.source_mask, batch.source_segments, config)
    for hypotheses in found:
        assert len(hypotheses[0].tokens) == 10
        assert [i for i, token in enumerate(hypotheses[0].tokens, start=1) if token == SEP] == [4, 8]
    assert model.position == 10
    assert model.sizes[3] == model.sizes[10] > 0


@pytest.mark.parametrize("beams", [1, 3])
def test_every_step_except_the_first_is_timed(beams: int) -> None:
    batch = make_batch(2, 12, 5, 30, torch.Generator().manual_seed(0))
    times = step_times(Endless(make_model("scaleformer", SIZES).eval(), 4), batch, beams, 9)
    assert len(times) == 8
    assert all(seconds > 0 for seconds in times)


@pytest.mark.parametrize(("attention", "growth"), [("scaleformer", 0.0), ("softmax", 2 * 8 * 4.0)])
def test_a_curve(attention: str, growth: float) -> None:
    """The cache of softmax grows by a key and a value per token, in doubling steps: here from 64 to 128 tokens."""
    curve = measure_curve(attention, SIZES, documents=2, beams=2, positions=110, source=12, segment=5, windows=3)
    assert curve.ends == [73, 91, 109]
    assert len(curve.seconds) == 3
    assert curve.spread == pytest.approx(max(curve.seconds) / min(curve.seconds) - 1)
    assert curve.growth == pytest.approx(growth * 64 / 60)
    assert curve.state > 0
    assert curve.memory > 0
    assert curve.speed == pytest.approx(2 / sorted(curve.seconds)[1])


def test_the_comparison_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []

    def generate_times(model: Any, batch: Any, prefix: int, steps: int, beams: int) -> tuple[list[float], int]:
        asked.append((prefix, steps, beams))
        return [2.0] * steps, 77

    monkeypatch.setattr(steps, "make_marian", lambda sizes, positions: torch.nn.Identity())
    monkeypatch.setattr(steps, "generate_times", generate_times)
    rows = compare(["scaleformer"], SIZES, source=12, position=8, steps=3, beams=2, segment=5, rounds=2)
    assert asked == [(5, 3, 2)] * 2
    ours, peer = rows
    assert (peer.system, peer.seconds, peer.ratio, peer.state) == (MARIAN, 2.0, 1.0, 77)
    assert ours.ratio == pytest.approx(2.0 / ours.seconds)


def test_bytes_of_a_state_count_each_piece_of_memory_once() -> None:
    @dataclass
    class Held:
        keys: Tensor
        rest: dict[str, list[Tensor | None]]

    whole = torch.zeros(10)
    state = [Held(whole[:3], {"a": [whole, None], "b": [torch.zeros(2, dtype=torch.float64)]}), (1, "text")]
    assert state_bytes(state) == 10 * 4 + 2 * 8
