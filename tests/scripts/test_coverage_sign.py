"""What coverage is, and that it is measured beside the signs of confidence."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from scripts.coverage_sign import coverage, main
from tests.runs import make_run


def test_coverage_by_hand() -> None:
    """Two target pieces, three source pieces: sums of 1.2 (at most 1), 0.5 and 0.3; the greatest 0.7, 0.4 and 0.2."""
    weights = np.array([[0.5, 0.4, 0.1], [0.7, 0.1, 0.2]])
    sums, greatest = coverage(weights)
    assert sums == pytest.approx(np.log([1.0, 0.5, 0.3]).mean())
    assert greatest == pytest.approx(np.log([0.7, 0.4, 0.2]).mean())


def test_each_choice_of_signs_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    draw = random.Random(1)
    words = ["the", "cat", "sees", "a", "dog", "it", "runs", "house", "tree"]

    def texts(count: int) -> list[str]:
        return [" ".join(draw.choices(words, k=draw.randint(1, 5))) for _ in range(count)]

    for name in ("valid", "test"):
        documents = [{"source": texts(6), "target": texts(6), "hypothesis": texts(6)} for _ in range(10)]
        documents.append({"source": texts(2), "target": texts(2), "hypothesis": texts(3)})  # left out
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    run = make_run(tmp_path / "run", attention={"name": "segment_recall"})
    main([str(run), str(tmp_path / "valid.jsonl"), str(tmp_path / "test.jsonl")])
    out, err = capsys.readouterr()
    assert err.count("1 of 11 documents are left out") == 2
    _, _, *rows = out.splitlines()
    assert [row.split("|")[1].strip() for row in rows] == [
        "without coverage",
        "with the sums",
        "with the sums and the greatest",
    ]
    assert {row.split("|")[2].strip() for row in rows} == {"60"}
