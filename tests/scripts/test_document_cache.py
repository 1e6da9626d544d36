"""What a cache of decoder states gives each token, by hand, and the rows of the table."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from scripts.document_cache import Read, cached, main, mixed
from tests.runs import DOCUMENTS, make_run


def test_a_cache_by_hand() -> None:
    """States 0, 1, 1, 3 of the segments 0, 0, 1, 1; with a spread of 2, distances of 1 and 2 weigh e^-0.5 and e^-2."""
    states = torch.tensor([[0.0], [1.0], [1.0], [3.0]])
    here = Read(states, torch.tensor([7, 8, 7, 8]), torch.tensor([0, 0, 1, 1]), torch.zeros(1, 4))
    found, nearest = cached(here, here, 2.0)
    assert found[:2].tolist() == [0.0, 0.0]
    assert found[2:].tolist() == pytest.approx(
        [math.exp(-0.5) / (1 + math.exp(-0.5)), math.exp(-2) / (math.exp(-2) + math.exp(-4.5))]
    )
    assert nearest.tolist() == [-math.inf, -math.inf, 0.0, -2.0]
    other = Read(states[:1], torch.tensor([8]), torch.tensor([5]), torch.zeros(1, 1))
    assert cached(here, other, 2.0)[0].tolist() == [0.0, 1.0, 0.0, 1.0]  # all of another document, whatever its order

    losses = mixed(torch.full((4,), math.log(0.5)), (found, nearest), 0.5, 1.0)
    expected = [math.log(2)] * 2  # without a cache
    for value, weight in zip(found[2:].tolist(), (1.0, 0.5 * -2.0 + 1.0), strict=True):
        share = 1 / (1 + math.exp(-weight))
        expected.append(-math.log((1 - share) * 0.5 + share * value))
    assert losses.tolist() == pytest.approx(expected)


def test_rows_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run")
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS), encoding="utf-8")
    main([str(run), str(path), "--most", "2"])
    rows = [line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines()]
    assert rows[2:] == ["as it is", "scaled", "cache", "foreign cache", "usual cache"]
    with pytest.raises(ValueError, match="wanted 2 documents or more"):
        main([str(run), str(path), "--most", "1"])
