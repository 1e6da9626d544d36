"""The command: the corpus of the run or a different one, whole documents or pieces, results next to the run."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.commands.calls import error_line, run_command
from tests.runs import make_run, write_corpus


@pytest.fixture
def corpus(tmp_path) -> Path:
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def run(tmp_path, corpus) -> Path:
    return make_run(tmp_path / "run", {"data": {"format": "jsonl", "path": str(corpus)}})


@pytest.fixture
def evaluate(monkeypatch, capsys):
    """The script in this process: exit code, stdout, stderr."""
    return partial(run_command, monkeypatch, capsys, "evaluate")


def test_the_corpus_of_the_run(run, evaluate):
    code, out, err = evaluate(f"checkpoint={run}")
    assert code == 0, err
    for text in (
        "d-BLEU",
        "s-BLEU",
        "chrF++",
        "TER",
        "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp",
        "d-BLEU of north",
    ):
        assert text in out
    result = json.loads((run / "results" / "bleu-test.json").read_text(encoding="utf-8"))
    assert result["documents"] == 3
    assert result["metrics"] == {"tokenize": "13a", "lowercase": False}
    assert result["corpus"]["where"].endswith("test.jsonl")
    assert result["decoding"]["strategy"] == "greedy"
    assert {p.name for p in (run / "results").iterdir()} == {
        "bleu-test.json",
        "bleu-test.jsonl",
        "bleu-test.hypotheses.txt",
        "bleu-test.references.txt",
    }
    assert "north/one" in (run / "samples.txt").read_text(encoding="utf-8")


def test_results_of_other_documents_or_checkpoints_are_moved(run, evaluate, caplog):
    results = run / "results"
    assert evaluate(f"checkpoint={run}")[0] == 0
    first = (results / "bleu-test.json").read_bytes()
    for quick in (1, 2):
        assert evaluate(f"checkpoint={run}", f"max_documents={quick}")[0] == 0
        assert json.loads((results / f"bleu-test-first-{quick}.json").read_bytes())["partial"] is True
    assert (results / "bleu-test.json").read_bytes() == first, "partial results have names of their own"
    assert evaluate(f"checkpoint={run}", "max_documents=3")[0] == 0
    second = (results / "bleu-test.json").read_bytes()
    assert json.loads(second)["partial"] is False, "these are all documents"
    assert not (results / "previous").exists(), "the same model, documents and settings"
    assert "previous" not in caplog.text
    for change in ("decoding=beam", "ter=false", "metrics.lowercase=true"):
        assert evaluate(f"checkpoint={run}", change)[0] == 0
    assert "previous-3" in caplog.text
    assert (results / "previous" / "bleu-test.json").read_bytes() == second
    settings = [json.loads((results / f"previous{n}" / "bleu-test.json").read_bytes()) for n in ("-2", "-3")]
    assert [found["decoding"]["strategy"] for found in settings] == ["beam", "greedy"]
    assert [len(list((results / f"previous{n}").iterdir())) for n in ("", "-2", "-3")] == [4, 4, 4]


def test_another_corpus_and_other_settings(run, evaluate, tmp_path):
    other = write_corpus(tmp_path / "other", "valid", [{"id": "x", "source": ["a b", "c"], "target": ["d", "e"]}])
    code, out, err = evaluate(
        f"checkpoint={run}", "data=jsonl", f"data.path={other}", "split=valid", "metrics=multi30k", "ter=false",
        "mode=segment", f"output={tmp_path / 'results of it'}", "decoding=beam", "decoding.max_length_ratio=0.5",
    )  # fmt: skip
    assert code == 0, err
    assert "TER" not in out
    result = json.loads((tmp_path / "results of it" / "bleu-other-valid.json").read_text(encoding="utf-8"))
    assert result["documents"] == 1
    assert "tok:none" in result["signatures"]["d-BLEU"]
    assert result["decoding"]["strategy"] == "beam"
    assert result["decoding"]["max_length_ratio"] == 0.5
    assert result["count_mismatches"] == 0
    assert not (run / "results").exists()
    assert (tmp_path / "results of it" / "samples-other-valid.txt").is_file()


def test_another_corpus_keeps_the_results_of_the_run(run, corpus, evaluate, tmp_path):
    assert evaluate(f"checkpoint={run}", "ter=false")[0] == 0
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for number in range(2):  # the second time other documents under the same name
        document = {"id": "x", "source": ["a b"], "target": [f"d {number}"]}
        other = write_corpus(tmp_path / "manuals", "test", [document])
        code, out, err = evaluate(f"checkpoint={run}", "data=jsonl", f"data.path={other}", "ter=false")
        assert code == 0, err
        assert "manuals-test: 1 document " in out
    assert {path: path.read_bytes() for path in before} == before
    result = json.loads((run / "results" / "bleu-manuals-test.json").read_text(encoding="utf-8"))
    assert (result["corpus"]["name"], result["corpus"]["split"]) == ("manuals", "test")
    assert {path.name for path in (run / "results" / "previous").iterdir()} == {
        f"bleu-manuals-test.{kind}" for kind in ("json", "jsonl", "hypotheses.txt", "references.txt")
    }
    assert (run / "samples-manuals-test.txt").is_file()
    copy = write_corpus(tmp_path / "copy")  # a copy of the run's own
    assert evaluate(f"checkpoint={run}", "data=jsonl", f"data.path={copy}", "ter=false")[0] == 0
    assert not list(run.rglob("*copy*"))


def test_another_split_keeps_the_samples_of_the_run(run, corpus, evaluate):
    assert evaluate(f"checkpoint={run}", "ter=false")[0] == 0
    samples = (run / "samples.txt").read_bytes()
    write_corpus(corpus, "valid", [{"id": "v", "source": ["a"], "target": ["d"]}])
    assert evaluate(f"checkpoint={run}", "ter=false", "split=valid")[0] == 0
    assert (run / "samples.txt").read_bytes() == samples
    assert "=== v" in (run / "samples-valid.txt").read_text(encoding="utf-8")


def test_the_extension_of_the_target_files_chooses_the_tokenizer(run, evaluate, tmp_path):
    folder = tmp_path / "zh"
    folder.mkdir()
    (folder / "test.en").write_text("a b\n", encoding="utf-8")
    (folder / "test.zh").write_text("我喜欢你们的书。\n", encoding="utf-8")
    data = ["data=text", f"data.path={folder}", "data.source_suffix=en", "data.target_suffix=zh"]
    for arguments, tokenize in (([], "zh"), (["metrics.tokenize=char"], "char")):
        code, out, err = evaluate(f"checkpoint={run}", *data, *arguments)
        assert code == 0, err
        assert out.count(f"|tok:{tokenize}|") == 5


def test_json_lines_need_a_target_language(run, evaluate, tmp_path):
    data = ["data=jsonl", f"data.path={write_corpus(tmp_path / 'other')}", "data.target_language=zh"]
    code, out, err = evaluate(f"checkpoint={run}", *data)
    assert code == 0, err
    assert out.count("|tok:zh|") == 5


def test_pieces_and_the_first_documents(run, evaluate):
    code, _, err = evaluate(f"checkpoint={run}", "max_tokens=12", "max_documents=2")
    assert code == 0, err
    result = json.loads((run / "results" / "bleu-test-first-2.json").read_text(encoding="utf-8"))
    assert (result["documents"], result["max_tokens"]) == (2, 12)


BAD = {
    "split": (["split=valid"], "'valid' split; present: test"),
    "no data": (["data=jsonl", "data.path=nowhere"], "nowhere: no such file or folder"),
    "no path": (["data=jsonl"], "data.path"),
    "metrics": (["metrics=best"], "metrics"),
    "tokenizer": (["metrics.tokenize=best"], "metrics.tokenize is 'best': it must be one of auto, 13a, "),
    "max_tokens": (["max_tokens=ten"], "max_tokens is 'ten': it must be an int of at least 3 or null"),
    "max_documents": (["max_documents=0"], "max_documents is 0: it must be an int of at least 1 or null"),
    "samples": (["samples=abc"], "samples is 'abc': it must be an int of at least 0"),
    "ter": (["ter=no idea"], "ter is 'no idea': it must be a bool"),
    "seed": (["seed=abc"], "seed is 'abc': it must be an int"),
    "data setting": (
        ["data=jsonl", "data.pat=x"],
        "data.pat: no such setting (did you mean data.path?); there are path",
    ),
    "data alone": (["data.path=x"], "data: the corpus is that of the run: for another one add data=jsonl"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_one_line(run, evaluate, name):
    changes, message = BAD[name]
    assert message in error_line(evaluate(f"checkpoint={run}", *changes))
    assert not (run / "results").exists()


def test_the_seeds_of_the_run_and_of_its_samples(tmp_path, corpus, evaluate):
    decoding = {"strategy": "sample", "max_length_ratio": 0.2, "max_length_offset": 3, "seed": 4}
    config = {"data": {"format": "jsonl", "path": str(corpus)}, "decoding": decoding, "seed": 3}
    run = make_run(tmp_path / "seeded", config)

    def result(*arguments: str) -> dict:
        code, _, err = evaluate(f"checkpoint={run}", "ter=false", *arguments)
        assert code == 0, err
        return json.loads((run / "results" / "bleu-test.json").read_text(encoding="utf-8"))

    for arguments, seed in (
        ([], 4),
        (["seed=7"], 7),
        (["decoding=sample", "seed=7"], 7),
        (["decoding=sample"], 1),
        (["seed=7", "decoding.seed=8"], 8),
    ):
        found = result(*arguments, "decoding.max_length_offset=3")
        assert (found["seed"], found["decoding"]["seed"]) == (3, seed)


def test_a_checkpoint_without_a_corpus_asks_for_one(evaluate, tmp_path):
    run = make_run(tmp_path / "bare")
    code, _, err = evaluate(f"checkpoint={run}")
    assert (code, err) == (1, "error: the checkpoint names no corpus: choose one with data=jsonl data.path=DIR\n")


def test_the_metrics_of_the_run_are_the_default(tmp_path, corpus, evaluate):
    config = {"data": {"format": "jsonl", "path": str(corpus)}, "metrics": {"tokenize": "none", "lowercase": False}}
    run = make_run(tmp_path / "tokenised", config)
    for arguments, tokenizer in (([], "tok:none"), (["metrics=default"], "tok:13a")):
        code, out, err = evaluate(f"checkpoint={run}", "ter=false", *arguments)
        assert code == 0, err
        assert tokenizer in out


def test_models_of_single_segments_translate_segment_by_segment(tmp_path, corpus, evaluate):
    data = {"format": "jsonl", "path": str(corpus), "level": "segment"}
    run = make_run(tmp_path / "sentences", {"data": data})
    for given, mode in (([], "segment"), (["mode=document"], "document"), (["max_tokens=20"], "document")):
        code, _, err = evaluate(f"checkpoint={run}", "ter=false", *given)
        assert code == 0, err
        assert json.loads((run / "results" / "bleu-test.json").read_text(encoding="utf-8"))["mode"] == mode
