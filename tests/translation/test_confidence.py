"""Confidence: signs of segments by hand and by the model, and what is told of translations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scaleformer.system.errors import DataError
from scaleformer.translation import confidence
from scaleformer.translation.confidence import SIGNS, Confidence, signs_of
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.log_probabilities import score_documents
from scaleformer.translation.translations import DocumentHypothesis, Translation
from scaleformer.translation.translator import Translator
from tests.runs import make_run


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


def test_what_is_told_of_translations(translator: Translator) -> None:
    """By the sign of numbers alone: 80 where they agree, 40 where two differ; nothing of texts that were given, of
    those without text, nor of a document with other segments."""
    weights = [0.0] * 4 + [1.0, 0.0, 0.0]
    made = Confidence([0.0] * 7, [1e3] * 4 + [1.0, 1e3, 1e3], weights, [[-4.0, 0.0], [0.0, 80.0]], "")
    sources = [["take 3", "take 4", " ", "a cat", "a dog"], ["a", "b"]]
    targets = [("toma 3", "toma 5", "", "un gato", ""), ("x",)]
    given = [Translation((DocumentHypothesis(t, 0.0, 0.0, True, shared=(4,) * (len(t) > 4)),), 5, 9) for t in targets]
    first, second = made.judge(translator, sources, given, [ForcedTexts({3: "un gato"}), ForcedTexts()])
    assert first.judged == ((80.0, ()), (40.0, ("numbers differ",)), None, None, None)
    assert second.judged == ()
    assert first.hypotheses == given[0].hypotheses
