"""The commands that score, test context, show attention and draw."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.text.documents import Document
from tests.commands.calls import error_line, run_command
from tests.results import bleu, context, make_results
from tests.runs import make_run

EXAMPLE = {
    "source_context": ["the cat sees"],
    "source": "it runs",
    "target_context": ["die katze sieht"],
    "right": "sie rennt",
    "wrong": ["er rennt", "es rennt"],
    "distance": 1,
}
N_BEST = [
    {"segments": ["ein hund"], "log_probability": -1.0, "score": -2.0, "finished": True},
    {"segments": ["ein ein hund"], "log_probability": -1.0, "score": -2.5, "finished": True},
]


@pytest.fixture
def command(monkeypatch, capsys):
    return partial(run_command, monkeypatch, capsys)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    synthetic = {"test": 2, "segments": [4, 4]}
    return make_run(
        tmp_path_factory.mktemp("commands") / "run", {"data": {"format": "synthetic", "synthetic": synthetic}}
    )


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_context_of_the_run_itself(run, command, tmp_path):
    code, out, err = command("context", f"checkpoint={run}", f"output={tmp_path}", "documents=2")
    assert code == 0, err
    assert "contrastive" in out
    result = json.loads((tmp_path / "context-test.json").read_text(encoding="utf-8"))
    documents = list(generate(SyntheticConfig(segments=(4, 4)), "test", 2))
    assert result["scores"][0]["count"] == sum(len(d.labels) for d in documents) > 0
    assert result["checkpoint"]["sha256"]
    assert result["decoding"]["match_segments"] is True
    assert len(read(tmp_path / "context-test.jsonl")) == result["scores"][0]["count"]
    longer = ["segments=[12,12]", "max_distance=10", "context=3", "generative=false"]
    whole = (tmp_path / "context-test.json").read_bytes()
    assert command("context", f"checkpoint={run}", f"output={tmp_path}", "documents=2", *longer)[0] == 0
    assert (tmp_path / "context-test.json").read_bytes() == whole
    result = json.loads((tmp_path / "context-test-context3.json").read_text(encoding="utf-8"))
    assert result["corpus"]["synthetic"]["max_distance"] == 10
    assert (result["context"], result["scores"][0]["generative"]) == (3, None)
    by_segment = ["mode=segment", "contrastive=false"]
    assert command("context", f"checkpoint={run}", f"output={tmp_path}", "documents=2", *by_segment)[0] == 0
    result = json.loads((tmp_path / "context-test-segment.json").read_text(encoding="utf-8"))
    assert (result["mode"], result["scores"][0]["contrastive"]) == ("segment", None)


def test_context_of_examples(run, command, tmp_path):
    examples = write(tmp_path / "pronouns.jsonl", EXAMPLE)
    code, _, err = command("context", f"checkpoint={run}", f"input={examples}", f"output={tmp_path}")
    assert code == 0, err
    result = json.loads((tmp_path / "context-pronouns.json").read_text(encoding="utf-8"))
    assert [s["distance"] for s in result["scores"]] == ["all", "1"]
    code, _, err = command("context", f"checkpoint={run}", f"input={examples}", "documents=1")
    assert code != 0
    assert "documents: only for the synthetic corpus" in err


def test_brackets_in_kinds_are_shown_verbatim(run, command, tmp_path):
    kinds = ("[bold]it", "[/x]")
    examples = write(tmp_path / "kinds.jsonl", *({**EXAMPLE, "kind": kind} for kind in kinds))
    arguments = (f"checkpoint={run}", f"input={examples}", f"output={tmp_path}", "generative=false")
    code, out, err = command("context", *arguments)
    assert code == 0, err
    assert all(f" {kind} " in out for kind in kinds)


def test_a_corpus_without_labels_is_refused(command, tmp_path):
    run = make_run(tmp_path / "run", {"data": {"format": "jsonl", "path": "x"}})
    code, _, err = command("context", f"checkpoint={run}")
    assert (code, err.count("\n")) == (1, 1)
    assert "the corpus of the run has no labels" in err


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("documents=abc", "documents is 'abc': it must be an int of at least 1"),
        ("context=abc", "context is 'abc': it must be an int of at least 0 or null"),
        ("segments=5", "segments is 5: it must be [int, int] or null"),
        ("max_distance=abc", "max_distance is 'abc': it must be an int of at least 1"),
        ("generative=perhaps", "generative is 'perhaps': it must be a bool"),
    ],
)
def test_errors_of_context_are_one_line(run, command, tmp_path, setting, message):
    found = error_line(command("context", f"checkpoint={run}", f"output={tmp_path / 'out'}", setting))
    assert message in found
    assert not (tmp_path / "out").exists()


def test_scores_of_translations(run, command, tmp_path):
    record = {"id": "d", "source": ["a dog"], "target": ["ein hund"], "hypothesis": ["ein hund", "ein haus"]}
    source, output = write(tmp_path / "in.jsonl", record), tmp_path / "out.jsonl"
    code, out, err = command("score", f"checkpoint={run}", f"input={source}", f"output={output}")
    assert code == 0, err
    assert out == ""
    assert "1 translation (hypothesis)" in err
    (scored,) = read(output)
    assert scored["hypothesis"] == record["hypothesis"]
    parts = scored["segment_scores"]
    assert scored["log_probability"] == pytest.approx(sum(p["log_probability"] for p in parts) + scored["end"])
    assert scored["tokens"] == sum(p["tokens"] for p in parts) + 1
    assert scored["score"] == pytest.approx(scored["log_probability"] / scored["tokens"])
    assert command("score", f"checkpoint={run}", f"input={source}", f"output={output}", "field=target")[0] == 0
    assert len(read(output)[0]["segment_scores"]) == 1


def test_lists_are_reranked(run, command, tmp_path):
    source, output = write(tmp_path / "in.jsonl", {"source": ["a dog"], "n_best": N_BEST[::-1]}), tmp_path / "out.jsonl"
    arguments = (f"checkpoint={run}", f"input={source}", f"output={output}")
    code, _, err = command("score", *arguments, "length_penalty=0")
    assert code == 0, err
    assert "the best hypothesis changed in 1 of 1 documents" in err
    (ranked,) = read(output)
    assert ranked["hypothesis"] == ["ein hund"]
    assert [h["old_score"] for h in ranked["n_best"]] == [-2.0, -2.5]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"source": "a"}, "wanted an object with 'source'"),
        ({"source": ["a"]}, "nothing to score: wanted a field n_best, hypothesis, target"),
        ({"source": ["a"], "target": "b"}, "'target' is 'b', wanted a list of texts"),
        ({"source": ["a"], "n_best": [1]}, "'n_best' is [1], wanted a list of objects with 'segments'"),
        ({"source": ["a"], "n_best": [{"segments": ["b"], "score": None}]}, "in.jsonl:1: 'n_best' is "),
        ({"source": ["a"], "n_best": []}, "in.jsonl:1: 'n_best' is [], wanted a list of objects"),
    ],
    ids=["source", "nothing", "text", "n_best", "no score", "empty"],
)
def test_records_that_cannot_be_scored_are_reported(run, command, tmp_path, record, message):
    source = write(tmp_path / "in.jsonl", record)
    code, _, err = command("score", f"checkpoint={run}", f"input={source}", f"output={tmp_path / 'out'}")
    assert code == 1
    assert message in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("batch_tokens=abc", "batch_tokens is 'abc': it must be an int of at least 1 or null"),
        ("length_penalty=abc", "length_penalty is 'abc': it must be a float from 0 to 10 or null"),
        ("length_penalty=20", "length_penalty is 20: it must be a float from 0 to 10 or null"),
        ("old_weight=0.5", "old_weight=0.5: of scores in n_best, and target is read: leave it out"),
        ("old_weight=abc", "old_weight is 'abc': it must be a float"),
    ],
)
def test_errors_of_score_are_one_line(run, command, tmp_path, setting, message):
    source = write(tmp_path / "in.jsonl", {"source": ["a"], "target": ["b"]})
    found = command("score", f"checkpoint={run}", f"input={source}", f"output={tmp_path / 'out'}", setting)
    assert message in error_line(found)
    assert not (tmp_path / "out").exists()


def test_attention_of_a_document(run, command, tmp_path):
    path = tmp_path / "documents.jsonl"
    path.write_text(Document("d", ("a", "cat", "runs"), ("ein", "hund", "rennt")).to_json() + "\n", encoding="utf-8")
    where = (f"checkpoint={run}", f"output={tmp_path}")
    code, _, err = command("attention-maps", *where, f"input={path}", "first=1", "segments=2", "name=x")
    assert code == 0, err
    record = json.loads((tmp_path / "attention-x.json").read_text(encoding="utf-8"))
    assert record["document"] == "d[1:3]"
    assert record["target_pieces"].count("<sep>") == 2
    assert (tmp_path / "attention-x-mean.png").is_file()
    code, _, err = command("attention-maps", *where, f"input={path}", "first=2", "name=x")
    assert code == 0, err
    assert json.loads((tmp_path / "attention-x.json").read_text(encoding="utf-8"))["document"] == "d[2:3]"
    for wrong, message in (
        (["text=a", f"input={path}"], "wanted one text to look at"),
        ([f"input={path}", "document=1"], "document=1: "),
        ([f"input={path}", "document=abc"], "document is 'abc': it must be an int"),
        ([f"input={path}", "segments=9"], "has 3 segments"),
    ):
        code, _, err = command("attention-maps", *where, *wrong)
        assert (code, err.count("\n")) == (1, 1)
        assert message in err


def test_the_page_of_a_run(command, tmp_path):
    run = make_results(tmp_path / "run", "bleu-test", bleu())
    make_results(run, "context-test", context())
    code, out, err = command("plot", f"run={run}")
    assert code == 0, err
    assert {Path(line).name for line in out.splitlines()} == {
        "learning_curves.png", "context-test.png", "report.html",
    }  # fmt: skip
    code, _, err = command("plot")
    assert (code, err) == (1, "error: no run to draw: give run=RUN or runs=[RUN,RUN]\n")
    assert "samples is 'abc': it must be an int" in error_line(command("plot", f"run={run}", "samples=abc"))
    code, _, err = command("plot", f"runs={run}", f"output={tmp_path / 'one'}")
    assert code == 0, err
    assert (tmp_path / "one" / "report.html").is_file()
