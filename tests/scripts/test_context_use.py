"""What a model uses of other segments, counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.context_use import loss_table, main, repeated_words
from tests.runs import DOCUMENTS, make_run


def test_words_that_stand_before() -> None:
    """Long ones and identifiers, each once a segment."""
    targets = ["el archivo abc", "El archivo ya; archivo", "x2 archivo El", "x2"]
    assert list(repeated_words(targets)) == [0, 1, 1, 1]


def test_losses_by_position_and_repeated_words() -> None:
    """Two segments of 10 and 30 tokens: 20 and 15 nats alone, 10 and 30 in the document."""
    found = [(0, 0, 10, 20.0, 10.0), (5, 1, 30, 15.0, 30.0)]
    rows = {
        line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
        for line in loss_table(found).splitlines()
    }
    assert rows["segments before: 0"] == ["1", "2.000", "1.000", "-1.000 ± 0.000", "100%"]
    assert rows["segments before: 4 to 7"] == ["1", "0.500", "1.000", "+0.500 ± 0.000", "0%"]
    assert rows["repeated words: 1"] == rows["segments before: 4 to 7"]
    assert rows["all"][:3] == ["2", "0.875", "1.000"]


@pytest.mark.parametrize("attention", ["segment_recall", "softmax"])
def test_the_layers_that_see_other_segments_have_rows(
    attention: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", attention={"name": attention})
    path = tmp_path / "test.jsonl"
    path.write_text(
        "".join(
            json.dumps(document) + "\n"
            for document in [*DOCUMENTS, {**DOCUMENTS[0], "target": ["one"], "beads": [[2, 1]]}]
        )
    )
    main([str(run), str(path), "--tokens", "18"])
    out, err = capsys.readouterr()
    assert "1 of 4 documents are left out" in err
    assert [line.split("|")[1].strip() for line in out.splitlines() if ", layer 1" in line] == [
        "encoder, layer 1",
        "decoder, layer 1",
        "cross, layer 1",
    ]
    assert "attention of 2 of 3 documents" in out
    shares = [
        float(cell.strip(" %"))
        for line in out.splitlines()
        if ", layer 1" in line
        for cell in line.split("|")[2].split(",")
    ]
    assert all(0 < share < 100 for share in shares)
