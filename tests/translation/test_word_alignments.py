"""Word alignments: tokens and words by hand, links by loops over the weights of the attention maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scaleformer.evaluation.attention_maps import attention_maps
from scaleformer.translation.ensembles import load_ensemble
from scaleformer.translation.translations import DocumentHypothesis, Translation
from scaleformer.translation.translator import Translator
from scaleformer.translation.word_alignments import (
    Unit,
    align_words,
    alignments_path,
    as_pharaoh,
    attention_of,
    token_words,
    write_alignments,
)
from tests.runs import DOCUMENTS, make_run, tokenizer

SOURCES = [document["source"] for document in DOCUMENTS]
TARGETS = [document["target"] for document in DOCUMENTS]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("alignments") / "run", attention={"name": "softmax"})


@pytest.fixture(scope="module")
def translator(run: Path) -> Translator:
    return Translator.load(run, "cpu")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a  dog,\tŁódź <sep> \u2581x ", ["a", "dog,", "Łódź", "<sep>", "\u2581x"]),
        ("東京 cat", ["東", "京", "cat"]),
        ("", []),
    ],
)
def test_tokens_belong_to_the_words_that_they_write(text: str, words: list[str]) -> None:
    """Token by token: the text decoded so far ends within the word."""
    shares = token_words(tokenizer(), text)
    tokens = tokenizer().encode(text)
    assert shares.shape == (len(tokens), len(words))
    assert ((shares.sum(1) == 1) | (shares.sum(1) == 0)).all()
    for n, word in enumerate(words):
        own = [token for token, of in zip(tokens, shares.argmax(1), strict=True) if of == n]
        assert word in tokenizer().decode(own).strip() or word in "東京"


def slow_links(translator: Translator, source: str, target: str) -> list[tuple[int, int]]:
    """For documents of one segment without escapes, by loops over the maps of the only layer."""
    maps = attention_maps(translator, [source], [target])
    weights = maps.weights["cross"][0].mean(0)
    numbers = []
    for pieces in (maps.source_pieces, maps.target_pieces[1:]):
        of, word = [], -1
        for piece in pieces:
            word += piece.startswith("\u2581")
            of.append(None if piece in ("<sep>", "</s>") else max(word, 0))
        numbers.append(of)
    links = []
    for word in range(len(target.split())):
        sums = np.zeros(len(source.split()))
        for row, of in enumerate(numbers[1]):
            if of == word:
                for column, its in enumerate(numbers[0]):
                    if its is not None:
                        sums[its] += weights[row, column]
        links.append((int(sums.argmax()), word))
    return links


def test_links_are_of_the_greatest_weights(translator: Translator) -> None:
    sources = [segment for document in SOURCES for segment in document]
    targets = [segment for document in TARGETS for segment in document]
    found = translator.align([[source] for source in sources], [[target] for target in targets])
    for source, target, [links] in zip(sources, targets, found, strict=True):
        assert list(links) == slow_links(translator, source, target)
    assert len({source for [links] in found for source, _ in links}) > 1
    with pytest.raises(ValueError, match="2 documents, 0 translations: wanted one for each"):
        translator.align([["a"], ["b"]], [])


def test_documents_in_runs_or_whole_have_a_list_a_segment(translator: Translator, monkeypatch) -> None:
    found = translator.align(SOURCES, TARGETS)
    assert [[len(links) for links in one] for one in found] == [[len(t.split()) for t in one] for one in TARGETS]
    assert all(source < len(s.split()) for d, one in zip(SOURCES, found, strict=True)
               for s, links in zip(d, one, strict=True) for source, _ in links)  # fmt: skip
    monkeypatch.setattr("scaleformer.translation.word_alignments.LONGEST", 1)
    alone = translator.align([[s] for d in SOURCES for s in d], [[t] for d in TARGETS for t in d])
    assert [links for one in translator.align(SOURCES, TARGETS) for links in one] == [links for [links] in alone]


def test_what_is_translated_together_is_counted_on(translator: Translator) -> None:
    hypothesis = DocumentHypothesis(("eine katze sieht baum", "", ""), 0.0, 0.0, True, (1,))
    source = ["a cat", "sees a tree", "x"]
    [[links, shared, empty]] = align_words(translator, [source], [Translation((hypothesis,), 3, 9)])
    assert [target for _, target in links] == [0, 1, 2, 3]
    assert {source for source, _ in links} <= set(range(5))
    assert (shared, empty) == ((), ())


def test_the_tag_of_the_translation_precedes_the_source(translator: Translator) -> None:
    source = tokenizer().encode_segments(["a cat"])
    unit = Unit(["a cat"], source, tokenizer().encode_segments(["eine katze"]), "eine katze")
    [found] = attention_of(translator, [unit], [9])
    [expected] = attention_of(translator, [unit._replace(source=[9, *source])], [])
    assert np.array_equal(found, expected[:, 1:])


def test_an_ensemble_of_one_model_twice_aligns_as_it_does(run: Path, translator: Translator) -> None:
    twice = Translator(load_ensemble([run, run], translator.device))
    assert twice.align(SOURCES, TARGETS) == translator.align(SOURCES, TARGETS)


def test_other_numbers_of_segments_are_one_line(translator: Translator) -> None:
    hypothesis = DocumentHypothesis(("x",), 0.0, 0.0, True)
    with pytest.raises(ValueError, match="align: segment count differs: source 2, translation 1: set"):
        align_words(translator, [["a", "b"]], [Translation((hypothesis,), 2, 9)])


def test_alignments_are_written_a_line_a_segment(tmp_path: Path) -> None:
    assert as_pharaoh(((0, 0), (2, 1))) == "0-0 2-1"
    write_alignments(str(tmp_path / "out.align"), [[((0, 0), (2, 1)), ()], [((1, 0),)]])
    assert (tmp_path / "out.align").read_text() == "0-0 2-1\n\n1-0\n"


def test_where_alignments_go(tmp_path: Path) -> None:
    out = str(tmp_path / "out.txt")
    assert alignments_path(None, out, "text", False) is None
    assert alignments_path("true", out, "jsonl", True) is None
    assert alignments_path("true", out, "text", True) == f"{out}.align"
    assert alignments_path(str(tmp_path / "a"), "-", "text", True) == str(tmp_path / "a")
    with pytest.raises(ValueError, match="set align=FILE or output_format=jsonl"):
        alignments_path("true", "-", "text", True)
    with pytest.raises(ValueError, match=r"set decoding\.match_segments=true"):
        alignments_path("true", out, "text", False)
