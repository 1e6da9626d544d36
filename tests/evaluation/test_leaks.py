"""Segments of the training split and others: told apart by hand, scored as by sacrebleu, found by the command."""

from __future__ import annotations

import json
from functools import partial

import pytest

from scaleformer.data.config import DataConfig
from scaleformer.data.sources import split_sources
from scaleformer.evaluation.corpus import training_split
from scaleformer.evaluation.leaks import seen_and_unseen
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.evaluation.scores import corpus_bleu, corpus_chrf
from tests.commands.calls import run_command
from tests.runs import DOCUMENTS, make_run, write_corpus

TRAINING = [
    {"id": "t", "source": ["Save  the file.", "A", "B", "not here"], "target": ["x", "y z", "v"]}
    | {"beads": [[1, 1], [2, 1], [1, 1]]},
]
TESTED = [
    TranslatedDocument(
        "one",
        ["Save the file.", "save the file.", "A B"],
        ["Guarde ya el archivo nuevo.", "Guarde el archivo.", "uno dos tres cuatro"],
        ["Guarde ya el archivo nuevo.", "Guarde un fichero.", "uno dos tres cinco"],
    ),
    TranslatedDocument("two", ["", "A"], ["", "otra cosa"], ["", "otra cosa"]),
]


def test_words_decide_white_space_does_not(tmp_path):
    training = split_sources(DataConfig("jsonl", path=str(write_corpus(tmp_path, "train", TRAINING))))["train"]
    found = seen_and_unseen(TESTED, training)
    seen, unseen = found["seen"], found["unseen"]
    assert found["training"] == str(tmp_path / "train.jsonl")
    assert (seen["segments"], seen["documents"]) == (2, 1)  # the first, and "A B", which is a bead
    assert (unseen["segments"], unseen["documents"]) == (3, 2)  # another case, no text, and half a bead
    lines = (TESTED[0].hypothesis[::2], TESTED[0].target[::2])
    assert seen["s_bleu"] == pytest.approx(corpus_bleu(*lines))
    assert seen["chrf"] == pytest.approx(corpus_chrf(*lines))
    other = [TESTED[0].hypothesis[1], "", "otra cosa"], [TESTED[0].target[1], "", "otra cosa"]
    assert unseen["s_bleu"] == pytest.approx(corpus_bleu(*other))
    nothing = seen_and_unseen(TESTED[1:], training)["seen"]
    assert (nothing["segments"], nothing["s_bleu"]) == (0, None)


def test_the_training_split_of_the_run_comes_first(tmp_path):
    settings = {}
    for name in ("own", "other"):
        settings[name] = {"format": "jsonl", "path": str(write_corpus(tmp_path / name, "train", TRAINING))}
    missing = {"data": {"format": "jsonl", "path": "gone"}}
    cases = [({"data": settings["own"]}, settings["other"], "own"), (missing, settings["other"], "other")]
    cases += [({}, settings["other"], "other"), ({"data": settings["own"]}, None, "own")]
    for run, given, wanted in cases:
        source = training_split(run, given)
        assert source is not None
        assert source.where == str(tmp_path / wanted / "train.jsonl")
    assert training_split(missing, None) is None
    public = {"data": {"level": "segment"}}  # of a folder of transformers
    assert training_split(public, None) is None
    assert training_split(public, settings["other"]).where == str(tmp_path / "other" / "train.jsonl")
    hub = {"data": {"format": "hub", "hub": {"name": "any"}}}
    assert training_split(hub, settings["other"]).where == str(tmp_path / "other" / "train.jsonl")
    assert training_split(hub, None).hub is not None
    assert training_split({"data": {**hub["data"], "streaming": True}}, None) is None


def test_the_command_reports_both(tmp_path, monkeypatch, capsys, caplog):
    corpus = write_corpus(tmp_path / "corpus")
    run = make_run(tmp_path / "run", {"data": {"format": "jsonl", "path": str(corpus)}})
    evaluate = partial(run_command, monkeypatch, capsys, "evaluate", f"checkpoint={run}", "ter=false")
    assert " of seen" not in evaluate()[1]
    read = partial((run / "results" / "bleu-test.json").read_text, encoding="utf-8")
    assert json.loads(read())["leaks"] is None
    write_corpus(corpus, "train", DOCUMENTS[:2])
    code, out, err = evaluate()
    assert code == 0, err
    assert "s-BLEU of seen" in out
    assert "3 segments not in the training split" in out
    leaks = json.loads(read())["leaks"]
    assert (leaks["seen"]["segments"], leaks["unseen"]["segments"]) == (3, 3)
    (corpus / "train.jsonl").write_text("broken\n", encoding="utf-8")
    assert evaluate()[0] == 0
    assert "are not told from others" in caplog.text
