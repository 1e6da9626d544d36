"""Signals outside of training, and the second one inside, end the program at once."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

import pytest

from scaleformer.system.errors import Interrupted
from scaleformer.training.interruption import SIGNALS, SignalWatch


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_outside_of_training_a_signal_ends_at_once(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=f"interrupted by {number.name}"), SignalWatch():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_in_training_the_first_one_is_a_wish(capfd) -> None:
    module = SimpleNamespace(stop=0)
    with SignalWatch() as watch:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Lightning sets one of its own
        watch.on_train_start(None, module)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        assert SIGNALS[module.stop - 1] == signal.SIGTERM
        assert "stopping after this step" in capfd.readouterr().err
        with pytest.raises(Interrupted, match="interrupted by SIGINT at once, what came after the last checkpoint is"):
            os.kill(os.getpid(), signal.SIGINT)


def test_after_a_failed_training_it_is_outside_again() -> None:
    watch = SignalWatch()
    watch.on_train_start(None, SimpleNamespace(stop=0))  # type: ignore[arg-type]
    watch.on_exception(None, None, KeyError())  # type: ignore[arg-type]
    with pytest.raises(Interrupted, match="SIGTERM"):
        watch.receive(signal.SIGTERM, None)
