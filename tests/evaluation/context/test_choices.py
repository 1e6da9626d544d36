"""Words that other sentences decide: classes, swaps, distances and scores counted by hand."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from scaleformer.evaluation.context import contrastive
from scaleformer.evaluation.context.choice_scores import (
    count_right,
    find_uses,
    score_choices,
    score_classes,
    with_margins,
)
from scaleformer.evaluation.context.choices import SHIPPED, Choice, When, read_choices
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.system.errors import DataError
from scaleformer.translation.log_probabilities import score_documents
from scaleformer.translation.translator import Translator
from tests.commands.calls import error_line, run_command
from tests.runs import DOCUMENTS, make_run, write_corpus

YOU = Choice(
    "you",
    When(("you", "your"), ("thou",)),
    {"singular": ("tú", "te", "contigo"), "plural": ("vosotros", "os")},
    {"te": "os", "os": "te", "contigo": "con vosotros", "con vosotros": "contigo"},
)
SOURCE = ("You come.", "He sees you.", "It rains.", "Your turn", "you and thou", "you", "you", "With YOU.")
TARGET = ("Tú vienes.", "Te ve.", "Os llueve.", "Os toca.", "te", "sin nadie", "tú, vosotros", "Con vosotros.")
HYPOTHESIS = ("Tú vienes.", "Os ve.", "Llueve.", "Os toca", "os", "os", "te", "Contigo, vosotros.")


def document(*hypothesis: str) -> TranslatedDocument:
    return TranslatedDocument("d", SOURCE, TARGET, hypothesis)


def test_words_and_phrases_as_whole_words():
    assert [YOU.competes(text) for text in ("YOU!", "youth", "you’re", "thou and you")] == [True, False, True, False]
    assert YOU.used("Contigo o sin ti, téos") == ("singular",)
    assert YOU.used("os digo, tú") == ("singular", "plural")


@pytest.mark.parametrize(
    ("target", "swapped"),
    [
        ("Te ve, ¡te!", "Os ve, ¡os!"),
        ("va contigo", "va con vosotros"),
        ("Con vosotros va", "Contigo va"),
        ("os ve con vosotros", "te ve contigo"),
        ("os ve a vosotros", None),
        ("tú vienes", None),
        ("nadie", None),
    ],
    ids=["case", "phrase", "back", "two", "one is left", "no form", "no class"],
)
def test_swaps(target, swapped):
    assert YOU.swapped(target) == swapped


def test_uses_by_hand():
    uses = find_uses([YOU], document(*HYPOTHESIS), reach=3)
    found = [(u.segment, u.reference, u.outcome, u.distance, u.shown, u.steady, u.wrong) for u in uses]
    assert found == [
        (0, "singular", "same", None, None, None, None),
        (1, "singular", "other", 1, "singular", False, "Os ve."),
        (3, "plural", "same", 2, "singular", True, "Te toca."),
        (7, "plural", "both", None, None, None, "Contigo."),  # 3 is 4 before: out of reach
    ]
    assert find_uses([YOU], document(*HYPOTHESIS), reach=4)[-1].distance == 4
    scores = {score["distance"]: score for score in score_choices(uses, 3)}
    assert list(scores) == ["all", "1-3", "1", "2", "none"]
    every = scores["all"]
    assert [every[key] for key in ("choice", "count", "same", "other", "both", "none")] == ["you", 4, 2, 1, 1, 0]
    assert [every[key] for key in ("accuracy", "as_shown", "steady", "contrastive")] == [0.5, 0.5, 0.5, None]
    assert every["interval"] == pytest.approx((0.1500, 0.8500), abs=1e-4)  # n = 4, z = 1.96
    assert (scores["1-3"]["count"], scores["2"]["accuracy"], scores["none"]["count"]) == (2, 1, 2)
    singular, plural = score_classes([YOU], uses)
    assert list(singular.values()) == ["you", "singular", 2, 1, 1, 0.5, pytest.approx(2 / 3)]
    assert list(plural.values()) == ["you", "plural", 2, 2, 0.5, 0.5, 0.5]
    assert count_right([uses, [], uses[:2]], "all") == [(2, 4), (1, 2)]


def test_references_against_themselves():
    uses = find_uses([YOU], document(*TARGET), reach=3)
    assert {use.outcome for use in uses} == {"same"}
    none = find_uses([YOU], document(*[""] * 8), reach=3)
    assert [use.outcome for use in none] == ["none"] * 4
    assert score_choices(none, 3)[0]["steady"] is None


def test_several_choices_are_summed():
    other = Choice("it", When(("it",)), {"a": ("os",), "b": ("te",)})
    uses = find_uses([YOU, other], document(*HYPOTHESIS), reach=1)
    assert [(s["choice"], s["distance"], s["count"]) for s in score_choices(uses, 1)] == [
        *(("all", "all", 5), ("all", "1", 1), ("all", "none", 4)),
        *(("it", "all", 1), ("it", "none", 1), ("you", "all", 4), ("you", "1", 1), ("you", "none", 3)),
    ]
    assert count_right([uses], "it") == [(0, 1)]


@pytest.mark.parametrize("path", sorted(SHIPPED.rglob("*.yaml")), ids=lambda path: path.stem)
def test_the_shipped_files(path: Path):
    name = str(path.relative_to(SHIPPED).with_suffix(""))
    for choice in read_choices(name):
        for form in choice.swap:
            assert choice.swapped(form) is not None, f"{choice.name}: {form} takes the place of no other class"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]", "wanted names of choices"),
        ("you: {singular: [te], plural: [os]}", "you: wanted when: {source"),
        ("you: {when: {source: []}, a: [te], b: [os]}", r"you\.when\.source is \[\]"),
        ("you: {when: {sources: [you]}, a: [te], b: [os]}", r"you\.when\.sources: no such setting"),
        ("you: {when: {source: you}, swap: {te: os}}", "you: no class of words"),
        ("you: {when: {source: you}, a: te, b: [os, Te]}", "you: 'te' is in a and in b"),
        ("you: {when: {source: you}, a: te, b: [no]}", r"you\.b is"),
        ("you: {when: {source: you}, a: te, b: os, swap: [te]}", r"you\.swap is"),
        ("you: [", "while parsing"),
    ],
)
def test_wrong_files_are_refused(tmp_path, text, message):
    path = tmp_path / "file.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as error:
        read_choices(str(path))
    assert str(path) in str(error.value)


ARTICLE = "article: {when: {source: a}, masculine: ein, feminine: eine, swap: {ein: eine, eine: ein}}"


@pytest.fixture
def choices(monkeypatch, capsys, tmp_path):
    (tmp_path / "article.yaml").write_text(ARTICLE, encoding="utf-8")
    return partial(run_command, monkeypatch, capsys, "choices", f"choices={tmp_path / 'article.yaml'}")


def test_a_run_against_its_references(choices, tmp_path):
    run = make_run(tmp_path / "run", {"data": {"format": "jsonl", "path": str(write_corpus(tmp_path / "corpus"))}})
    code, out, err = choices(f"checkpoint={run}", "context=1")
    assert code == 0, err
    assert "contrastive" in out
    result = json.loads((run / "results" / "choices-article-test.json").read_text(encoding="utf-8"))
    assert (result["kind"], result["documents"], result["left_out"]) == ("choices", 3, 0)
    assert result["checkpoint"]["sha256"]
    assert result["systems"][0]["decoding"]["strategy"] == "greedy"
    assert [(s["distance"], s["count"], s["swapped"]) for s in result["scores"]] == [
        *(("all", 4, 4), ("1-3", 2, 2), ("1", 2, 2), ("none", 2, 2)),
    ]
    uses = [json.loads(line) for line in (run / "results" / "choices-article-test.jsonl").read_text().splitlines()]
    last = uses[-1]
    assert (last["document"], last["reference"], last["shown"], last["wrong"]) == (
        *("north/three", "feminine", "masculine", "ein katze"),
    )
    translator = Translator.load(run, "cpu")
    right, wrong = (
        score_documents(translator, [["a tree", "a cat"]], [["ein baum", text]])[0].segments[-1].log_probability
        for text in ("eine katze", "ein katze")
    )
    assert last["margin"] == pytest.approx(right - wrong, abs=1e-4)
    saved = result["systems"][0]["file"]
    assert json.loads(Path(saved).read_text().splitlines()[0])["id"] == "north/one"
    assert choices(f"checkpoint={run}", "mode=segment", "contrastive=false", "max_documents=2")[0] == 0
    part = json.loads((run / "results" / "choices-article-test-segment-first-2.json").read_text(encoding="utf-8"))
    assert (part["systems"][0]["context"], part["scores"][0]["count"], part["scores"][0]["swapped"]) == (None, 1, 0)


def test_saved_translations_are_compared(choices, tmp_path):
    source, target = ["a cat", "a dog"], ["eine katze", "ein hund"]
    documents = [{"id": str(n), "source": source, "target": target} for n in range(8)]
    for name, hypothesis in (("good", target), ("bad", ["ein katze", "ein hund"])):
        lines = (json.dumps({**document, "hypothesis": hypothesis}) + "\n" for document in documents)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    files = [f"{tmp_path / name}.jsonl" for name in ("bad", "good")]
    assert "several systems: set output" in error_line(choices(f"translations=[{','.join(files)}]"))
    code, out, err = choices(f"translations=[{','.join(files)}]", f"output={tmp_path / 'out'}")
    assert code == 0, err
    assert "+50.00 *" in out
    result = json.loads((tmp_path / "out" / "choices-article-bad.json").read_text(encoding="utf-8"))
    (comparison,) = result["comparisons"]
    first, second = comparison["rows"]
    assert (comparison["choice"], comparison["lines"]) == ("article", 8)
    assert (first["system"], first["score"], second["system"], second["score"]) == ("bad", 50, "good", 100)
    assert second["randomization_p"] >= 2 / 2**8


def test_wrong_calls_of_the_command(choices, tmp_path):
    assert "give checkpoint=RUN" in error_line(choices())
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps({"id": "1", "source": ["b"], "target": ["c"], "hypothesis": ["d"]}), encoding="utf-8")
    assert "no reference uses exactly one class of article" in error_line(choices(f"translations={file}"))
    assert "data= is for checkpoint=" in error_line(choices(f"translations={file}", "data=jsonl", "data.path=x"))
    error = error_line(choices(f"translations={file}", "choices=en-es/yuo"))
    assert "en-es/it, en-es/terms, en-es/you" in error


def test_what_only_checkpoints_read_is_refused(choices, tmp_path):
    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps({"id": "1", "source": ["a"], "target": ["ein"], "hypothesis": ["d"]}), encoding="utf-8")
    for given in ("max_documents=1", "mode=segment", "max_tokens=40", "decoding.beam_size=9", "contrastive=false"):
        line, name = error_line(choices(f"translations={file}", given)), given.partition("=")[0]
        assert line == f"error: {name}= is for checkpoint=, and saved translations do not follow it: leave it out\n"
    again = f"choices=[{tmp_path / 'article.yaml'},{tmp_path / 'article.yaml'}]"
    assert "article stands in two files: give each a name" in error_line(choices(f"translations={file}", again))


def test_a_corpus_without_a_use_is_told_and_others_are_scored(choices, tmp_path):
    none = [{"id": "1", "source": ["b"], "target": ["c"]}]
    corpora = {
        name: {"path": str(write_corpus(tmp_path / name, documents=documents)), "format": "jsonl"}
        for name, documents in (("none", none), ("some", DOCUMENTS))
    }
    run = make_run(tmp_path / "run", {"data": {"corpora": corpora}})
    code, out, err = choices(f"checkpoint={run}", "contrastive=false")
    assert code == 0, err
    assert "none-test: no reference uses exactly one class of article" in out
    assert [path.name for path in (run / "results").glob("choices-*test.json")] == ["choices-article-some-test.json"]


def test_tagged_models_are_scored_with_their_tag(tmp_path, monkeypatch):
    asked = []
    real = contrastive.score_documents

    def spied(*args, tag=None, **kwargs):
        asked.append(tag)
        return real(*args, **kwargs)

    monkeypatch.setattr(contrastive, "score_documents", spied)
    models = Translator.load(make_run(tmp_path / "run"), "cpu")
    uses = [find_uses([YOU], document(*HYPOTHESIS), 3)]
    with_margins([document(*HYPOTHESIS)], uses, models, 0, "x")
    assert asked == ["x"]
