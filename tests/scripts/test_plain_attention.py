"""The program that times attention in a process without the settings of the commands."""

from __future__ import annotations

import pytest

from scripts.plain_attention import main


def test_its_table(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--heads 2 --width 4 --horizon 2 --repeats 1 --seconds 0 --segments 3 --lengths 8 12"
    main([*sizes.split(), "--cases", "causal", "--no-memory"])
    forward, back = capsys.readouterr().out.split("\n\n")
    assert forward.startswith("| causal, forward: ms (softmax / this)")
    assert back.startswith("| causal, forward+backward: ms (softmax / this)")
    assert "| segment-recall, 3 tokens each" in forward
