"""Which terms are requested, and how their use is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scaleformer.text.documents import Document
from scaleformer.text.terms import Term
from scaleformer.translation.translator import Translator
from scripts.terms import RequiredTerm, find_required, learn_partners, main, score_terms, two_ways
from tests.runs import DOCUMENTS, make_run

WAYS = {"house": ("haus", "bude"), "dog": ("hund", "kläffer")}
WORDS = {"cat": "gato", "dog": "perro", "tree": "árbol", "house": "casa", "bird": "pájaro", "road": "camino"}


def make_documents(count: int, name: str = "a") -> list[Document]:
    """Segments of two words each, of which every one has one translation."""
    names = list(WORDS)
    documents = []
    for n in range(count):
        pairs = [(names[(n + i) % 6], names[(n + i * i + 1) % 6]) for i in range(8)]
        source = tuple(f"a {one} and a {other}" for one, other in pairs)
        target = tuple(f"un {WORDS[one]} y un {WORDS[other]}" for one, other in pairs)
        documents.append(Document(f"{name}{n}", source, target))
    return documents


def test_partners_are_learned_from_the_text() -> None:
    partners = learn_partners(make_documents(30), 0.2)
    assert {word: max(found, key=found.__getitem__) for word, found in partners.items() if word in WORDS} == WORDS
    assert learn_partners([], 0.2) == {}


def test_two_translations_differ_by_more_than_an_ending() -> None:
    pairs = [("bird house", "vogel haus"), ("bird house", "vogel bude"), ("tree bird", "baum vogel")] * 20
    pairs += [("road tree", "weg baum"), ("roads tree", "wege baum"), ("road", "wege"), ("road", "weg")] * 20
    documents = [Document("a", tuple(s for s, _ in pairs), tuple(t for _, t in pairs))]
    assert {word: set(ways) for word, ways in two_ways(documents, "de").items()} == {"house": {"haus", "bude"}}


def test_each_word_is_requested_once_per_window() -> None:
    source = ("a house", "x", "the house", "y", "a dog", "houses", "z")
    target = ("ein haus", "x", "die bude", "y", "ein tier", "haus", "z")
    documents = [Document("a", source, target), Document("b", ("a dog",), ("ein hund",))]
    found = find_required(documents, WAYS, 20, "reference", around=1)
    assert [(one.source[one.segment], one.term.target) for one in found] == [
        ("a house", "haus"),
        ("the house", "bude"),
        ("a dog", "hund"),
    ]
    assert found[0].source == ("a house", "x")
    assert found[1].target == ("die bude", "y")
    other = find_required(documents, WAYS, 20, "other", around=1)
    assert [one.term.target for one in other] == ["bude", "haus", "kläffer"]
    assert len(find_required(documents, WAYS, 2, "other", around=1)) == 2
    assert [one.term.source for one in find_required(documents, WAYS, 10, "other", around=1)] == ["house", "dog"]


def test_terms_are_counted_without_and_with(tmp_path: Path) -> None:
    translator = Translator.load(make_run(tmp_path / "run"), "cpu")
    windows = [(tuple(d["source"]), tuple(d["target"])) for d in DOCUMENTS]
    required = [RequiredTerm(*windows[0], 0, Term("cat", "Kater")), RequiredTerm(*windows[2], 1, Term("tree", "Baum"))]
    score = score_terms(translator, required, translator.decoding)
    assert (score.terms, score.words, score.others, score.changed) == (2, 2, 3, 0)
    assert (score.before, score.after, score.inflected) == (0.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="translates in two ways"):
        score_terms(translator, [], translator.decoding)


def test_a_run_is_measured_and_the_result_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [("bird house", "vogel haus"), ("bird house", "vogel bude"), ("tree bird", "baum vogel")] * 20
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for split, lines in {"train": pairs, "test": pairs[1:3]}.items():
        document = {"id": split, "source": [s for s, _ in lines], "target": [t for _, t in lines]}
        (corpus / f"{split}.jsonl").write_text(json.dumps(document) + "\n")
    run = make_run(tmp_path / "run")
    main([str(run), "--data", str(corpus), "--count", "1", "--ask", "other"])
    assert "requested as the other" in capsys.readouterr().out
    result = json.loads((run / "results" / "terms-other-test.json").read_text())
    assert (result["required"], result["ask"], result["scores"]["terms"]) == (1, "other", 1)
