"""Confidence: a calibration that rises, measures by other formulas, and the page."""

from __future__ import annotations

import numpy as np
import pytest

from scaleformer.evaluation.confidence import assess, fit, review_page
from scaleformer.translation.confidence import SIGNS
from scaleformer.translation.translations import DocumentHypothesis, Judged, Translation

pytest.importorskip("sklearn")


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
    assert found.reasons(bad) == ("numbers differ",)


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    generator = np.random.default_rng(1)
    expected, scores = generator.normal(size=50), generator.normal(size=50)
    order = np.argsort(scores)
    pairs = [expected[bad] < expected[good] for bad in order[:10] for good in order[10:]]
    assert assess(expected, scores)["auc"] == pytest.approx(np.mean(pairs))


def test_too_few_segments_are_refused() -> None:
    with pytest.raises(ValueError, match="10 segments: wanted 50 or more"):
        fit(np.zeros((10, len(SIGNS))), np.zeros(10), "model")


def test_the_page_has_the_least_sure_first() -> None:
    best = DocumentHypothesis(("bueno", "malo & peor", ""), 0.0, 0.0, True)
    judged = Judged(90.0, ()), Judged(10.0, ("numbers differ",)), None
    page = review_page([("a.md", ["good", "bad <b>", " "], Translation((best,), 3, 9, judged))])
    assert page.index("malo &amp; peor") < page.index("bueno")
    assert "bad &lt;b&gt;" in page
    assert "numbers differ" in page
    assert "Read these 1 first" in page
    assert page.count("<tr><td>") == 2  # an empty segment needs no reader


@pytest.mark.filterwarnings("ignore:invalid value")
def test_expectations_that_are_all_the_same_tell_nothing() -> None:
    found = assess(np.full(60, 40.0), np.arange(60.0))
    assert (found["pearson"], found["auc"]) == (0.0, 0.5)
