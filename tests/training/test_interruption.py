"""Outside training a signal ends the program at once; so does a second one during training."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from scaleformer.system.errors import Interrupted
from scaleformer.training import interruption
from scaleformer.training.interruption import SIGNALS, SignalWatch


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_outside_training_a_signal_ends_at_once(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores one of them, and child processes inherit that
    with pytest.raises(Interrupted, match=f"interrupted by {number.name}"), SignalWatch():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is signal.SIG_DFL
    signal.signal(number, before)


def test_in_training_the_first_signal_is_a_request(capfd) -> None:
    module = SimpleNamespace(stop=0)
    with SignalWatch() as watch:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Lightning installs its own handler
        watch.on_train_start(None, module)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGTERM)
        assert SIGNALS[module.stop - 1] == signal.SIGTERM
        assert "stopping after this step" in capfd.readouterr().err
        with pytest.raises(Interrupted, match="interrupted by SIGINT at once; the steps after the last checkpoint"):
            os.kill(os.getpid(), signal.SIGINT)


def test_after_a_failed_training_a_signal_ends_at_once() -> None:
    watch = SignalWatch()
    watch.on_train_start(None, SimpleNamespace(stop=0))  # type: ignore[arg-type]
    watch.on_exception(None, None, KeyError())  # type: ignore[arg-type]
    with pytest.raises(Interrupted, match="SIGTERM"):
        watch.receive(signal.SIGTERM, None)


def test_an_ignored_hangup_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup leaves it
    try:
        with SignalWatch():
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def deaf(training: bool) -> None:
    """A process whose Python handles no signals: it waits for a lock, as it would inside a library."""
    interruption.PATIENCE = 0.5
    with SignalWatch() as watch:
        watch.ending = lambda: os.write(2, b"left\n")
        if training:
            watch.on_train_start(None, SimpleNamespace(stop=0))  # type: ignore[arg-type]
        for number in watch.before:
            signal.signal(number, lambda *_: None)  # a handler that is never reached
        os.write(2, b"waiting\n")
        threading.Event().wait(60)


@pytest.mark.parametrize("training", [False, True], ids=["outside", "in training"])
def test_a_blocked_python_ends_all_the_same(training: bool, capfd) -> None:
    process = multiprocessing.get_context("fork").Process(target=deaf, args=(training,))
    process.start()
    errors = ""
    while "waiting" not in errors:
        time.sleep(0.02)
        errors += capfd.readouterr().err
    os.kill(process.pid, signal.SIGTERM)  # type: ignore[arg-type]
    if training:
        time.sleep(1.0)
        assert process.is_alive(), "the first one is a request"
        os.kill(process.pid, signal.SIGTERM)  # type: ignore[arg-type]
    process.join(20)
    assert process.exitcode == 75
    assert "left\ninterrupted by SIGTERM while" in capfd.readouterr().err


def timers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)}


def test_signals_of_a_forked_process_do_not_reach_this_one() -> None:
    before = timers()
    with SignalWatch():
        child = os.fork()
        if not child:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        time.sleep(0.1)
        assert timers() <= before
