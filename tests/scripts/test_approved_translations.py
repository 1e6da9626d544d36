"""A search that is mixed with a cache, by hand, and the rows of the table."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from scripts.approved_translations import NOTHING, Cached, main
from tests.runs import DOCUMENTS, make_run


def test_a_step_by_hand() -> None:
    """One row with the states 0 and 2 before the tokens 3 and 1, one without any."""
    settings = argparse.Namespace(scale=2.0, spread=4.0, slope=0.5, offset=1.0)
    model = SimpleNamespace(most_target_tokens=math.inf, encode=None)
    stores = [(torch.tensor([[0.0], [2.0]]), torch.tensor([3, 1])), NOTHING]
    logits = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    found = Cached(model, stores, settings).mix(logits, torch.tensor([[1.0], [1.0]]), torch.tensor([0, 1]))
    total = 3 + math.e**2
    own = [1 / total, math.e**2 / total, 1 / total, 1 / total]
    assert found[1].exp().tolist() == pytest.approx(own)
    share = 1 / (1 + math.exp(-(0.5 * -0.25 + 1)))
    expected = [(1 - share) * value + share * (0.5 if token in (1, 3) else 0) for token, value in enumerate(own)]
    assert found[0].exp().tolist() == pytest.approx(expected)


def test_rows_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS), encoding="utf-8")
    main([str(run), str(path), "--most", "2", "--rates", "0", "0.01"])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["nothing", "own", "earlier", "others", "learned, rate 0", "learned, rate 0.01"]
    assert rows[4][1:] == rows[0][1:]  # nothing is learned
