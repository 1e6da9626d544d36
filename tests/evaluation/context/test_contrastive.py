"""What only earlier segments decide: verdicts and margins by hand, with a model that knows and one that guesses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.evaluation.context import contrastive as module
from scaleformer.evaluation.context.contrastive import (
    ContextDocument,
    ContextReport,
    Outcome,
    Phenomenon,
    context_report,
    distance_range,
    judge,
)
from scaleformer.evaluation.context.examples import contrastive_documents, labelled_documents, read_contrastive
from scaleformer.system.errors import DataError
from scaleformer.translation.log_probabilities import score_documents
from scaleformer.translation.translations import DocumentHypothesis, Translation
from scaleformer.translation.translator import Translator
from tests.runs import make_run

EXAMPLE: dict[str, Any] = {
    "id": "one",
    "source_context": ["the cat sees", "a dog"],
    "source": "it runs",
    "target_context": ["die katze sieht", "ein hund"],
    "right": "sie rennt",
    "wrong": ["er rennt", "es rennt"],
    "distance": 2,
    "kind": "it",
}


@pytest.fixture(scope="module")
def translator(tmp_path_factory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("contrastive") / "run"), "cpu")


def score_of(report: ContextReport, kind: str = "all", distance: str = "all") -> Any:
    return next(s for s in report.scores if (s.kind, s.distance) == (kind, distance))


def document(**changes: Any) -> ContextDocument:
    whole = ContextDocument(
        "d",
        ["the cat sees", "a dog", "it runs"],
        ["die katze sieht", "ein hund", "sie rennt"],
        (Phenomenon(2, ("er rennt", "es rennt"), 2, "it"),),
    )
    return replace(whole, **changes)


@pytest.mark.parametrize(
    ("hypothesis", "verdict"),
    [
        ("Sie rennt schnell .", "right"),
        ("er rennt", "wrong"),
        ("es, es rennt", "wrong"),
        ("die katze rennt", "unclear"),
        ("er rennt, sie rennt", "unclear"),
        ("", "unclear"),
    ],
    ids=["right", "first wrong", "second wrong", "neither", "both", "nothing"],
)
def test_verdicts(hypothesis, verdict):
    assert judge(hypothesis, "sie rennt", ["er rennt", "es rennt"]) == verdict


def test_a_verdict_counts_repeated_words():
    right, wrong = "sie sieht sie", ["sie sieht es"]
    assert judge("sie sieht sie", right, wrong) == "right"
    assert judge("sie sieht es", right, wrong) == "wrong"


def test_a_wrong_translation_that_only_adds_words():
    assert judge("il arrive demain", "il arrive demain", ["il n'arrive pas demain"]) == "right"
    assert judge("il ne vient pas", "il vient", ["il ne vient pas"]) == "wrong"


def test_margins_of_the_last_segment(translator):
    report = context_report(translator, [document()], generative=False)
    sources = [list(document().source)] * 3
    scores = score_documents(
        translator, sources, [["die katze sieht", "ein hund", last] for last in ("sie rennt", "er rennt", "es rennt")]
    )
    right, *wrong = (score.segments[-1].log_probability for score in scores)
    assert report.outcomes[0].margin == pytest.approx(right - max(wrong), abs=1e-4)
    assert report.outcomes[0].verdict is None


def test_a_phenomenon_is_scored_with_the_given_context(translator, monkeypatch):
    seen: list[Any] = []
    real = score_documents

    def spy(translator, sources, targets, **options):
        seen.append((sources[0], targets[1]))
        return real(translator, sources, targets, **options)

    monkeypatch.setattr(module, "score_documents", spy)
    for context in (0, 1, 5, None):
        context_report(translator, [document()], generative=False, context=context)
    whole = ["the cat sees", "a dog", "it runs"], ["die katze sieht", "ein hund", "er rennt"]
    assert seen == [(whole[0][2:], whole[1][2:]), (whole[0][1:], whole[1][1:]), whole, whole]


class Copyist:
    """Writes the reference, except for one wrong word; counts the documents that it translates."""

    def __init__(self, translator: Translator, known: dict[tuple[str, ...], tuple[str, ...]]) -> None:
        self.decoding = translator.decoding
        self.known = known
        self.asked: list[tuple[str, ...]] = []
        self.mode = ""

    def translate_documents(self, request, listener):
        assert request.decoding.match_segments
        self.mode = request.mode
        self.asked += request.documents
        found = [DocumentHypothesis(self.known[tuple(d)], 0.0, 0.0, True) for d in request.documents]
        return [Translation((h,), len(d), 1) for h, d in zip(found, request.documents, strict=True)]


def test_documents_are_translated_once_and_judged(translator):
    phenomena = (Phenomenon(1, ("ein hase",), 1, "noun"), Phenomenon(2, ("er rennt", "es rennt"), 2, "it"))
    asked = document(phenomena=phenomena)
    written = ("die katze sieht", "ein hase", "sie rennt")
    copyist = Copyist(translator, {tuple(asked.source): written})
    report = context_report(copyist, [asked], contrastive=False)  # type: ignore[arg-type]
    assert [outcome.verdict for outcome in report.outcomes] == ["wrong", "right"]
    assert copyist.asked == [tuple(asked.source)]
    assert copyist.mode == "document"
    context_report(copyist, [asked], contrastive=False, mode="segment")  # type: ignore[arg-type]
    assert copyist.mode == "segment"
    cut = Copyist(translator, {tuple(asked.source): written[:2]})  # cut at the length limit
    assert [o.verdict for o in context_report(cut, [asked], contrastive=False).outcomes] == ["wrong", "unclear"]  # type: ignore[arg-type]


def outcome(kind: str, distance: int | None, margin: float, verdict: Any, wrong: int = 1) -> Outcome:
    return Outcome("d", Phenomenon(0, tuple(map(str, range(wrong))), distance, kind), margin, verdict)


def test_scores_by_kind_and_distance():
    report = ContextReport(
        (
            outcome("pronoun", 1, 0.5, "right", wrong=2),
            outcome("pronoun", 9, -0.5, "wrong", wrong=2),
            outcome("pronoun", 16, 0.5, "unclear", wrong=2),
            outcome("term", 1, 0.0, "right"),
        ),
        None,
    )
    everything = score_of(report)
    assert (everything.count, everything.contrastive, everything.generative) == (4, 0.5, 0.5)
    assert (everything.wrong, everything.unclear) == (0.25, 0.25)
    assert everything.chance == pytest.approx((1 + 1 / 2) / 4)
    assert score_of(report, "pronoun", "9-16").contrastive == 0.5
    assert score_of(report, "pronoun").chance == pytest.approx(1 / 3)
    assert score_of(report, "term", "1").contrastive == 0  # equally probable is not right
    assert [s.distance for s in report.scores if s.kind == "all"] == ["all", "1", "9-16"]
    low, high = everything.interval(0.5)  # Wilson, by hand: 0.5 -+ 1.96 sqrt(1/16 + 3.84/64) / (1 + 0.96)
    assert (low, high) == pytest.approx((0.1500, 0.8500), abs=1e-3)
    row = json.loads(json.dumps(report.to_dict()))["scores"][0]
    assert row["generative_interval"] == pytest.approx([low, high])


def test_distances_from_nine_on_are_grouped():
    assert [distance_range(d) for d in (None, 1, 8, 9, 16, 17, 32, 33)] == [
        "?", "1", "8", "9-16", "9-16", "17-32", "17-32", "33-64",
    ]  # fmt: skip


def test_labels_of_the_synthetic_corpus_are_read(translator):
    config = SyntheticConfig(segments=(6, 8))
    documents = labelled_documents(generate(config, "test", 5))
    assert documents
    assert all(p.distance and p.kind in ("pronoun", "term") for d in documents for p in d.phenomena)
    for asked in documents:  # the right word counts for the reference, a wrong one against it
        for phenomenon in asked.phenomena:
            right = asked.target[phenomenon.segment]
            assert judge(right, right, phenomenon.wrong) == "right"
            assert [judge(wrong, right, phenomenon.wrong) for wrong in phenomenon.wrong] == ["wrong"] * len(
                phenomenon.wrong
            )


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_examples_are_read_and_a_missing_context_is_translated(tmp_path, translator):
    bare = {k: v for k, v in EXAMPLE.items() if k not in ("target_context", "id", "distance")}
    examples = read_contrastive(write(tmp_path / "e.jsonl", EXAMPLE, bare))
    given, own = contrastive_documents(examples, translator)
    assert given.target == ("die katze sieht", "ein hund", "sie rennt")
    assert given.phenomena == (Phenomenon(2, ("er rennt", "es rennt"), 2, "it"),)
    assert own.id == f"{tmp_path / 'e.jsonl'}:2"
    assert (len(own.target), own.target[2], own.phenomena[0].distance) == (3, "sie rennt", None)
    report = context_report(translator, [given, own])
    assert {score.distance for score in report.scores} == {"all", "2", "?"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": ""}, "'source' is '', wanted a text"),
        ({"right": 3}, "'right' is 3, wanted a text"),
        ({"wrong": []}, "no 'wrong' translation"),
        ({"wrong": ["sie rennt"]}, "a wrong translation equals the right one"),
        ({"wrong": "es"}, "'wrong' is 'es', wanted a list of texts"),
        ({"target_context": ["a"]}, "2 segments of source_context, 1 of target_context"),
        ({"distance": "far"}, "'distance' is 'far', wanted a whole number"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_faults_of_a_file_are_reported_with_their_line(tmp_path, changes, message):
    path = write(tmp_path / "e.jsonl", EXAMPLE, {**EXAMPLE, **changes})
    with pytest.raises(DataError, match=rf"e\.jsonl:2: {message}"):
        read_contrastive(path)


def test_files_of_the_wrong_kind_are_reported(tmp_path):
    with pytest.raises(DataError, match="no examples"):
        read_contrastive(write(tmp_path / "empty.jsonl"))
    with pytest.raises(DataError, match=r"list\.jsonl:1: a JSON list"):
        read_contrastive(write(tmp_path / "list.jsonl", [1]))
    (tmp_path / "broken.jsonl").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"broken\.jsonl:1: malformed JSON"):
        read_contrastive(tmp_path / "broken.jsonl")


@pytest.mark.parametrize(
    ("documents", "options", "message"),
    [
        ([document(phenomena=())], {}, "no document has a labelled segment"),
        ([document(phenomena=(Phenomenon(3, ("x",)),))], {}, "segment 3 is labelled"),
        ([document(phenomena=(Phenomenon(2, ()),))], {}, "no wrong translation"),
        ([document(phenomena=(Phenomenon(2, ("sie rennt",)),))], {}, "equals the right one"),
        ([document()], {"context": -1}, "context=-1"),
        ([document()], {"contrastive": False, "generative": False}, "set one of them to true"),
        ([document()], {"mode": "twopass"}, "mode is 'twopass': it must be one of document, segment"),
    ],
    ids=["nothing", "outside", "no wrong", "same", "context", "neither", "mode"],
)
def test_wrong_phenomena_are_reported(translator, documents, options, message):
    with pytest.raises(ValueError, match=message):
        context_report(translator, documents, **options)
