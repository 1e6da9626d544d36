"""The progress of a long translation without a terminal."""

from __future__ import annotations

import pytest

from scaleformer.system import bars


def test_a_log_gets_lines_during_the_work(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(bars, "LINE_SECONDS", 0.0)
    with bars.translation_bar("7 [a] documents") as progress:
        progress(0.125, 1200)
        assert capsys.readouterr().err == "7 [a] documents  12.5%  1,200 tokens\n"
        monkeypatch.setattr(bars, "LINE_SECONDS", 60.0)
        progress(0.25, 2400)
        assert capsys.readouterr().err == ""
    assert "2,400 tokens" in capsys.readouterr().err
