"""The short form of the fuzzer, every kind of input in it, and that it finds what is wrong."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fuzz.__main__ import KINDS, fuzz, main
from tests.fuzz.checks import Finding, answer, same, time_limit


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_input(kind: str, tmp_path: Path) -> None:
    counts, findings = fuzz(40 if kind in ("translate", "tokenizer", "prose") else 150, tmp_path, seed=3, kinds=kind)
    assert findings == []
    assert list(counts) == [kind]
    assert list(tmp_path.iterdir()) == []


def test_other_exceptions_are_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setitem(KINDS, "tsv", (broken, 1))
    assert fuzz(1, tmp_path, kinds="tsv")[1] == ["input 0 (tsv): KeyError: 'x'"]


@pytest.mark.parametrize("message", ["", "two\nlines", "x" * 1001], ids=["none", "two lines", "long"])
def test_unclear_messages_are_findings(message: str) -> None:
    def read() -> None:
        raise ValueError(message)

    with pytest.raises(Finding):
        answer(read)


def test_wrong_answers_and_hangs_are_findings() -> None:
    with pytest.raises(Finding, match="wanted '1', found '2'"):
        same(2, 1)
    with pytest.raises(Finding, match="took longer"), time_limit(0.01):
        time.sleep(60)


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inputs=3", "kinds=tsv"]) == 0
    assert "3 inputs in " in capsys.readouterr().out
    assert main(["kinds=none"]) == 1
    assert main(["depth=3"]) == 1
