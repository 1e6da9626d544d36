"""Log-probabilities of given translations against the sum of single decoding steps."""

from __future__ import annotations

import math

import pytest
import torch

from scaleformer.decoding.state import pad
from scaleformer.translation.log_probabilities import DocumentScore, SegmentScore, perplexity, rescore, score_documents
from scaleformer.translation.translations import DocumentHypothesis
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import BOS, EOS, SEP
from tests.runs import DOCUMENTS, make_run

SOURCES = [document["source"] for document in DOCUMENTS]
TARGETS = [document["target"] for document in DOCUMENTS]


@pytest.fixture(scope="module")
def translator(tmp_path_factory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("scoring") / "run"), "cpu")


def steps(translator: Translator, source: list[str], target: list[str]) -> list[float]:
    """The log-probability of each target token, by decoding steps fed with the translation."""
    model = translator.model
    tokens = [*translator.target_tokenizer.encode_segments(target), EOS]
    memory = model.encode(*pad([[*translator.source_tokenizer.encode_segments(source), EOS]], translator.device))
    state = model.init_state(memory, 1)
    scores, last, segment = [], BOS, 0
    for token in tokens:
        segment += last == SEP
        logits, state = model.step(torch.tensor([last]), torch.tensor([segment]), state)
        scores.append(float(logits.double().log_softmax(1)[0, token]))
        last = token
    return scores


@torch.inference_mode()
def test_equal_to_the_sum_of_steps(translator):
    for document in zip(SOURCES, TARGETS, score_documents(translator, SOURCES, TARGETS), strict=True):
        source, target, score = document
        expected = steps(translator, source, target)
        assert score.log_probability == pytest.approx(sum(expected), abs=1e-4)
        assert score.tokens == len(expected)
        assert len(score.segments) == len(target)
        first = len(translator.target_tokenizer.encode_segments(target[:1]))
        assert score.segments[0].tokens == first
        assert score.segments[0].log_probability == pytest.approx(sum(expected[:first]), abs=1e-4)
        assert score.end == pytest.approx(expected[-1], abs=1e-4)


@pytest.mark.parametrize("batch_tokens", [1, 60, 10_000], ids=["alone", "some", "all"])
def test_batches_change_nothing(translator, batch_tokens):
    progress: list[float] = []
    scores = score_documents(
        translator, SOURCES, TARGETS, batch_tokens=batch_tokens, progress=lambda share, _: progress.append(share)
    )
    alone = [score_documents(translator, [s], [t])[0] for s, t in zip(SOURCES, TARGETS, strict=True)]
    for one, other in zip(scores, alone, strict=True):
        assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
    assert progress[-1] == 1


def test_an_empty_translation_and_a_different_segment_count(translator):
    nothing, more = score_documents(translator, [SOURCES[1], SOURCES[1]], [[], ["ein", "", "hund"]])
    assert (nothing.segments, nothing.tokens) == ((), 1)
    assert nothing.log_probability == nothing.end < 0
    assert [segment.tokens for segment in more.segments][1] == 1  # only the <sep>
    assert score_documents(translator, [], []) == []


def test_rescoring_ranks_by_new_and_old_scores(translator):
    scores = score_documents(translator, [SOURCES[1]] * 2, [["ein hund"], ["ein hund ein hund"]])
    assert scores[0].log_probability > scores[1].log_probability
    hypotheses = [
        DocumentHypothesis(("ein hund ein hund",), -1.0, 0.0, True),
        DocumentHypothesis(("ein hund",), -1.0, -1.0, True),
    ]
    (ranked,) = rescore(translator, [SOURCES[1]], [hypotheses], length_penalty=0.0)
    assert [h.segments[0] for h in ranked] == ["ein hund", "ein hund ein hund"]
    assert [h.score for h in ranked] == pytest.approx([s.log_probability for s in scores], abs=1e-4)
    assert [h.old_score for h in ranked] == [-1.0, 0.0]
    (ranked,) = rescore(translator, [SOURCES[1]], [hypotheses], length_penalty=0.0, old_weight=1000.0)
    assert ranked[0].segments == ("ein hund ein hund",)
    (ranked,) = rescore(translator, [SOURCES[1]], [hypotheses[:1]])
    assert ranked[0].score == pytest.approx(scores[1].log_probability / scores[1].tokens)  # length penalty 1


def test_numbers_of_a_score():
    score = DocumentScore((SegmentScore(-2.0, 3), SegmentScore(-1.0, 1)), -0.5)
    assert (score.log_probability, score.tokens) == (-3.5, 5)
    assert score.normalized(0) == -3.5
    assert score.normalized(1) == -0.7
    assert perplexity([score, score]) == pytest.approx(math.exp(0.7))


def test_wrong_calls_are_refused(translator):
    with pytest.raises(ValueError, match="1 sources and 0 translations: wanted"):
        score_documents(translator, [["a"]], [])
    with pytest.raises(ValueError, match="n-best list of document 1 is empty"):
        rescore(translator, [["a"], ["b"]], [[DocumentHypothesis(("x",), 0.0, 0.0, True)], []])
    with pytest.raises(ValueError, match="no translation"):
        perplexity([])
