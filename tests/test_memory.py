"""Free memory goes back to the system, now and then."""

from __future__ import annotations

import pytest

from scaleformer import memory
from scaleformer.memory import TrimMemory


def test_once_a_minute(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(memory.time, "monotonic", lambda: now[0])
    callback, calls = TrimMemory(), []
    callback.trim = calls.append
    for second in range(0, 200, 10):
        now[0] = float(second)
        callback.on_train_batch_end(None, None, None, None, 0)  # type: ignore[arg-type]
    assert calls == [0, 0, 0]


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_nothing_where_there_is_no_such_function(monkeypatch, error: type[Exception]) -> None:
    def none(_: object) -> None:
        raise error

    monkeypatch.setattr(memory.ctypes, "CDLL", none)
    callback = TrimMemory()
    callback.last -= 100
    callback.on_train_batch_end(None, None, None, None, 0)  # type: ignore[arg-type]
    assert callback.trim is None
