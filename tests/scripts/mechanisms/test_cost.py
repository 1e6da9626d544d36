"""The cost of an attention: every point is reported, including those that are skipped or do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.mechanisms import cost as module
from scripts.mechanisms.cost import Conditions, measure_alone, time_of

SMALL = Conditions({"width": 16, "feedforward": 16, "heads": 2}, 1, 1, 10.0, 0.9, 1)


class Sent(list):
    """The points that a process would have sent."""

    def send(self, point: dict[str, Any]) -> None:
        self.append(point)


def test_a_process_sends_each_site_and_length() -> None:
    points = measure_alone({"name": "linformer", "rank": 4, "max_length": 20}, [16, 32], SMALL)
    assert [(p["site"], p["length"]) for p in points] == [(s, n) for s in ("encoder", "cross") for n in (16, 32)]
    assert [sorted(p) for p in points] == [["length", "seconds", "site"], ["error", "length", "reason", "site"]] * 2
    assert points[1]["error"] == "refused"
    assert "at most 20 tokens, not 32" in points[1]["reason"]


def test_a_model_is_timed_with_the_memory_it_takes() -> None:
    sent = Sent()
    module._model_points({"name": "kernelized"}, [16, 64], SMALL, sent)  # type: ignore[arg-type]
    assert all(point["tokens_per_second"] > 0 for point in sent)
    assert 2**14 < sent[0]["memory"] < sent[1]["memory"] < 2**26


def test_a_pass_that_would_take_too_long_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time_of", lambda step, repeats, most: 1.0)
    sent = Sent()
    module._alone_points({"name": "shaw"}, [8, 24, 80], SMALL, sent)  # type: ignore[arg-type]
    assert sent == [{"seconds": 1.0}, {"seconds": 1.0}, {}] * 2


def test_lack_of_memory_is_reported_and_errors_are_not_hidden() -> None:
    def fail(error: Exception) -> dict[str, Any]:
        raise error

    assert module._guarded(lambda: fail(MemoryError())) == {"error": "out of memory"}
    message = "DefaultCPUAllocator: can't allocate memory"
    assert module._guarded(lambda: fail(RuntimeError(message))) == {"error": "out of memory"}
    with pytest.raises(RuntimeError, match="shapes"):
        module._guarded(lambda: fail(RuntimeError("shapes do not fit")))


@pytest.mark.parametrize(
    ("each", "most", "calls"),
    [(0.25, 10.0, 4), (2.0, 10.0, 3), (6.0, 10.0, 2), (20.0, 10.0, 1), (0.001, 10.0, 50)],
    ids=["short", "middling", "long", "too long", "tiny"],
)
def test_short_passes_are_repeated_more_and_long_ones_less(
    monkeypatch: pytest.MonkeyPatch, each: float, most: float, calls: int
) -> None:
    now, made = [0.0], []
    monkeypatch.setattr("time.process_time", lambda: now[0])

    def work() -> None:
        now[0] += each
        made.append(each)

    assert time_of(work, 3, most) == pytest.approx(each)
    assert len(made) == calls
