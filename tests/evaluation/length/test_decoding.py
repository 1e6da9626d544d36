"""Translations by views against a search that runs the whole model for every token."""

from __future__ import annotations

import random

import pytest
import torch

from scaleformer.batch import Batch
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.evaluation.length.decoding import PrefixedModel, translate_views
from scaleformer.evaluation.length.views import Window, views
from scaleformer.vocabulary import BOS, EOS, PAD, SEP, consumed, steps_of
from tests.helpers import make_model
from tests.search import A, B, C, batch

CPU = torch.device("cpu")


def make_sources(*segments: int) -> list[list[list[int]]]:
    generator = random.Random(3)
    return [[[*(generator.randrange(5, 20) for _ in range(3)), SEP] for _ in range(count)] for count in segments]


@torch.inference_mode()
def slow_greedy(model, source: list[int], prefix: list[int], limit: int, most: int) -> tuple[list[int], bool]:
    """The continuation of the prefix, by a full forward pass for every token, at most `limit` in total and `most` in a
    segment; and whether everything ended by itself."""
    written, whole = list(prefix), True
    sources = torch.tensor([[*source, EOS]])
    separators = (sources == SEP).long()
    while len(written) < limit:
        given = torch.tensor([[BOS, *written]])
        everything = torch.ones_like(sources).bool(), torch.ones_like(given).bool()
        inputs = Batch(
            source=sources,
            source_mask=everything[0],
            source_segments=separators.cumsum(1) - separators,
            target_input=given,
            target_output=given,
            target_mask=everything[1],
            target_segments=consumed(given).cumsum(1),
        )
        logits = model.logits(model(inputs)[:, -1])  # (1, V)
        logits[:, [PAD, BOS]] = -torch.inf
        token = int(logits.argmax())
        if len(written) - max((i + 1 for i, t in enumerate(written) if steps_of(t)), default=0) >= most:
            whole &= bool(steps_of(token))
            token = token if steps_of(token) else SEP
        if token == EOS:
            return written[len(prefix) :], whole
        written.append(token)
    return written[len(prefix) :], False


@pytest.mark.parametrize("attention", ["scaleformer", "segment_recall", "softmax"])
@pytest.mark.parametrize("mode", ["pass", "segments", "window"])
def test_greedy_by_views(attention, mode):
    model = make_model(attention={"name": attention})
    sources = make_sources(4, 1, 6)
    seen = [views(mode, [len(s) for s in source], Window("segments", 4, 2)) for source in sources]
    config = DecodingConfig(
        strategy="greedy",
        match_segments=False,
        max_length_ratio=0.7,
        max_length_offset=4,
        loop_ngram_size=0,
        batch_tokens=24,
    )
    shares: list[float] = []
    found = translate_views(model, sources, seen, config, CPU, lambda share, tokens: shares.append(share))
    for source, of_one, translation in zip(sources, seen, found, strict=True):
        written: dict[int, list[int]] = {}
        finished = True
        for view in of_one:
            read = [t for s in source[view.start : view.stop] for t in s]
            prefix = [t for at in written if view.start <= at < view.new for t in written[at]]
            most = int(0.7 * max(len(s) - 1 for s in source[view.start : view.stop])) + 4
            new, ended = slow_greedy(model, read, prefix, int(0.7 * (len(read) + 1)) + 4, most)
            if view.stop < len(source) and steps_of(new[-1]) is None:
                new.append(SEP)
            written[view.new] = new
            finished &= ended
        assert translation.parts == tuple(map(tuple, written.values()))
        assert translation.finished == finished
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


@pytest.mark.parametrize("ngram", [0, 1], ids=["", "no token twice"])
@pytest.mark.parametrize("strategy", ["greedy", "beam", "sample"])
def test_given_prefixes(strategy, ngram):
    """Every hypothesis begins as given; without a prefix, the wrapper changes nothing."""
    model = make_model()
    given = batch([A, B, C, SEP, B, A, SEP, EOS], [C, A, A, B, SEP, EOS], [B, C, SEP, C, C, SEP, EOS])
    config = DecodingConfig(
        strategy=strategy,
        beam_size=3,
        n_best=1 if strategy == "greedy" else 3,
        max_length_ratio=1.5,
        loop_ngram_size=ngram,
    )
    prefixes = torch.tensor([[A, A, A, SEP], [C, PAD, PAD, PAD], [PAD, PAD, PAD, PAD]])
    found = decode(PrefixedModel(model, prefixes, torch.tensor([4, 1, 0])), *given, config)
    for hypotheses, wanted in zip(found, [(A, A, A, SEP), (C,), ()], strict=True):
        assert len(hypotheses) == config.n_best
        assert all(h.tokens[: len(wanted)] == wanted for h in hypotheses)
    free = decode(PrefixedModel(model, prefixes, torch.zeros(3, dtype=torch.long)), *given, config)
    assert free == decode(model, *given, config)


def test_text_without_words_stays_empty():
    model = make_model()
    sources = [[[SEP], [SEP]], [[5, 6, SEP], [SEP], [7, SEP]]]
    config = DecodingConfig(strategy="greedy", match_segments=False, max_length_ratio=1.0)
    found = translate_views(model, sources, [views("pass", [1, 1]), views("segments", [3, 1, 2])], config, CPU)
    assert found[0].parts == ((SEP, SEP),)
    assert found[1].parts[1] == (SEP,)
