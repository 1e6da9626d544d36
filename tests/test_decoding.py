"""Search against fake models whose best hypothesis can be worked out by hand or by trying everything."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from scaleformer import decoding_state
from scaleformer.decoding import DecodingConfig, decode, sample
from scaleformer.decoding_state import BOS, EOS, PAD, SEP

A, B, C = 5, 6, 7  # three words, after pad, unk, bos, eos, sep


class FakeModel:
    """Logits (V,) from (source tokens, all target tokens fed so far).

    The state holds each row's own tokens and each document's source, so a wrong reorder gives wrong logits. It also
    asks that every row is fed the tokens, counts of `<sep>` and beam numbers that the contract promises.
    """

    def __init__(self, logits) -> None:
        self.logits = logits
        self.steps: list[int] = []  # rows of each step
        self.compactions = 0

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor):
        return [tuple(row[mask].tolist()) for row, mask in zip(source, source_mask, strict=True)]

    def init_state(self, memory, beams: int):
        return {"sources": memory, "beams": beams, "written": [()] * (len(memory) * beams)}

    def step(self, tokens: Tensor, segments: Tensor, state):
        sources, K = state["sources"], state["beams"]
        assert tokens.shape == segments.shape == (len(sources) * K,)
        self.steps.append(len(tokens))
        written = [(*before, token) for before, token in zip(state["written"], tokens.tolist(), strict=True)]
        for row, count in zip(written, segments.tolist(), strict=True):
            assert row[0] == BOS
            assert count == row.count(SEP)
        logits = torch.stack([self.logits(sources[i // K], row) for i, row in enumerate(written)])
        return logits, {"sources": sources, "beams": K, "written": written}

    def reorder(self, state, rows: Tensor, documents: Tensor | None):
        K = state["beams"]
        sources = state["sources"]
        old_documents = torch.arange(len(sources)) if documents is None else documents
        assert torch.equal(rows // K, old_documents.repeat_interleave(K)), "a row went over to another document"
        if documents is not None:
            self.compactions += 1
            sources = [sources[i] for i in documents.tolist()]
        return {"sources": sources, "beams": K, "written": [state["written"][i] for i in rows.tolist()]}


def table(probabilities: dict[int, float], size: int = 8) -> Tensor:
    """Logits of a distribution; what is not named has probability 0."""
    logits = torch.full((size,), -math.inf)
    for token, probability in probabilities.items():
        logits[token] = math.log(probability)
    return logits


def random_logits(source: tuple[int, ...], written: tuple[int, ...], scale: float = 2.0, size: int = 8) -> Tensor:
    """A distribution of its own for every source and prefix."""
    seed = hash((source, written)) % 2**31
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * scale


def batch(*sources: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    length = max(len(s) for s in sources)
    source = torch.tensor([s + [PAD] * (length - len(s)) for s in sources])
    mask = torch.tensor([[True] * len(s) + [False] * (length - len(s)) for s in sources])
    is_sep = (source == SEP).long()
    return source, mask, is_sep.cumsum(1) - is_sep


SOURCES = [[A, SEP, EOS], [B, B, SEP, C, SEP, EOS], [C, SEP, EOS], [A, B, C, SEP, A, SEP, B, C, SEP, EOS]]
SETTINGS = {
    "greedy": DecodingConfig(strategy="greedy", max_length_ratio=1.0, max_length_offset=3),
    "beam": DecodingConfig(strategy="beam", beam_size=3, n_best=2, max_length_ratio=1.0, max_length_offset=3),
}
SETTINGS |= {f"{name}, matched": replace(config, match_segments=True) for name, config in SETTINGS.items()}
UNREPEATED = {f"{name}, 2-grams once": replace(config, no_repeat_ngram_size=2) for name, config in SETTINGS.items()}


def test_greedy_follows_the_most_probable_token_and_scores_it():
    chain = {BOS: {A: 0.6, B: 0.4}, A: {SEP: 0.9, EOS: 0.1}, SEP: {EOS: 0.7, A: 0.3}}
    model = FakeModel(lambda source, written: table(chain[written[-1]]))
    [[found]] = decode(model, *batch([A, SEP, EOS]), DecodingConfig(strategy="greedy", length_penalty=0.5))
    assert found.tokens == (A, SEP)
    assert found.finished
    assert found.log_probability == pytest.approx(math.log(0.6 * 0.9 * 0.7), rel=1e-6)
    assert found.score == pytest.approx(math.log(0.6 * 0.9 * 0.7) / math.sqrt(3), rel=1e-6)


def test_beam_finds_what_greedy_misses():
    def logits(source, written):
        chain = {(): {A: 0.6, B: 0.4}, (A,): {EOS: 0.5, C: 0.5}, (B,): {EOS: 0.9, C: 0.1}}
        return table(chain.get(written[1:], {EOS: 1.0}))

    greedy, beam = (
        decode(FakeModel(logits), *batch([A, SEP, EOS]), DecodingConfig(strategy=s, beam_size=2))[0][0]
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
    config = DecodingConfig(strategy="beam", beam_size=3, length_penalty=alpha)
    [[found]] = decode(model, *batch([A, SEP, EOS]), config)
    assert found.tokens == winner
    assert found.score == pytest.approx(score, rel=1e-6)


def test_improbable_ends_do_not_stop_the_search():
    """Two ends of probability 1e-9 rank second at the first two steps, for want of other words."""

    def logits(source, written):
        return table({A: 1.0, EOS: 1e-9} if len(written) < 6 else {EOS: 1.0})

    [[found]] = decode(FakeModel(logits), *batch([A, SEP, EOS]), DecodingConfig(strategy="beam", beam_size=2))
    assert found.tokens == (A,) * 5


def repeats(tokens: tuple[int, ...], n: int) -> bool:
    """Whether a segment has an n-gram twice."""
    segments = [tuple(text) for end, text in itertools.groupby(tokens, lambda t: t == SEP) if not end]
    ngrams = [[s[i : i + n] for i in range(len(s) - n + 1)] for s in segments]
    return any(len(found) > len(set(found)) for found in ngrams)


def everything(
    logits, source: tuple[int, ...], limit: int, alpha: float, ngram: int
) -> list[tuple[float, tuple[int, ...]]]:
    """Score and tokens of every target of at most `limit` tokens with `</s>`, best first."""
    words = [t for t in range(8) if t not in (PAD, BOS, EOS)]
    scored = []
    for n in range(limit):
        for tokens in itertools.product(words, repeat=n):
            if ngram and repeats(tokens, ngram):
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
    config = DecodingConfig(
        strategy="beam",
        beam_size=160,
        n_best=20,
        length_penalty=alpha,
        max_length_ratio=0,
        max_length_offset=4,
        no_repeat_ngram_size=ngram,
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
            DecodingConfig(strategy=s, beam_size=1, match_segments=matched, max_length_ratio=1.0, max_length_offset=2),
        )
        for s in ("greedy", "beam")
    )
    for [one], [other] in zip(greedy, beam, strict=True):
        assert (one.tokens, one.finished) == (other.tokens, other.finished)
        assert one.score == pytest.approx(other.score, rel=1e-6)


def test_n_best_is_sorted_and_distinct():
    config = DecodingConfig(strategy="beam", beam_size=6, n_best=6)
    for found in decode(FakeModel(random_logits), *batch(*SOURCES), config):
        assert len(found) == 6
        assert len({h.tokens for h in found}) == 6
        finished = [h.score for h in found if h.finished]
        assert finished == sorted(finished, reverse=True)
        assert [h.finished for h in found] == sorted((h.finished for h in found), reverse=True)


@pytest.mark.parametrize("every", [1, 3, 16], ids=lambda n: f"look every {n}")
@pytest.mark.parametrize("name", SETTINGS | UNREPEATED)
def test_batch_equals_one_by_one(name, every, monkeypatch):
    config = (SETTINGS | UNREPEATED)[name]
    single = [decode(FakeModel(random_logits), *batch(source), config)[0] for source in SOURCES]
    monkeypatch.setattr(decoding_state, "CHECK_EVERY", {"cpu": every})
    assert decode(FakeModel(random_logits), *batch(*SOURCES), config) == single


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
def test_finished_documents_leave_the_batch(strategy):
    def until_source_length(source, written):
        return table({EOS: 0.9, A: 0.1} if len(written) >= len(source) else {EOS: 1e-9, A: 1.0})

    sources = [[A] * n + [SEP, EOS] for n in (1, 2, 3, 40)]
    model = FakeModel(until_source_length)
    found = decode(model, *batch(*sources), DecodingConfig(strategy=strategy, beam_size=2))
    assert [len(h[0].tokens) for h in found] == [len(source) - 1 for source in sources]
    rows = 2 if strategy == "beam" else 1
    assert model.steps[-1] == rows
    assert model.steps == sorted(model.steps, reverse=True)
    assert 1 <= model.compactions <= 3


@pytest.mark.parametrize("name", SETTINGS)
def test_a_document_at_its_limit_is_reported(name):
    config = replace(SETTINGS[name], max_length_ratio=0.5, max_length_offset=2, n_best=1)
    model = FakeModel(lambda source, written: table({A: 0.9, SEP: 0.06, EOS: 0.04}))
    found = decode(model, *batch(*SOURCES), config)
    for [hypothesis], source in zip(found, SOURCES, strict=True):
        if "matched" in name:
            texts = [list(text) for end, text in itertools.groupby(hypothesis.tokens, lambda t: t == SEP) if not end]
            sizes = [len(list(text)) for end, text in itertools.groupby(source[:-1], lambda t: t == SEP) if not end]
            assert hypothesis.tokens.count(SEP) == source.count(SEP)
            assert all(len(text) <= size // 2 + 2 for text, size in zip(texts, sizes, strict=True))
        else:
            assert len(hypothesis.tokens) <= len(source) // 2 + 2
    if name == "greedy":
        segments = (2, 3, 2, 3)  # the most tokens of one, after the longest of the source
        full = [((A,) * n + (SEP,)) * 9 for n in segments]
        assert [h[0].tokens for h in found] == [
            tokens[: len(s) // 2 + 2] for tokens, s in zip(full, SOURCES, strict=True)
        ]
    if name in ("greedy", "greedy, matched"):
        assert not any(h[0].finished for h in found)
        assert found[0][0].log_probability < 0


@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_match_segments_forces_the_count(strategy):
    config = DecodingConfig(strategy=strategy, match_segments=True, beam_size=3)
    early = FakeModel(lambda source, written: table({EOS: 0.8, SEP: 0.1, A: 0.1}))
    late = FakeModel(lambda source, written: table({EOS: 0.01, SEP: 0.9, A: 0.09}))
    for model in (early, late):
        for [hypothesis], source in zip(decode(model, *batch(*SOURCES), config), SOURCES, strict=True):
            assert hypothesis.tokens.count(SEP) == source.count(SEP)
            assert hypothesis.tokens[-1] == SEP


@pytest.mark.parametrize("strategy", ["greedy", "beam"])
@pytest.mark.parametrize("matched", [False, True], ids=["free", "match_segments"])
def test_a_runaway_segment_leaves_room_for_the_others(matched, strategy):
    def logits(source, written):
        if SEP not in written:
            return table({A: 0.998, SEP: 0.001 if len(written) > 5 else 1e-12, EOS: 1e-12})
        return table({SEP: 0.001, B: 0.001, EOS: 0.998} if written.count(SEP) == 3 else {SEP: 0.998, EOS: 0.002})

    config = DecodingConfig(
        strategy=strategy, beam_size=2, match_segments=matched, max_length_ratio=2.0, max_length_offset=1
    )
    [[found]] = decode(FakeModel(logits), *batch([A, A, SEP, B, SEP, C, SEP, EOS]), config)
    assert found.tokens == (A,) * 5 + (SEP, SEP, SEP)
    assert not found.finished


def looping_logits(source: tuple[int, ...], written: tuple[int, ...]) -> Tensor:
    """A B A B ... nearly always, now and then a C, an end of the segment or of all."""
    logits = random_logits(source, written)
    logits[A if written[-1] == B else B] += 6
    return logits


def slow_unrepeated(source: tuple[int, ...], n: int, limit: int) -> tuple[int, ...]:
    """Greedy search that looks at everything written for every candidate."""
    written: tuple[int, ...] = (BOS,)
    while len(written) - 1 < limit:
        ranked = looping_logits(source, written).argsort(descending=True).tolist()
        token = next(t for t in ranked if t not in (PAD, BOS) and not repeats((*written[1:], t), n))
        if token == EOS:
            break
        written = (*written, token)
    return written[1:]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_greedy_without_repeated_ngrams(n):
    config = DecodingConfig(strategy="greedy", max_length_ratio=0, max_length_offset=40, no_repeat_ngram_size=n)
    free = decode(FakeModel(looping_logits), *batch(*SOURCES), replace(config, no_repeat_ngram_size=0))
    found = decode(FakeModel(looping_logits), *batch(*SOURCES), config)
    assert all(repeats(before.tokens, n) for [before] in free)
    for [hypothesis], source in zip(found, SOURCES, strict=True):
        assert hypothesis.tokens == slow_unrepeated(tuple(source), n, 40)


@pytest.mark.parametrize("strategy", ["beam", "sample"])
@pytest.mark.parametrize("matched", [False, True], ids=["free", "match_segments"])
def test_no_hypothesis_repeats_ngrams(strategy, matched):
    config = DecodingConfig(strategy=strategy, beam_size=4, n_best=4, match_segments=matched, no_repeat_ngram_size=2)
    for settings, repeated in ((config, False), (replace(config, no_repeat_ngram_size=0), True)):
        found = decode(FakeModel(looping_logits), *batch(*SOURCES), settings)
        assert any(repeats(h.tokens, 2) for hypotheses in found for h in hypotheses) == repeated


def test_segments_may_repeat_each_other():
    model = FakeModel(lambda source, written: table({A: 0.9, SEP: 0.08, EOS: 0.02}))
    config = DecodingConfig(strategy="greedy", match_segments=True, no_repeat_ngram_size=1)
    [[found]] = decode(model, *batch([B, SEP, C, SEP, A, SEP, EOS]), config)
    assert found.tokens == (A, SEP) * 3
    assert found.finished


def test_pads_and_starts_are_never_written():
    model = FakeModel(lambda source, written: table({PAD: 0.5, BOS: 0.3, A: 0.15, EOS: 0.05}))
    for strategy in ("greedy", "beam", "sample"):
        config = DecodingConfig(strategy=strategy, n_best=1 if strategy == "greedy" else 3)
        for hypotheses in decode(model, *batch(*SOURCES), config):
            assert all({PAD, BOS}.isdisjoint(h.tokens) for h in hypotheses)


def test_samples_are_seeded_and_follow_the_distribution():
    chain = {BOS: {A: 0.5, B: 0.3, C: 0.2}, A: {EOS: 1.0}, B: {EOS: 1.0}, C: {EOS: 1.0}}
    model = FakeModel(lambda source, written: table(chain[written[-1]]))

    def draw(**settings):
        config = DecodingConfig(strategy="sample", n_best=4000, **settings)
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
    logits = table({A: 0.5, B: 0.3, C: 0.2}).expand(2000, 8)
    config = DecodingConfig(strategy="sample", **settings)
    tokens = sample(logits, config, torch.Generator().manual_seed(1))
    assert set(tokens.tolist()) == allowed


def test_a_generator_goes_on_where_it_was():
    model = FakeModel(lambda source, written: random_logits((), written))
    generator = torch.Generator().manual_seed(1)
    config = DecodingConfig(strategy="sample", n_best=5)
    first, second = (decode(model, *batch(SOURCES[0]), config, generator=generator) for _ in range(2))
    assert first == decode(model, *batch(SOURCES[0]), config)
    assert first != second


def test_progress_counts_the_tokens_written():
    model = FakeModel(lambda source, written: table({EOS: 0.9, A: 0.1} if len(written) == 4 else {A: 1.0}))
    counts: list[int] = []
    decode(model, *batch(SOURCES[0], SOURCES[2]), DecodingConfig(strategy="greedy"), progress=counts.append)
    assert sum(counts) == 2 * 4


def test_nan_is_one_clear_error():
    model = FakeModel(lambda source, written: torch.full((8,), math.nan))
    with pytest.raises(ValueError, match="NaN"):
        decode(model, *batch([A, SEP, EOS]), DecodingConfig())


def test_shapes_that_differ_are_named():
    source, mask, segments = batch([A, SEP, EOS])
    with pytest.raises(ValueError, match=r"\(1, 3\), \(1, 2\), \(1, 3\)"):
        decode(FakeModel(random_logits), source, mask[:, :2], segments, DecodingConfig())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "best"}, "strategy='best' .*greedy, beam, sample"),
        ({"beam_size": 0}, "beam_size=0"),
        ({"beam_size": 2.5}, r"beam_size=2\.5"),
        ({"length_penalty": -1}, "length_penalty=-1"),
        ({"length_penalty": 400}, "length_penalty=400"),
        ({"strategy": "beam", "beam_size": 2, "n_best": 3}, "n_best=3 .*at most 2"),
        ({"strategy": "greedy", "n_best": 2}, "at most 1 with strategy=greedy"),
        ({"max_length_offset": 0}, "max_length_offset=0"),
        ({"temperature": 0}, "temperature=0"),
        ({"temperature": 1e-40}, "temperature=1e-40"),
        ({"top_p": 0}, "top_p=0"),
        ({"top_k": -1, "seed": -1}, "top_k=-1 .*seed=-1"),
        ({"no_repeat_ngram_size": -3}, r"no_repeat_ngram_size=-3 \(wanted a whole number from 1 to 100, 0 for"),
        ({"match_segments": "yes"}, "match_segments='yes'"),
        ({"max_length_ratio": math.inf}, "max_length_ratio=inf"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        DecodingConfig(**settings)


def test_unknown_setting_is_named():
    with pytest.raises(ValueError, match="no such decoding setting: beams; there are strategy, beam_size"):
        DecodingConfig.from_mapping({"beams": 3})
    assert DecodingConfig.from_mapping({"beam_size": 3}).beam_size == 3
