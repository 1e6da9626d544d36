"""The command as a user calls it: tables, page and JSON of a small corpus with one of each fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scaleformer.data.quality import near
from tests.commands.calls import run_command
from tests.runs import write_corpus

ENGLISH = "The {} of the garden is closed in winter, and nobody may open it before the first day of April."
SPANISH = "La {} del jardín está cerrada en invierno, y nadie puede abrirla antes del primer día de abril."
NAMES = ["gate", "door", "wall", "path", "lake", "hill", "roof", "well", "tree", "lawn"]


def write(folder: Path) -> None:
    documents = [
        {
            "id": f"d{n}",
            "source": [ENGLISH.format(name), f"Number {n}"],
            "target": [SPANISH.format(name), f"Número {n}"],
        }
        for n, name in enumerate(NAMES)
    ]
    same = "This sentence was never translated by anybody in the house."
    documents += [documents[0] | {"id": "again"}, {"id": "copy", "source": [same, "A."], "target": [same, "B."]}]
    write_corpus(folder, "train", documents)
    held_out = [{"id": "t", "source": [ENGLISH.format("gate"), "Nothing else"], "target": ["x", "y"]}]
    write_corpus(folder, "test", held_out)


def test_the_report_of_a_corpus(monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    write(tmp_path / "in")
    code, out, _ = run_command(
        monkeypatch, capsys, "inspect", f"data.path={tmp_path / 'in'}", f"output={tmp_path / 'out'}"
    )
    assert code == 0
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    assert found["splits"]["train"]["documents"] == 12
    assert found["splits"]["test"]["segments"] == 2
    assert found["duplicates"]["train"]["documents"] == 1
    assert found["duplicates"]["train"]["segments"] == 2
    leaks = found["leaks"]["test"]
    assert (leaks["segments"], leaks["documents"], leaks["share"]) == (1, 1, 0.5)
    assert found["copies"] == {"train": 1, "test": 0}
    assert found["languages"]["train"]["target"]["es"]["documents"] == 12
    assert len(found["misaligned"]) == 10
    assert found["filters"]["copies"]["alone"] == {"segments": 1, "documents": 0}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "This sentence was never translated by anybody in the house." in page
    assert "leaks: segments" in out


def test_without_rensa_one_line_says_so(monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    write(tmp_path / "in")
    monkeypatch.setattr(near, "rensa", None)
    code, out, _ = run_command(monkeypatch, capsys, "inspect", f"data.path={tmp_path / 'in'}")
    assert code == 0
    assert out.splitlines()[0] == near.INSTALL


def test_text_without_a_partner_is_no_leak(monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    for split in ("train", "test"):
        documents = [
            {"id": f"{split}{n}", "source": [f"{split} {n}"], "target": ["x", f"more {n}"], "beads": [[1, 1], [0, 1]]}
            for n in range(12)
        ]
        write_corpus(tmp_path / "in", split, documents)
    code, _, _ = run_command(
        monkeypatch, capsys, "inspect", f"data.path={tmp_path / 'in'}", f"output={tmp_path / 'out'}"
    )
    assert code == 0
    found = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (found["leaks"]["test"]["segments"], found["leaks"]["test"]["share"]) == (0, 0.0)
    assert found["duplicates"]["train"]["boilerplate_segments"] == 0


def test_the_report_of_the_corpus_itself_stays(monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    write(tmp_path / "in")
    (tmp_path / "in" / "report.json").write_text("{}")
    given = f"data.path={tmp_path / 'in'}", f"output={tmp_path / 'in' / '..' / 'in'}"
    code, _, err = run_command(monkeypatch, capsys, "inspect", *given)
    assert (code, err.count("\n")) == (1, 1)
    assert "is the corpus, which has a report.json of its own" in err
    assert (tmp_path / "in" / "report.json").read_text() == "{}"
