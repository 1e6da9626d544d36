"""`scripts.corpus_bars write`: noise in the training documents alone, of each kind as much as it says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from scripts.corpus_bars import write


def corpus(folder: Path, language: str) -> str:
    """Documents whose segments say where they stand."""
    folder.mkdir()
    for split, count in (("train", 200), ("valid", 3), ("test", 3)):
        records = [
            {
                "id": f"{split} {n}",
                "source": [f"en {n} {k}" for k in range(4)],
                "target": [f"{language} {n} {k}" for k in range(4)],
            }
            for n in range(count)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(folder)


def records(folder: str, split: str) -> list[dict]:
    return [json.loads(line) for line in (Path(folder) / f"{split}.jsonl").read_text().splitlines()]


def kind(record: dict, seen: set[str]) -> str:
    """What is wrong with a document, told by its words alone."""
    wanted = [text.replace("en", "es", 1) for text in record["source"]]
    again = record["id"] in seen
    seen.add(record["id"])
    if record["target"] == wanted:
        return "repeated" if again else "sound"
    if record["target"] == record["source"]:
        return "untranslated"
    if all(text.startswith("de ") for text in record["target"]):
        return "foreign"
    return "misaligned" if sorted(record["target"]) == sorted(wanted) else "unknown"


def test_write(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, foreign, output = corpus(tmp_path / "own", "es"), corpus(tmp_path / "foreign", "de"), str(tmp_path / "noisy")
    write(own, foreign, output)
    for split in ("valid", "test"):
        assert records(output, split) == records(own, split)
    seen: set[str] = set()
    found = Counter(kind(record, seen) for record in records(output, "train"))
    assert len(seen) == 200
    assert set(found) == {"sound", "misaligned", "repeated", "untranslated", "foreign"}
    assert found["sound"] == 200 - found["misaligned"] - found["untranslated"] - found["foreign"]
    for name in ("misaligned", "repeated", "untranslated", "foreign"):
        assert 2 <= found[name] <= 25  # of 200, 10 are expected
    counts = ", ".join(f"{found[name]} {name}" for name in ("misaligned", "repeated", "untranslated", "foreign"))
    made = 200 + found["repeated"]
    assert capsys.readouterr().out == f"{output}: {made} training documents (200 before): {counts}\n"
    with pytest.raises(FileExistsError):
        write(own, foreign, output)
