"""Search against fake models whose best hypothesis is known by hand or by exhaustive search."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

from scaleformer.decoding import active
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.sampling import sample
from scaleformer.decoding.search import decode
from scaleformer.vocabulary import BOS, EOS, PAD, SEP
from tests.search import (
    PLAIN,
    SETTINGS,
    SIZE,
    SOURCES,
    WITHOUT_LOOPS,
    A,
    B,
    C,
    FakeModel,
    batch,
    free,
    loops,
    random_logits,
    table,
)


def test_greedy_follows_the_most_probable_token_and_scores_it():
    chain = {BOS: {A: 0.6, B: 0.4}, A: {SEP: 0.9, EOS: 0.1}, SEP: {EOS: 0.7, A: 0.3}}
    model = FakeModel(lambda source, written: table(chain[written[-1]]))
    [[found]] = decode(model, *batch([A, SEP, EOS]), free(strategy="greedy", length_penalty=0.5))
    assert found.tokens == (A, SEP)
    assert found.finished
    assert found.log_probability == pytest.approx(math.log(0.6 * 0.9 * 0.7), rel=1e-6)
    assert found.score == pytest.approx(math.log(0.6 * 0.9 * 0.7) / math.sqrt(3), rel=1e-6)


@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_is_longer_than_the_model_can_write(name: str) -> None:
    """Greedy search with a limit writes a prefix of the unlimited output."""
    free, limited = (FakeModel(lambda *args: random_logits(*args)) for _ in range(2))
    limited.most_target_tokens = 4
    whole, cut = (decode(model, *batch(*SOURCES), SETTINGS[name]) for model in (free, limited))
    assert any(len(found.tokens) > 4 for hypotheses in whole for found in hypotheses)
    assert len(limited.steps) == 4
    for found in (found for hypotheses in cut for found in hypotheses):
        assert len(found.tokens) + found.finished <= 4
    if not name.startswith("beam"):
        assert [found.tokens for [found] in cut] == [found.tokens[:4] for [found] in whole]


def test_beam_finds_what_greedy_misses():
    def logits(source, written):
        chain = {(): {A: 0.6, B: 0.4}, (A,): {EOS: 0.5, C: 0.5}, (B,): {EOS: 0.9, C: 0.1}}
        return table(chain.get(written[1:], {EOS: 1.0}))

    greedy, beam = (
        decode(FakeModel(logits), *batch([A, SEP, EOS]), free(strategy=s, beam_size=2))[0][0]
        for s in ("greedy", "beam")
    )
    assert greedy.log_probability == pytest.approx(math.log(0.3), rel=1e-6)
    assert beam.tokens == (B,)
    assert beam.log_probability == pytest.approx(math.log(0.36), rel=1e-6)


@pytest.mark.parametrize(
    ("alpha", "winner", "score"),
    [(0.0, (), math.log(0.5)), (1.0, (A, A), math.log(0.4) / 3)],
    ids=["no penalty: the short one", "mean: the long one"],
)
def test_length_penalty_by_hand(alpha, winner, score):
    chain = {(): {EOS: 0.5, A: 0.4, B: 0.1}, (A,): {A: 1.0}, (A, A): {EOS: 1.0}}
    model = FakeModel(lambda source, written: table(chain.get(written[1:], {EOS: 1.0})))
    config = free(strategy="beam", beam_size=3, length_penalty=alpha)
    [[found]] = decode(model, *batch([A, SEP, EOS]), config)
    assert found.tokens == winner
    assert found.score == pytest.approx(score, rel=1e-6)


def test_a_live_hypothesis_that_beats_the_worst_finished_one_goes_on():
    """After two steps `()` has a mean of log 0.5, `(B,)` of log(0.18) / 2, and `(A, A)`, alive, of log(0.2475) / 2."""
    chain = {(): {EOS: 0.5, A: 0.25, B: 0.25}, (A,): {A: 0.99, EOS: 0.01}, (B,): {EOS: 0.72, A: 0.28}}
    model = FakeModel(lambda source, written: table(chain.get(written[1:], {EOS: 1.0})))
    config = free(strategy="beam", beam_size=2, length_penalty=1.0)
    [[found]] = decode(model, *batch([A, SEP, EOS]), config)
    assert found.tokens == (A, A)
    assert found.score == pytest.approx(math.log(0.2475) / 3, rel=1e-6)


def test_improbable_ends_do_not_stop_the_search():
    """Two ends of probability 1e-9 rank second at the first two steps, since there are no other words."""

    def logits(source, written):
        return table({A: 1.0, EOS: 1e-9} if len(written) < 6 else {EOS: 1.0})

    [[found]] = decode(FakeModel(logits), *batch([A, SEP, EOS]), free(strategy="beam", beam_size=2))
    assert found.tokens == (A,) * 5


def everything(
    logits, source: tuple[int, ...], limit: int, alpha: float, ngram: int
) -> list[tuple[float, tuple[int, ...]]]:
    """Score and tokens of every target of at most `limit` tokens with `</s>`, best first."""
    words = [t for t in PLAIN if t not in (PAD, BOS, EOS)]
    scored = []
    for n in range(limit):
        for tokens in itertools.product(words, repeat=n):
            if ngram and loops(tokens, source, ngram):
                continue
            total, written = 0.0, (BOS,)
            for token in (*tokens, EOS):
                total += float(logits(source, written).log_softmax(0)[token])
                written = (*written, token)
            scored.append((total / (n + 1) ** alpha, tokens))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize(("alpha", "ngram"), [(0.0, 0), (0.6, 0), (1.0, 0), (1.0, 1), (0.6, 2)])
def test_wide_beam_equals_exhaustive_search(alpha, ngram):
    sources = [[A, SEP, EOS], [B, C, SEP, EOS]]
    config = free(
        strategy="beam",
        beam_size=160,
        n_best=20,
        length_penalty=alpha,
        max_length_ratio=0,
        max_length_offset=4,
        loop_ngram_size=ngram,
    )
    for found, source in zip(decode(FakeModel(random_logits), *batch(*sources), config), sources, strict=True):
        expected = everything(random_logits, tuple(source), 4, alpha, ngram)[:20]
        assert [h.tokens for h in found] == [tokens for _, tokens in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], rel=1e-5)


@pytest.mark.parametrize("matched", [False, True], ids=["free", "match_segments"])
def test_beam_of_one_is_greedy(matched):
    greedy, beam = (
        decode(
            FakeModel(random_logits),
            *batch(*SOURCES),
            free(strategy=s, beam_size=1, match_segments=matched, max_length_ratio=1.0, max_length_offset=2),
        )
        for s in ("greedy", "beam")
    )
    for [one], [other] in zip(greedy, beam, strict=True):
        assert (one.tokens, one.finished) == (other.tokens, other.finished)
        assert one.score == pytest.approx(other.score, rel=1e-6)


def test_n_best_is_sorted_and_distinct():
    config = free(strategy="beam", beam_size=6, n_best=6)
    for found in decode(FakeModel(random_logits), *batch(*SOURCES), config):
        assert len(found) == 6
        assert len({h.tokens for h in found}) == 6
        finished = [h.score for h in found if h.finished]
        assert finished == sorted(finished, reverse=True)
        assert [h.finished for h in found] == sorted((h.finished for h in found), reverse=True)


@pytest.mark.parametrize("every", [1, 3, 16], ids=lambda n: f"look every {n}")
@pytest.mark.parametrize("name", SETTINGS | WITHOUT_LOOPS)
def test_batch_equals_one_by_one(name, every, monkeypatch):
    config = (SETTINGS | WITHOUT_LOOPS)[name]
    single = [decode(FakeModel(random_logits), *batch(source), config)[0] for source in SOURCES]
    monkeypatch.setattr(active, "CHECK_EVERY", {"cpu": every})
    assert decode(FakeModel(random_logits), *batch(*SOURCES), config) == single


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_finished_documents_leave_the_batch(strategy):
    def until_source_length(source, written):
        return table({EOS: 0.9, A: 0.1} if len(written) >= len(source) else {EOS: 1e-9, A: 1.0})

    sources = [[A] * n + [SEP, EOS] for n in (1, 2, 3, 40)]
    model = FakeModel(until_source_length)
    found = decode(model, *batch(*sources), free(strategy=strategy, beam_size=2))
    assert [len(h[0].tokens) for h in found] == [len(source) - 1 for source in sources]
    rows = 2 if strategy == "beam" else 1
    assert model.steps[-1] == rows
    assert model.steps == sorted(model.steps, reverse=True)
    assert 1 <= model.compactions <= 3


def test_samples_are_seeded_and_follow_the_distribution():
    chain = {BOS: {A: 0.5, B: 0.3, C: 0.2}, A: {EOS: 1.0}, B: {EOS: 1.0}, C: {EOS: 1.0}}
    model = FakeModel(lambda source, written: table(chain[written[-1]]))

    def draw(**settings):
        config = free(strategy="sample", n_best=4000, **settings)
        return [h.tokens[0] for h in decode(model, *batch([A, SEP, EOS]), config)[0]]

    tokens = draw(seed=3)
    assert tokens == draw(seed=3)
    assert tokens != draw(seed=4)
    for token, share in ((A, 0.5), (B, 0.3), (C, 0.2)):
        assert tokens.count(token) / 4000 == pytest.approx(share, abs=0.03)
    cold = draw(temperature=0.5)  # probabilities squared: .25, .09, .04 of .38
    assert cold.count(A) / 4000 == pytest.approx(0.25 / 0.38, abs=0.03)


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [({"top_k": 1}, {A}), ({"top_k": 2}, {A, B}), ({"top_p": 0.5}, {A}), ({"top_p": 0.51}, {A, B}), ({}, {A, B, C})],
    ids=["top_k=1", "top_k=2", "top_p=.5", "top_p=.51", "all"],
)
def test_sampling_keeps_only_the_most_probable(settings, allowed):
    logits = table({A: 0.5, B: 0.3, C: 0.2}).expand(2000, SIZE)
    config = free(strategy="sample", **settings)
    tokens = sample(logits, config, torch.linspace(0, 1 - 1e-12, 2000, dtype=torch.double))
    assert set(tokens.tolist()) == allowed


def test_samples_do_not_depend_on_what_else_is_in_the_batch():
    model = FakeModel(random_logits)
    config = free(strategy="sample", n_best=3, max_length_ratio=0, max_length_offset=600, temperature=0.5)
    names = ["a", "b", "c", "d"]
    together = decode(model, *batch(*SOURCES), config, keys=names)
    assert together == [decode(model, *batch(s), config, keys=[n])[0] for s, n in zip(SOURCES, names, strict=True)]
    assert together != decode(model, *batch(*SOURCES), config, keys=names[::-1])
    [[alone]] = decode(model, *batch(SOURCES[0]), replace(config, n_best=1), keys=["a"])
    assert alone in together[0]


def test_progress_counts_the_tokens_written():
    model = FakeModel(lambda source, written: table({EOS: 0.9, A: 0.1} if len(written) == 4 else {A: 1.0}))
    calls: list[tuple[int, float]] = []
    decode(model, *batch(SOURCES[0], SOURCES[2]), free(strategy="greedy"), progress=lambda *at: calls.append(at))
    counts, shares = zip(*calls, strict=True)
    assert sum(counts) == 2 * 4
    assert shares[-1] == 1


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_progress_within_a_document_counts_its_segments(strategy):
    model = FakeModel(lambda source, written: table({SEP: 1.0} if len(written) % 3 == 0 else {A: 1.0}))
    shares: list[float] = []
    config = DecodingConfig(strategy=strategy, beam_size=1)
    decode(model, *batch([A, B, SEP] * 10 + [EOS]), config, progress=lambda _, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[15] == pytest.approx(0.5, abs=0.06)
    assert shares[-1] == 1


def test_nan_is_one_clear_error():
    model = FakeModel(lambda source, written: torch.full((SIZE,), math.nan))
    with pytest.raises(ValueError, match="NaN"):
        decode(model, *batch([A, SEP, EOS]), free())


def test_shapes_that_differ_are_named():
    source, mask, segments = batch([A, SEP, EOS])
    with pytest.raises(ValueError, match=r"\(1, 3\), \(1, 2\), \(1, 3\)"):
        decode(FakeModel(random_logits), source, mask[:, :2], segments, free())
