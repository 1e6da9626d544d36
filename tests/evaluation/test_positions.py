"""Quality by position and by document length, by hand and against scores of the parts alone."""

from __future__ import annotations

import numpy as np
import pytest

from scaleformer.evaluation.bootstrap import interval
from scaleformer.evaluation.evaluate import print_positions
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.positions import LENGTHS, by_tenth, quality_by_position
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.evaluation.scores import corpus_bleu, corpus_chrf

NONE = Metrics(tokenize="none")
WORDS = [f"w{i} x{i} y{i} z{i}" for i in range(20)]
LONG = TranslatedDocument("long", (), WORDS, [*WORDS[:18], "q q q q", "r r r r"])
SHORT = TranslatedDocument("short", (), ["a b c d e", "f"], ["a b c d e f"])
ODD = TranslatedDocument("odd", (), WORDS[:11], [*WORDS[:10], "q"])


def test_the_end_is_worse():
    found = quality_by_position([LONG, SHORT, ODD], NONE)
    assert (found["tenths_of"], found["shorter"]) == (2, 1)
    # 20 segments are two a tenth; of 11 the sixth's middle, 5.5 of 11, begins the sixth tenth, which has two
    assert [row["segments"] for row in found["tenths"]] == [3, 3, 3, 3, 3, 4, 3, 3, 3, 3]
    assert [row["s_bleu"] for row in found["tenths"][:9]] == pytest.approx([100] * 9)
    assert found["tenths"][9]["s_bleu"] == 0
    assert [(row["from"], row["to"]) for row in found["tenths"]][::9] == [(0, 0.1), (0.9, 1)]


def test_lengths_are_scored_as_if_they_were_alone():
    found = quality_by_position([LONG, SHORT, ODD], NONE)["lengths"]
    assert [(row["from"], row["to"], row["documents"], row["segments"]) for row in found] == [
        (1, 3, 1, 2),
        (10, 29, 2, 31),
    ]
    assert found[0]["d_bleu"] == pytest.approx(100)
    aligned = ["a b c d e f", ""]
    assert found[0]["s_bleu"] == pytest.approx(corpus_bleu(aligned, SHORT.target, NONE))
    hypotheses, references = [*LONG.hypothesis, *ODD.hypothesis], [*LONG.target, *ODD.target]
    assert found[1]["s_bleu"] == pytest.approx(corpus_bleu(hypotheses, references, NONE))
    assert found[1]["chrf"] == pytest.approx(corpus_chrf(hypotheses, references, NONE))
    starts, ends = zip(*LENGTHS, strict=True)
    assert [end + 1 for end in ends[:-1]] == list(starts[1:])


def test_intervals_over_documents():
    """The resamples of two documents are both, or one of them twice: one in four each."""
    sums = np.array([[0, 1], [10, 1]])
    assert interval(sums, lambda both: both[0] / both[1]) == [0, 10]
    assert interval(sums[:1], lambda both: both[0] / both[1]) is None
    many = np.stack([np.arange(400.0), np.ones(400)], axis=1)  # of the mean: 1.96 * 115.47 / 20 on each side
    assert interval(many, lambda both: both[0] / both[1]) == pytest.approx([199.5 - 11.3, 199.5 + 11.3], abs=1.2)
    found = quality_by_position([LONG, SHORT, ODD], NONE)
    last = found["tenths"][9]
    assert (last["documents"], last["s_bleu_interval"]) == (2, [0, 0])
    assert found["tenths"][0]["s_bleu_interval"] == pytest.approx([100, 100])
    assert found["lengths"][0]["s_bleu_interval"] is None
    low, high = found["lengths"][1]["chrf_interval"]
    ends = [corpus_chrf(d.hypothesis, d.target, NONE) for d in (LONG, ODD)]
    assert (low, high) == pytest.approx((min(ends), max(ends)))
    assert low < found["lengths"][1]["chrf"] < high


def test_tenths_without_segments_have_no_score():
    found = by_tenth([TranslatedDocument("a", (), ["a b c d"], ["a b c d"])], NONE)
    assert [row["segments"] for row in found] == [0] * 5 + [1] + [0] * 4
    assert [row["s_bleu"] for row in found].count(None) == 9
    assert quality_by_position([SHORT], NONE)["tenths"] == []


def test_printed_positions(capsys):
    print_positions(quality_by_position([LONG, SHORT], NONE))
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("s-BLEU by tenth of the document: 100.0 100.0")
    assert first.endswith(" 0.0 (1 document, 1 shorter one excluded)")
    assert second.startswith("s-BLEU by segments of the document: 1-3: ")
    print_positions(quality_by_position([SHORT], NONE))
    assert capsys.readouterr().out == ""
