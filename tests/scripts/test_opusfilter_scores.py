"""Scores by rules of OpusFilter, which is no dependency: stand-ins for what is called of it."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.opusfilter_scores import main


def test_a_pair_needs_all_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def from_config(rules: list[int]) -> SimpleNamespace:
        return SimpleNamespace(
            filters=[SimpleNamespace(decisions=lambda pairs, n=n: [len(p[n]) > 1 for p in pairs]) for n in rules]
        )

    pipeline = SimpleNamespace(FilterPipeline=SimpleNamespace(from_config=from_config))
    reader = SimpleNamespace(YAML=lambda typ: SimpleNamespace(load=lambda file: [int(n) for n in file.read().split()]))
    for name, module in (("opusfilter.pipeline", pipeline), ("ruamel.yaml", reader)):
        monkeypatch.setitem(sys.modules, name.partition(".")[0], SimpleNamespace())
        monkeypatch.setitem(sys.modules, name, module)
    (tmp_path / "rules").write_text("0 1", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["opusfilter_scores", str(tmp_path / "rules")])
    monkeypatch.setattr(sys, "stdin", io.StringIO("aa\tbb\na\tbb\naa\tb\n"))
    main()
    assert capsys.readouterr().out.split() == ["1", "0", "0"]


def test_its_absence_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opusfilter", None)
    monkeypatch.setattr(sys, "argv", ["opusfilter_scores", "rules"])
    with pytest.raises(ValueError, match="pip install opusfilter"):
        main()
