"""`translate` with given and begun segments, a translation memory, and alternatives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.runs import DOCUMENTS


def write(path: Path, records: list[dict]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_json_lines_say_what_is_fixed_and_begun(run, translate, tmp_path, folder):
    (tmp_path / "in").mkdir()
    first, *others = DOCUMENTS
    source = write(tmp_path / "in" / "a.jsonl", [{**first, "fixed": {"0": "so"}, "begin": {"1": "und"}}, *others])
    output = tmp_path / "out" if folder else tmp_path / "a.jsonl"
    settings = (f"input={source.parent if folder else source}", f"output={output}", "source_language=en")
    code, _, err = translate(f"checkpoint={run}", *settings)
    assert code == 0, err
    found, *_ = read(output / "a.jsonl" if folder else output)
    assert found["hypothesis"][0] == "so"
    assert found["hypothesis"][1].startswith("und")


def test_a_missing_segment_is_reported_with_its_line(run, translate, tmp_path):
    source = write(tmp_path / "in.jsonl", [DOCUMENTS[1], {**DOCUMENTS[0], "fixed": {"2": "so"}}])
    code, _, err = translate(f"checkpoint={run}", f"input={source}", f"output={tmp_path / 'out.jsonl'}")
    assert code == 1
    assert err.splitlines()[-1].endswith("in.jsonl:2: fixed[2]: no such source segment: there are 2, numbered from 0")


def test_a_memory_fixes_segments_of_lines_and_of_files(run, translate, tmp_path):
    memory = tmp_path / "memory.tsv"
    memory.write_text("m\ta dog\tein Hund!\nm\tIt runs `x`\t`x` läuft\n", encoding="utf-8")
    source = write(tmp_path / "in.jsonl", [*DOCUMENTS[:2]])
    code, _, err = translate(
        f"checkpoint={run}", f"input={source}", f"output={tmp_path / 'out.jsonl'}", f"translation_memory={memory}"
    )
    assert code == 0, err
    assert [record["hypothesis"][0] == "ein Hund!" for record in read(tmp_path / "out.jsonl")] == [False, True]
    assert "memory: of 3 segments 1 fixed\n" in err
    (tmp_path / "in.md").write_text("# A tree\n\nIt runs `x`\n\nIt runs `y`\n\na dog\n")
    settings = (f"input={tmp_path / 'in.md'}", f"output={tmp_path / 'out.md'}", "split=paragraph")
    code, _, err = translate(f"checkpoint={run}", *settings, f"translation_memory={memory}")
    assert code == 0, err
    paragraphs = (tmp_path / "out.md").read_text(encoding="utf-8").split("\n\n")
    assert (paragraphs[1], paragraphs[3]) == ("`x` läuft", "ein Hund!\n")
    assert "memory: of 4 segments 2 fixed, 1 left out: their code, links or marks differ\n" in err


@pytest.mark.parametrize("pipe", [False, True], ids=["file", "stdout"])
def test_alternatives_are_in_json_lines(run, translate, tmp_path, pipe):
    source, output = write(tmp_path / "in.jsonl", DOCUMENTS), tmp_path / "out.jsonl"
    settings = (f"checkpoint={run}", f"input={source}", "decoding.max_length_offset=2", "alternatives=2")
    code, out, err = translate(*settings, f"output={'-' if pipe else output}")
    assert code == 0, err
    records = [json.loads(line) for line in out.splitlines()] if pipe else read(output)
    for record in records:
        assert len(record["alternatives"]) == len(record["source"])
        assert all(1 <= len(some) <= 2 for some in record["alternatives"])
        assert all(set(one) == {"text", "log_probability"} for some in record["alternatives"] for one in some)
    (tmp_path / "in.txt").write_text("a dog\n")
    for changes in ((f"input={tmp_path / 'in.txt'}", f"output={tmp_path / 'o.txt'}"), ("output=-", "mode=segment")):
        code, _, err = translate(*settings, *changes)
        assert code == 1
        assert "error: alternatives=2: " in err
