"""Scores of translations, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from scaleformer.evaluation.length.documents import TestText
from scaleformer.evaluation.length.scores import (
    by_size,
    original_documents,
    paired_t_test,
    repeated_4grams,
    score_translations,
    sentence_bleu,
)
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.positions import by_tenth
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.text.documents import Document

NONE = Metrics(tokenize="none")


class Words:
    def encode_batch(self, texts):
        return [[0] * len(text.split()) for text in texts]


def make_text(*documents: tuple[str, ...]) -> TestText:
    return TestText.of(
        [Document(f"d{i}", segments, segments) for i, segments in enumerate(documents)], Words(), Words()
    )


def translated(documents, hypotheses) -> list[TranslatedDocument]:
    return [TranslatedDocument(d.id, d.source, d.target, h) for d, h in zip(documents, hypotheses, strict=True)]


def test_repeated_4grams():
    assert repeated_4grams(["a b c d e"]) == 0
    assert repeated_4grams(["a a a a a a"]) == pytest.approx(2 / 3)  # three 4-grams, one of them new
    assert repeated_4grams(["a a a a a a", "a b c d"]) == pytest.approx(2 / 4)
    assert repeated_4grams(["a b", ""]) == 0


def test_counts_of_segments():
    text = make_text(("a b c d", "e f g h", "i"), ("k l", "", "m"))
    documents = [text.document(0, 3), text.document(3, 6)]
    first, second = translated(documents, [["a b c d", "e f g h"], ["k l", "", "", "m"]])
    found = score_translations([first, replace(second, finished=False)], NONE)
    assert (found["reference_segments"], found["hypothesis_segments"]) == (6, 6)
    assert (found["missing_segments"], found["extra_segments"], found["empty_segments"]) == (1, 1, 0)
    assert (found["count_mismatches"], found["mismatch_rate"]) == (2, 1.0)
    assert found["unfinished"] == ["d1"]
    assert [score["metric"] for score in found["scores"]] == ["d-BLEU", "s-BLEU", "chrF++", "d-chrF++"]
    assert found["document_bleu"][0] == pytest.approx(100 * math.exp(1 - 9 / 8))
    assert found["document_bleu"][1] == pytest.approx(100)  # shorter than 4 words: the effective order


@pytest.mark.parametrize(
    ("reference", "hypothesis", "expected"),
    [
        (("a b c d",), ["a b c d", ""], (0, 1, 0)),
        (("a b c d",), ["", ""], (0, 1, 1)),
        (("a", "", "b"), ["a", "", "", "", "b"], (0, 2, 0)),
        (("a", "b", "c"), ["a", ""], (1, 0, 1)),
        (("a", "b"), ["", "b"], (0, 0, 1)),
        (("a", ""), ["a", "b"], (0, 0, 0)),
    ],
    ids=["surplus", "both", "two surplus", "missing", "empty", "less empty"],
)
def test_a_segment_is_missing_surplus_or_empty(reference, hypothesis, expected):
    text = make_text(reference)
    found = score_translations(translated([text.document(0, len(reference))], [hypothesis]), NONE)
    assert (found["missing_segments"], found["extra_segments"], found["empty_segments"]) == expected


def test_deciles():
    text = make_text(tuple(f"w{i} x y z" for i in range(20)), ("one two three four",))
    documents = [text.document(0, 20), text.document(20, 21)]
    hypotheses = [[*text.target[:18], "q q q q", "r r r r"], ["one two three four"]]
    found = by_tenth(translated(documents, hypotheses), NONE)
    assert [row["segments"] for row in found] == [2, 2, 2, 2, 2, 3, 2, 2, 2, 2]
    assert [row["s_bleu"] for row in found[:9]] == pytest.approx([100.0] * 9)
    assert found[9]["s_bleu"] == 0
    assert found[9]["chrf"] < 20
    single = by_tenth(translated(documents[1:], [["one two three four"]]), NONE)
    assert [row["s_bleu"] for row in single].count(None) == 9


def test_sizes():
    text = make_text(("a b c d e f g",), ("h",), ("i", "k l m"))
    documents = [text.document(0, 1), text.document(1, 2), text.document(2, 4)]
    assert [d.tokens for d in documents] == [9, 3, 7]
    losses = {"documents": [1.0, 2.0, 4.0], "document_tokens": [9, 3, 7]}
    found = by_size(documents, 3, NONE, translated(documents, [d.target for d in documents]), losses)
    assert [(r["above"], r["up_to"], r["documents"]) for r in found] == [(0, 1, 1), (2, 4, 2)]
    assert [r["nats_per_token"] for r in found] == pytest.approx([2.0, (9 + 28) / 16])
    assert [found[1][name] for name in ("d_bleu", "s_bleu", "chrf")] == pytest.approx([100] * 3)
    nothing = by_size(documents, 1, NONE, None, None)[-1]
    assert nothing.keys() == found[0].keys()
    assert [(name, value) for name, value in nothing.items() if value is not None] == [
        *(("above", 8), ("up_to", 16), ("documents", 1))
    ]
    looped = by_size(documents, 3, NONE, translated(documents, [["a b c d a b c d"], ["h"], ["i k l m"]]), None)
    numbers = ("length_ratio", "brevity_penalty", "repeated_4grams", "reference_repeated_4grams", "missing_segments")
    assert [looped[0][name] for name in numbers] == pytest.approx([1, 1, 0, 0, 0])
    assert [looped[1][name] for name in numbers] == pytest.approx([12 / 11, 1, 1 / 6, 0, 1])


def test_documents_are_rebuilt_from_any_cuts():
    text = make_text(("a", "b", "c"), ("d", "e"), ("f",))
    cut = [text.document(0, 2), text.document(2, 4), text.document(5, 6)]  # segment e is missing
    assert original_documents(text, cut, ["A", "B", "C", "D", "F"]) == {0: "A B C", 2: "F"}


def test_sentence_bleu_scores_one_line():
    assert sentence_bleu(["a b c d e", "x"], ["a b c d f", "y"], NONE) == pytest.approx([100 * 0.2**0.25, 0.0])


@pytest.mark.parametrize("size", [2, 3, 9, 200, 5000])
def test_t_test_against_a_sum_of_the_density(size):
    """By definition: the tail of Student's density, integrated in small steps."""
    differences = [math.sin(i) + 0.15 for i in range(size)]
    t, p = paired_t_test(differences, [0.0] * size)
    n = size - 1
    mean = sum(differences) / size
    deviation = math.sqrt(sum((d - mean) ** 2 for d in differences) / n)
    assert t == pytest.approx(mean / deviation * math.sqrt(size))
    constant = math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2)) / math.sqrt(n * math.pi)
    step = abs(t) / 20_000
    inside = sum(constant * (1 + ((i + 0.5) * step) ** 2 / n) ** (-(n + 1) / 2) for i in range(20_000)) * step
    assert p == pytest.approx(1 - 2 * inside, abs=1e-8)


def test_t_test_by_hand():
    t, p = paired_t_test([1, 2, 3], [0, 0, 0])
    assert t == pytest.approx(2 * math.sqrt(3))
    assert p == pytest.approx(1 - t / math.sqrt(2 + t * t))  # two degrees of freedom have a closed form
    assert paired_t_test([3, 2, 1], [4, 4, 4])[0] == pytest.approx(-2 * math.sqrt(3))
    assert paired_t_test([1, 2], [0, 1]) is None
    assert paired_t_test([1], [0]) is None
    assert paired_t_test([100] * 50 + [101], [0] * 51)[1] == pytest.approx(0, abs=1e-12)
