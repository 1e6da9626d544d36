"""Scoring the output of any system against a reference: functions and command."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from scaleformer.evaluation.plain import read_plain, read_references, score_plain
from scaleformer.evaluation.saved_translations import TranslatedDocument, read_translations
from scaleformer.evaluation.scores import bleu_report
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document
from tests.commands.calls import error_line, run_command
from tests.runs import DOCUMENTS, make_run, write_corpus

REFERENCES = [Document(d["id"], tuple(d["source"]), tuple(d["target"])) for d in DOCUMENTS]
OUTPUTS = [["die katze sah", "sie rennt"], ["ein hund"], ["das haus", "ein baum", "eine katze"]]


@pytest.fixture
def score(monkeypatch, capsys):
    return partial(run_command, monkeypatch, capsys, "score")


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_text_without_boundaries_scores_as_its_segments_do():
    expected = bleu_report(
        [TranslatedDocument(d.id, (), d.target, h) for d, h in zip(REFERENCES, OUTPUTS, strict=True)]
    )
    whole = score_plain(REFERENCES, [" ".join(segments) for segments in OUTPUTS])
    assert [s.score for s in whole.report.scores] == [s.score for s in expected.scores]
    assert [d.hypothesis for d in whole.documents] == [tuple(output) for output in OUTPUTS]
    assert (whole.aligned, whole.report.count_mismatches) == (2, 2)  # the second document has one segment
    assert "cheapest edit" in whole.report.alignment
    by_index = score_plain(REFERENCES, OUTPUTS)
    assert by_index.aligned == 0
    assert [s.score for s in by_index.report.scores] == [s.score for s in expected.scores]


def test_beads_are_scored_as_one_segment():
    document = Document("d", ("a", "b", "c"), ("x y", "z"), beads=((2, 1), (1, 1)))
    found = score_plain([document], ["x y z"], ter=False)
    assert found.documents[0].hypothesis == ("x y", "z")
    assert found.documents[0].source == ("a b", "c")


def test_reading_lines_parts_and_records(tmp_path):
    text = [" ".join(segments) for segments in OUTPUTS]
    assert read_plain(str(write(tmp_path / "lines.txt", *text)), REFERENCES) == text
    parts = write(tmp_path / "parts.txt", *OUTPUTS[0], "", *OUTPUTS[1], "", *OUTPUTS[2])
    assert read_plain(str(parts), REFERENCES) == OUTPUTS
    segments = [line for output in OUTPUTS for line in output]
    assert read_plain(str(write(tmp_path / "segments.txt", *segments)), REFERENCES) == OUTPUTS
    assert score_plain(REFERENCES, read_plain(str(parts), REFERENCES)).aligned == 0
    records = [{"id": d.id, "hypothesis": h} for d, h in zip(REFERENCES, OUTPUTS, strict=True)]
    path = write(tmp_path / "a.jsonl", *map(json.dumps, records[::-1]))
    assert read_plain(str(path), REFERENCES) == OUTPUTS
    bare = write(tmp_path / "b.jsonl", *(json.dumps({"target": line}) for line in text))
    assert read_plain(str(bare), REFERENCES) == text


def test_faults_are_reported(tmp_path):
    def read(*lines: str, field: str = "auto") -> None:
        read_plain(str(write(tmp_path / "x", *lines)), REFERENCES, field)

    with pytest.raises(DataError, match="2 lines and 1 parts separated by blank lines, but the reference has 3"):
        read("a", "b")
    with pytest.raises(DataError, match="x:1: malformed JSON"):
        read("{")
    with pytest.raises(DataError, match="x:1: wanted an object with hypothesis or target, a text or a list of texts"):
        read('{"id": "a"}')
    with pytest.raises(DataError, match=r"no hypothesis for 2 of 3 documents of the reference: 'south/two', 'north/th"):
        read('{"id": "north/one", "hypothesis": "a"}')
    records = [json.dumps({"id": name, "hypothesis": "a"}) for name in ("north/one", "south/two", "north/three", "z")]
    with pytest.raises(DataError, match="1 documents are not in the reference: 'z'"):
        read(*records)
    with pytest.raises(DataError, match="2 documents, the reference has 3: give each an id"):
        read('{"target": "a"}', '{"target": "b"}')
    with pytest.raises(
        DataError, match="5 documents, the reference has 3: 'z' stands there twice: give each its own id"
    ):
        read(*records, records[-1])
    with pytest.raises(ValueError, match="field is 'n_best': it must be one of auto, hypothesis, target"):
        read('{"target": "a"}', field="n_best")
    with pytest.raises(DataError, match=r"empty\.jsonl: no documents"):
        read_references(write(tmp_path / "empty.jsonl"))


def test_the_command(score, tmp_path):
    reference = write_corpus(tmp_path / "corpus") / "test.jsonl"
    text = write(tmp_path / "other.txt", *(" ".join(segments) for segments in OUTPUTS))
    output = tmp_path / "scores.json"
    code, out, err = score(f"input={text}", f"reference={reference}", f"output={output}")
    assert code == 0, err
    for line in ("3 documents, 2 realigned", "d-chrF++", "omitted: 0.00%", "added: 0.00%"):
        assert line in out
    result = json.loads(output.read_text(encoding="utf-8"))
    assert (result["kind"], result["aligned"]) == ("plain", 2)
    assert set(result["signatures"]) == {"d-BLEU", "s-BLEU", "chrF++", "d-chrF++", "TER"}
    assert result["difference"]["reference_tokens"] == 13
    assert {"tenths", "lengths"} <= set(result["positions"])
    saved = read_translations(output.with_suffix(".jsonl"))
    assert [list(d.hypothesis) for d in saved] == OUTPUTS


def test_mismatched_inputs(score, tmp_path):
    reference = write_corpus(tmp_path / "corpus") / "test.jsonl"
    text = write(tmp_path / "other.txt", "a", "b", "c")
    run = make_run(tmp_path / "run")
    plain = [f"input={text}", f"reference={reference}"]
    for given, message in (
        ([*plain, f"output={tmp_path / 's.txt'}"], "it must be FILE.json; the aligned texts go to FILE.jsonl"),
        ([*plain, f"output={tmp_path / 's.json'}", f"checkpoint={run}"], "checkpoint: for log-probabilities, and ref"),
        (
            [*plain, f"output={tmp_path / 's.json'}", "field=source"],
            "field is 'source': it must be one of auto",
        ),
        ([f"input={text}", f"output={tmp_path / 's.json'}"], "checkpoint= is missing: give a model"),
        (
            [f"input={text}", f"output={tmp_path / 's.json'}", f"checkpoint={run}", "ter=false"],
            "ter: only for reference=FILE.jsonl",
        ),
    ):
        assert message in error_line(score(*given))


@pytest.mark.parametrize("name", ["system", "reference"])
def test_the_texts_replace_no_input(score, tmp_path, name):
    reference = write_corpus(tmp_path / "corpus") / "test.jsonl"
    given = {"system": write(tmp_path / "system.jsonl", reference.read_text()), "reference": reference}
    output = given[name].with_suffix(".json")
    before = given[name].read_bytes()
    line = error_line(score(f"input={given['system']}", f"reference={reference}", f"output={output}"))
    assert line.rstrip().endswith("give another name")
    assert "its texts would replace" in line
    assert given[name].read_bytes() == before
