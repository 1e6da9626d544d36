"""Confidence: signs of segments by hand, a calibration that rises, measures by other formulas, and the page."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scaleformer.evaluation import confidence
from scaleformer.evaluation.confidence import SIGNS, Confidence, assess, fit, review_page, signs_of
from scaleformer.evaluation.log_probabilities import score_documents
from scaleformer.system.errors import DataError
from scaleformer.translation.translator import Translator
from tests.runs import make_run

pytest.importorskip("sklearn")


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("confidence") / "run"), "cpu")


def test_the_signs_of_texts() -> None:
    length, numbers, repeats, copied = confidence._of_texts("Take 3 of 10.", "Toma 3 de 12.")
    assert length == 0.0
    assert numbers == -2.0  # 10 is missing, 12 is new
    assert (repeats, copied) == (0.0, 0.0)
    assert confidence._of_texts("a b", "x y x y x")[2] == -3 / 5
    assert confidence._of_texts("Run", "Run")[3] == -1.0
    assert confidence._of_texts("1.5", "1.5")[3] == 0.0  # a number stays what it is
    assert confidence._of_texts("12345", "123456789012345")[0] == -math.log(2)


def test_probabilities_are_those_of_score(translator: Translator) -> None:
    sources, targets = [["the cat sees", "it runs"], ["a dog"]], [["a b", "c"], ["d e f"]]
    first, second = signs_of(translator, sources, targets)
    assert first.shape == (2, len(SIGNS))
    whole = score_documents(translator, sources, targets)
    [alone] = score_documents(translator, [["it runs"]], [["c"]])
    of = whole[0].segments[1]
    assert first[1, 0] == pytest.approx(of.log_probability / of.tokens)
    assert first[1, 2] == pytest.approx(alone.segments[0].log_probability / alone.segments[0].tokens)
    assert first[1, 1] == of.least <= first[1, 0]
    assert second[0, 0] == pytest.approx(second[0, 2], abs=1e-5)  # it has no neighbours


def test_expectations_rise_with_every_sign_and_find_what_is_bad() -> None:
    generator = np.random.default_rng(0)
    signs = generator.normal(size=(400, len(SIGNS)))
    scores = np.clip(50 + 15 * signs[:, 0] + 5 * signs[:, 4] + generator.normal(size=400), 0, 100)
    found = fit(signs, scores, "model")
    assert min(found.weights) >= 0
    assert np.abs(found.expect(signs) - scores).mean() < 2
    better = signs.copy()
    better[:, 0] += 1
    assert (found.expect(better) >= found.expect(signs)).all()
    measured = assess(found.expect(signs), scores)
    assert measured["pearson"] > 0.98
    assert measured["auc"] > 0.97
    assert [row["segments"] for row in measured["reliability"]] == [80] * 5
    bad = np.full(len(SIGNS), 0.0)
    bad[4] = -3
    assert found.reasons(bad) == ["numbers differ"]


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    generator = np.random.default_rng(1)
    expected, scores = generator.normal(size=50), generator.normal(size=50)
    order = np.argsort(scores)
    pairs = [expected[bad] < expected[good] for bad in order[:10] for good in order[10:]]
    assert assess(expected, scores)["auc"] == pytest.approx(np.mean(pairs))


def test_too_few_segments_are_refused() -> None:
    with pytest.raises(ValueError, match="10 segments: wanted 50 or more"):
        fit(np.zeros((10, len(SIGNS))), np.zeros(10), "model")


def test_a_calibration_is_read_for_its_own_weights_alone(translator: Translator) -> None:
    path = confidence.place_of(translator)
    with pytest.raises(DataError, match="missing: `scaleformer confidence checkpoint="):
        Confidence.of(translator)
    made = Confidence([0.0] * 7, [1.0] * 7, [1.0] * 7, [[0.0, 1.0], [20.0, 80.0]], translator.sha256 or "")
    made.write(path)
    assert Confidence.of(translator) == made
    assert made.expect(np.full((1, 7), 0.5 / 7)) == pytest.approx([50.0])
    Confidence([], [], [], [[], []], "other").write(path)
    with pytest.raises(DataError, match="of another checkpoint"):
        Confidence.of(translator)
    path.write_text("[", encoding="utf-8")
    with pytest.raises(DataError, match="not a calibration"):
        Confidence.of(translator)
    path.unlink()


def test_the_page_has_the_least_sure_first() -> None:
    sources, targets = [["good", "bad <b>", " "]], [["bueno", "malo & peor", ""]]
    page = review_page(["a.md"], sources, targets, [np.array([90.0, 10.0, 0.0])], [[[], ["numbers differ"], []]])
    assert page.index("malo &amp; peor") < page.index("bueno")
    assert "bad &lt;b&gt;" in page
    assert "numbers differ" in page
    assert "Read these 1 first" in page
    assert page.count("<tr><td>") == 2  # an empty segment needs no reader
