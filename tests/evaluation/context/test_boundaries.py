"""Merged segments on one side: losses against those of each document alone, the command, and errors."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scaleformer.data.batching import Example, collate
from scaleformer.evaluation.context.boundaries import boundary_losses, boundary_place, boundary_translations
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.scores import corpus_bleu
from scaleformer.text.documents import Document, one_line
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import EOS, SEP, SEP0, SEP2
from tests.commands.calls import error_line, run_command
from tests.runs import make_run, write_corpus

LONG = Document("long", [f"a cat {n}" for n in range(6)], [f"eine katze {n}" for n in range(6)])
SHORT = Document("short", ["a", "the dog runs", "", "it sees"], ["ein", "hund", "rennt", "sie sieht"])
RECALL = {"name": "segment_recall", "near": 1}


@pytest.fixture(scope="module")
def translator(tmp_path_factory) -> Translator:
    folder = make_run(tmp_path_factory.mktemp("boundaries") / "run", attention=RECALL)
    return Translator.load(folder, "cpu")


@pytest.mark.parametrize(("segments", "place"), [(3, 0), (4, 0), (6, 1), (9, 2), (48, 15)])
def test_the_last_segment_of_the_first_third_is_merged(segments, place):
    assert boundary_place(segments) == place


def segment_losses(translator: Translator, document: Document, lacking: str) -> list[float]:
    """Loss of every target token after the two merged segments, computed alone and without the `</s>`."""
    place = boundary_place(len(document.source))
    tokens = {}
    for name in ("source", "target"):
        tokens[name] = []
        for number, text in enumerate(getattr(document, name)):
            tokens[name] += translator.target_tokenizer.encode(text)  # one tokenizer for both
            if (name, number) == (lacking, place):
                continue
            ends = {("source", place): SEP0, ("target", place + 1): SEP2} if name == "target" else {}
            tokens[name].append(ends.get((lacking, number), SEP))
        tokens[name].append(EOS)
    batch = collate([Example("", np.array(tokens["source"]), np.array(tokens["target"]))])
    with torch.no_grad():
        scores = translator.model.logits(translator.model(batch)[0]).double().log_softmax(1)
    later = sum(len(translator.target_tokenizer.encode(text)) + 1 for text in document.target[place + 2 :])
    losses = [-float(scores[at, token]) for at, token in enumerate(tokens["target"])]
    return losses[-later - 1 : -1]


def test_losses_of_the_tokens_after_merged_segments(translator):
    losses = {loss.distance: loss for loss in boundary_losses(translator, [LONG, SHORT])}
    assert list(losses) == ["1", "2", "3-4", "all"]
    for lacking in ("whole", "source", "target"):
        of_long, of_short = (segment_losses(translator, d, lacking) for d in (LONG, SHORT))
        assert len(of_long) + len(of_short) == losses["all"].tokens
        assert getattr(losses["all"], lacking) == pytest.approx(np.mean(of_long + of_short), abs=1e-5)
        last = len(translator.target_tokenizer.encode(LONG.target[-1])) + 1  # three after: long alone
        assert losses["3-4"].tokens == last
        assert getattr(losses["3-4"], lacking) == pytest.approx(np.mean(of_long[-last:]), abs=1e-5)
    assert losses["all"].target != losses["all"].whole != losses["all"].source


def test_translations_of_joined_sources(translator):
    said: list[str] = []

    def bar(what):
        said.append(what)
        return lambda share, tokens: None

    found = boundary_translations(translator, [LONG, SHORT], [[1], [0]], translator.decoding, Metrics(), bar)
    sources = [[*d.source[:place], " ".join(d.source[place : place + 2]), *d.source[place + 2 :]] for d, place in
               ((LONG, 1), (SHORT, 0))]  # fmt: skip
    assert [len(source) for source in sources] == [5, 3]
    for score, texts in ((found.whole, [LONG.source, SHORT.source]), (found.source, sources)):
        lines = [one_line(hypothesis) for hypothesis in translator.translate(texts)]
        assert score.score == pytest.approx(corpus_bleu(lines, [one_line(d.target) for d in (LONG, SHORT)]))
    counts = [len(h) - len(s) for h, s in zip(translator.translate(sources), sources, strict=True)]
    assert (found.more, found.fewer) == (sum(c > 0 for c in counts), sum(c < 0 for c in counts))
    assert said == ["translating, whole", "translating, joined"]


@pytest.mark.parametrize(
    ("documents", "message"),
    [([], "no document has 3 segments"), ([SimpleNamespace(id="x", source=["a"] * 2)], "document 'x' has 2")],
)
def test_too_short(translator, documents, message):
    with pytest.raises(ValueError, match=message):
        boundary_losses(translator, documents)
    with pytest.raises(ValueError, match=message):
        boundary_translations(translator, documents, [], translator.decoding, Metrics())


def test_the_command(tmp_path, monkeypatch, capsys):
    corpus = write_corpus(tmp_path / "corpus")
    run = make_run(tmp_path / "run", {"data": {"format": "jsonl", "path": str(corpus)}})
    command = partial(run_command, monkeypatch, capsys, "boundaries", f"checkpoint={run}")
    code, out, err = command()
    assert code == 0, err
    assert "target lacks one" in out
    assert "2 documents with fewer than 3 segments left out" in out
    result = json.loads((run / "results" / "boundaries-test.json").read_text(encoding="utf-8"))
    assert (result["documents"], result["left_out"]) == (1, 2)
    assert [loss["distance"] for loss in result["losses"]] == ["1", "all"]
    assert result["translation"]["whole"]["signature"] == result["signatures"]["d-BLEU"]

    code, out, err = command("segments=3", "decode=false", "documents=1")
    assert code == 0, err
    assert "d-BLEU" not in out
    result = json.loads((run / "results" / "boundaries-test-3.json").read_text(encoding="utf-8"))
    assert (result["documents"], result["left_out"], result["translation"]) == (1, 0, None)

    assert "segments" in error_line(command("segments=2"))
