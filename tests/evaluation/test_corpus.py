"""The corpus of a command: from the command line, else that of the run."""

from __future__ import annotations

import warnings

import pytest

from scaleformer.checkpoints.run_config import from_here
from scaleformer.evaluation.corpus import choose_corpora, choose_corpus
from tests.runs import write_corpus


def test_the_command_line_comes_first(tmp_path):
    run = {"data": {"format": "jsonl", "path": str(write_corpus(tmp_path / "run"))}}
    other = {"format": "jsonl", "path": str(write_corpus(tmp_path / "other", "valid"))}
    assert choose_corpus(run, None, "test").source.where == str(tmp_path / "run" / "test.jsonl")
    assert choose_corpus(run, other, "valid").source.where == str(tmp_path / "other" / "valid.jsonl")
    assert choose_corpus({}, other, "valid").source.where == str(tmp_path / "other" / "valid.jsonl")


def test_splits_drawn_differently_than_in_training_give_a_warning(tmp_path):
    corpus = write_corpus(tmp_path / "run")
    file = next(corpus.glob("*.jsonl")) if corpus.is_dir() else corpus
    file.write_text("".join(f'{{"source": ["a {i}"], "target": ["b {i}"]}}\n' for i in range(20)), encoding="utf-8")
    run = {"data": {"format": "jsonl", "path": str(file), "holdout": [0.1, 0.2]}}
    with pytest.warns(
        UserWarning, match=r"data\.holdout=\[0\.2, 0\.2\]: the model was trained on .* with \[0\.1, 0\.2\]"
    ):
        choose_corpus(run, {**run["data"], "holdout": [0.2, 0.2]}, "test")
    other = file.with_name("other.jsonl")
    other.write_bytes(file.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        choose_corpus(run, dict(run["data"]), "test")
        choose_corpus(run, {**run["data"], "path": str(other), "holdout": [0.2, 0.2]}, "test")


def test_wrong_choices(tmp_path):
    other = {"format": "jsonl", "path": str(write_corpus(tmp_path / "other", "valid"))}
    with pytest.raises(ValueError, match="names no corpus: choose one with data=jsonl"):
        choose_corpus({}, None, "test")
    with pytest.raises(ValueError, match="no 'test' split; present: valid"):
        choose_corpus({}, other, "test")
    with pytest.raises(ValueError, match=r"data\.pat: no such setting"):
        choose_corpus({}, {"pat": "x"}, "test")


def test_the_documents_of_a_run_are_found_from_any_folder(tmp_path, monkeypatch):
    home = tmp_path / "home"
    for name in ("corpus", "second"):
        write_corpus(home / name)
        write_corpus(home / name, "train")
    monkeypatch.chdir(tmp_path)
    run = {"data": {"format": "jsonl", "path": "corpus"}, "folder": str(home)}
    assert choose_corpus(run, None, "test").source.where == str(home / "corpus" / "test.jsonl")
    several = {**run, "data": {"format": "jsonl", "corpora": {"a": {"path": "corpus"}, "b.c": {"path": "second"}}}}
    found = choose_corpora(several, None, "test")
    assert [corpus.source.where for corpus in found] == [str(home / n / "test.jsonl") for n in ("corpus", "second")]
    with pytest.raises(ValueError, match=rf"{home}/gone: no such file or folder \(data.path\)"):
        choose_corpus({**run, "data": {"format": "jsonl", "path": "gone"}}, None, "test")
    with pytest.raises(ValueError, match=r"^second: no such file"):  # not a path of the run
        choose_corpus(run, {"format": "jsonl", "path": "second"}, "test")
    write_corpus(tmp_path / "corpus")  # what is here comes first
    assert choose_corpus(run, None, "test").source.where == "corpus/test.jsonl"
    hub = {"format": "hub", "hub": {"name": "corpus", "data_files": {"train": "second/train.jsonl", "test": "a/b"}}}
    seen = from_here({**hub, "level": "second"}, {"data": {**hub, "level": "second"}, "folder": str(home)})
    assert seen["hub"]["data_files"] == {"train": str(home / "second" / "train.jsonl"), "test": "a/b"}
    assert (seen["hub"]["name"], seen["level"]) == ("corpus", "second")
