"""Tables, samples and the files that an evaluation leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.evaluate import evaluate_translator, print_report
from scaleformer.evaluation.samples import format_samples
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.evaluation.scores import bleu_report
from scaleformer.evaluation.translation_run import results_folder
from scaleformer.text.documents import Document
from scaleformer.translation.request import Request
from scaleformer.translation.translator import Translator
from tests.runs import DOCUMENTS, make_run


def test_the_table_has_every_score_and_signature(capsys):
    documents = [
        TranslatedDocument("a/1", (), ["one two three four"], ["one two three five"]),
        TranslatedDocument("b/1", (), ["one", "two"], ["one"], finished=False),
    ]
    report = bleu_report(documents)
    print_report(report, "title")
    text = capsys.readouterr().out
    for score in report.scores:
        assert f"{score.score:.2f}" in text
        assert f"{score.metric}: {score.signature}" in text
    assert "d-BLEU of a" in text
    assert "d-BLEU of b" in text
    assert "segment count differs from the reference in 1 of 2 documents (50.0%)" in text
    assert "cut at the length limit: 1 of 2 documents: b/1" in text


def test_brackets_in_ids_are_shown_verbatim(capsys):
    documents = [TranslatedDocument(id, (), ["one two"], ["one two"]) for id in ("[red]a/1", "[/b]/1", ":x:/1")]
    print_report(bleu_report(documents), "[/]: 3 documents")
    text = capsys.readouterr().out
    assert text.startswith("[/]: 3 documents")
    for name in ("[red]a", "[", ":x:"):
        assert f"d-BLEU of {name} " in text


def test_samples_stand_side_by_side():
    text = format_samples(
        [
            TranslatedDocument("x", ["s1", "s2", "s3"], ["r1", "r2", "r3"], ["h1", "h2", "h3"]),
            TranslatedDocument("y", ["s1", "s2"], ["one word", "other text"], ["other text"], finished=False),
        ],
        max_segments=2,
    )
    assert text == (
        "=== x (3 segments, 3 in the hypothesis)\n"
        "source      s1\nreference   r1\nhypothesis  h1\n\n"
        "source      s2\nreference   r2\nhypothesis  h2\n\n"
        "(1 more segment)\n\n"
        "=== y (2 segments, 1 in the hypothesis, cut at the length limit)\n"
        "source      s1\nreference   one word\nhypothesis\n\n"
        "source      s2\nreference   other text\nhypothesis  other text\n"
    )


@pytest.mark.parametrize("mode", ["document", "segment"])
def test_an_evaluation_saves_the_inputs_of_its_scores(mode, tmp_path, capsys):
    run = make_run(tmp_path / "run")
    translator = Translator.load(run, "cpu")
    documents = [Document(d["id"], tuple(d["source"]), tuple(d["target"])) for d in DOCUMENTS]
    decoding = DecodingConfig(strategy="greedy", max_length_ratio=0.2, max_length_offset=3)
    folder = results_folder(translator.path)
    assert folder == run / "results"
    sources, names = [document.source for document in documents], [document.id for document in documents]
    request = Request(sources, decoding, names, mode)
    evaluation = evaluate_translator(translator, documents, request, folder, samples=2)
    result = json.loads((folder / "bleu-test.json").read_text(encoding="utf-8"))
    assert result["checkpoint"]["sha256"] == translator.sha256
    assert result["decoding"]["strategy"] == "greedy"
    assert result["mode"] == mode
    assert set(result["signatures"]) == {"d-BLEU", "s-BLEU", "chrF++", "d-chrF++", "TER"}
    assert result["scores"][0]["score"] == evaluation.report.score("d-BLEU").score
    assert set(result["parts"]) == {"north", "south"}
    assert len((folder / "bleu-test.hypotheses.txt").read_text(encoding="utf-8").splitlines()) == 3
    assert (folder / "bleu-test.references.txt").read_text() == (
        "die katze sieht sie rennt\nein hund\nein haus ein baum eine katze\n"
    )
    records = [json.loads(line) for line in (folder / "bleu-test.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [r["id"] for r in records] == [d.id for d in documents]
    assert [r["hypothesis"] for r in records] == [list(d.hypothesis) for d in evaluation.documents]
    samples = (run / "samples.txt").read_text(encoding="utf-8")
    assert samples.count("===") == 2
    shown = capsys.readouterr().out
    assert "d-BLEU" in shown
    assert "=== north/one" in shown


def test_nothing_is_translated_without_an_output(tmp_path, monkeypatch):
    monkeypatch.setattr("scaleformer.evaluation.evaluate.resumable_translations", None)
    (tmp_path / "file").write_text("kept")
    translator = Translator.load(make_run(tmp_path / "run"), "cpu")
    with pytest.raises(FileExistsError, match="file"):
        evaluate_translator(
            translator, [Document("a", ["x"], ["y"])], Request([["x"]], DecodingConfig()), tmp_path / "file"
        )


@pytest.mark.parametrize(
    ("target", "what"), [([" "], "the references are empty"), ([], "document 'a' has no reference")]
)
def test_nothing_is_translated_without_references(tmp_path, monkeypatch, target, what):
    monkeypatch.setattr("scaleformer.evaluation.evaluate.resumable_translations", None)
    translator = Translator.load(make_run(tmp_path / "run"), "cpu")
    with pytest.raises(ValueError, match=what):
        evaluate_translator(translator, [Document("a", ["x"], target)], Request([["x"]], DecodingConfig()), tmp_path)


def test_results_folders(tmp_path):
    (tmp_path / "exported").mkdir()
    assert results_folder(tmp_path / "exported") == tmp_path / "exported" / "results"
    assert results_folder(tmp_path / "run" / "checkpoints" / "last.ckpt") == tmp_path / "run" / "results"
    assert results_folder(tmp_path / "copied.ckpt") == tmp_path / "results"
    assert results_folder(tmp_path / "models--people--small" / "snapshots" / "ab12") == Path("results/people/small")
