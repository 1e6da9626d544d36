"""`translate shard=`: the parts, joined, are what one call writes."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from scaleformer.translation.files.record import Record
from tests.runs import DOCUMENTS

MANY = [{**document, "id": f"{n}-{document['id']}"} for n in range(3) for document in DOCUMENTS]


@pytest.fixture
def translate(translate, run):
    return partial(translate, f"checkpoint={run}", "threads=1")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_documents(translate, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(document) + "\n" for document in MANY), encoding="utf-8")
    assert translate(f"input={source}", f"output={tmp_path / 'whole.jsonl'}")[0] == 0
    given = f"input={source}", f"output={tmp_path / 'out.jsonl'}"
    for number in (2, 1, 4):
        assert translate(*given, f"shard={number}/4")[0] == 0
    assert [one["id"] for one in lines(tmp_path / "out.2of4.jsonl")] == [d["id"] for d in MANY[1::4]]
    code, _, err = translate(*given, "shard=merge/4")
    assert code != 0
    assert f"{tmp_path / 'out.3of4.jsonl'}: missing: shard=3/4 makes it" in err
    assert not (tmp_path / "out.jsonl").exists()
    assert translate(*given, "shard=3/4")[0] == 0
    code, _, err = translate(*given, "shard=merge/4", f"review={tmp_path / 'review.html'}")
    assert code != 0
    assert "shard=merge/4: translates nothing to review" in err
    code, _, err = translate(*given, "shard=merge/4")
    assert code == 0
    assert f"{len(MANY)} documents of 4 parts" in err
    found, whole = lines(tmp_path / "out.jsonl"), lines(tmp_path / "whole.jsonl")
    assert [(one["id"], one["hypothesis"]) for one in found] == [(one["id"], one["hypothesis"]) for one in whole]


def test_a_part_that_is_cut_or_of_another_input_is_refused(translate, tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(document) + "\n" for document in MANY), encoding="utf-8")
    given = f"input={source}", f"output={tmp_path / 'out.jsonl'}"
    for number in (1, 2):
        assert translate(*given, f"shard={number}/2")[0] == 0
    part = tmp_path / "out.2of2.jsonl"
    content = part.read_text(encoding="utf-8").splitlines(keepends=True)
    for wrong, said in (
        (content[:-1], f"the end, wanted document '{MANY[1::2][-1]['id']}'"),
        ([content[1], content[0], *content[2:]], f"wanted document '{MANY[1]['id']}'"),
        ([*content, content[0]], "more documents than the input has"),
    ):
        part.write_text("".join(wrong), encoding="utf-8")
        code, _, err = translate(*given, "shard=merge/2")
        assert code != 0
        assert said in err
        assert not (tmp_path / "out.jsonl").exists()


def test_files(translate, tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(5):
        (tmp_path / "in" / f"{number}.txt").write_text(f"the cat sees {number}\nit runs\n", encoding="utf-8")
    whole = f"input={tmp_path / 'in'}", f"output={tmp_path / 'whole'}"
    assert translate(*whole)[0] == 0
    given = f"input={tmp_path / 'in'}", f"output={tmp_path / 'out'}"
    assert translate(*given, "shard=1/2")[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["0.txt", "2.txt", "4.txt"]
    code, _, err = translate(*given, "shard=merge/2")
    assert code != 0
    assert f"2 of 5 translations are missing, first {tmp_path / 'out' / '1.txt'} of shard=2/2" in err
    assert translate(*given, "shard=2/2")[0] == 0
    assert "no record" not in translate(*given, "shard=merge/2")[2]
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out", "out.record"]
    code, _, err = translate(*given, "shard=merge/3")
    assert code == 0
    assert (
        f"3 of 3 parts have no record, first {tmp_path / 'out.1of3.record'}: merged before, or made by another" in err
    )
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert {Path(n).name for n in Record.read(str(tmp_path / "out")).files} == {f"{n}.txt" for n in range(5)}
    code, _, err = translate(*given, "update=true")
    assert code == 0
    assert "of 10 segments 0 edited, 0 changed, 10 stay" in err


@pytest.mark.parametrize(
    ("shard", "said"),
    [
        ("0/4", "shard is '0/4': it must be a part of all, from 1/N to N/N, or merge/N"),
        ("5/4", "shard is '5/4'"),
        ("x", "shard is 'x'"),
        ("1/2", "one file is not divided: give a folder or JSON Lines"),
        ("1/2 align=links", "align=links: with shard=, JSON Lines hold the alignments: set align=true"),
    ],
)
def test_what_is_no_part(translate, tmp_path, shard, said):
    (tmp_path / "in.md").write_text("The cat.\n", encoding="utf-8")
    code, _, err = translate(f"input={tmp_path / 'in.md'}", f"output={tmp_path / 'out.md'}", *f"shard={shard}".split())
    assert code != 0
    assert said in err
