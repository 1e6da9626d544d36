"""Free memory is returned to the system once much has accumulated."""

from __future__ import annotations

from scaleformer.training import peak_memory as memory
from scaleformer.training.peak_memory import TrimMemory


def end_batch(callback: TrimMemory) -> None:
    callback.on_train_batch_end(None, None, None, None, 0)  # type: ignore[arg-type]


def test_memory_is_returned_once_it_exceeds_the_need(monkeypatch) -> None:
    held = [0.0]
    monkeypatch.setattr(memory, "memory_status", lambda _: held[0])
    callback, given_back = TrimMemory(), []

    def give_back() -> None:
        given_back.append(batch)
        held[0] = 100.0

    callback.give_back = give_back
    for batch in range(1, 61):
        held[0] += 5.0 if batch > 1 else 100.0  # 145 after ten batches, the bound is 188.5
        end_batch(callback)
    # 190 after batch 19; from then on 105 to 150 in the ten batches after it, and more than 195 after twenty
    assert given_back == [19, 39, 59]


def test_nothing_is_returned_without_growth(monkeypatch) -> None:
    monkeypatch.setattr(memory, "memory_status", lambda _: 100.0)
    callback, given_back = TrimMemory(), []
    callback.give_back = lambda: given_back.append(0)
    for _ in range(100):
        end_batch(callback)
    assert not given_back


def test_one_large_batch_is_not_lasting_growth(monkeypatch) -> None:
    held = iter([100.0] * 15 + [200.0] * 100)
    monkeypatch.setattr(memory, "memory_status", lambda _: next(held))
    callback, given_back = TrimMemory(), []
    callback.give_back = lambda: given_back.append(0)
    for _ in range(115):
        end_batch(callback)
    assert given_back == [0]  # once; from then on 200 is the need
