"""Beams by segments against a search that reads all that stands before a token again."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.drafts import decode_drafts
from scaleformer.decoding.search import decode
from scaleformer.decoding.state import pad
from scaleformer.model.transformer import Transformer
from scaleformer.vocabulary import BOS, EOS, SEP, consumed, is_separator, steps_of
from tests.decoding.test_drafts import CPU, document, model_of, some_forced

GREEDY = DecodingConfig(strategy="greedy", max_length_ratio=1.5)
BEAM = replace(GREEDY, strategy="beam", beam_size=4)


class AfterText:
    """Continues a text after a source, by reading the whole text at each step."""

    most_target_tokens = float("inf")

    def __init__(self, model: Transformer, source: list[int], before: list[int]) -> None:
        self.model, self.before = model, torch.tensor([BOS, *before])
        self.source = pad([source], CPU)

    def encode(self, *_: Any) -> None:
        return None

    def init_state(self, encoded: None, beams: int) -> torch.Tensor:
        return self.before.expand(beams, -1)

    def step(self, tokens: torch.Tensor, segments: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if state.shape[1] > len(self.before) or tokens[0] != BOS:
            state = torch.cat([state, tokens[:, None]], 1)
        source = [part.expand(len(state), -1) for part in self.source]
        given = state, consumed(state).cumsum(1), torch.ones_like(state, dtype=torch.bool)
        _, states = self.model.read_target(self.model.encode(*source), *given)
        return self.model.logits(states[:, -1]).float(), state

    def reorder(self, state: torch.Tensor, rows: torch.Tensor, documents: Any) -> torch.Tensor:
        return state[rows]


def by_segment(tokens: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """The numbers of the source segments with texts of their own, and these."""
    found, number, begun = [], 0, 0
    for place, token in enumerate(tokens):
        if steps := steps_of(token):
            found.append((number, tokens[begun : place + 1]))
            number, begun = number + steps, place + 1
    return found


@pytest.mark.parametrize(
    ("seed", "settings"),
    [
        (seed, settings)
        for n, settings in enumerate(({"merge_segments": False}, {"loop_ngram_size": 1}, {"length_penalty": 0.0}))
        for seed in (n, (n + 2) % 4)
    ],
)
def test_each_segment_is_the_best_after_greedy_texts(seed: int, settings: dict[str, Any]) -> None:
    rng = random.Random(seed)
    model = model_of(seed, *rng.choice([(0, 2), (3, 64), (1, 2, 1), (1, 4, None, "segments")]))
    source, config = document(rng, 5), replace(BEAM, **settings)
    forced = some_forced(rng, source)
    drafts = [[None] * 5]
    [[greedy]] = decode_drafts(model, [source], drafts, replace(config, strategy="greedy"), CPU, forced=[forced])
    [[found]] = decode_drafts(model, [source], drafts, config, CPU, forced=[forced])
    before: list[int] = []
    parts: list[list[int]] = [[]]
    for token in source:
        parts[-1].append(token)
        parts += [[]] * (token == SEP)
    expected: dict[int, tuple[int, ...]] = {}
    for number, text in by_segment(greedy.tokens):
        rest = [token for part in parts[number : number + 3] for token in part]
        given = {at - number: tokens for at, tokens in forced.items() if number <= at < number + 3}
        expected[number] = text
        if SEP not in forced.get(number, ()):
            after = AfterText(model, source, before)
            [[one]] = decode(after, *pad([[*rest, EOS]], CPU), config, forced=[given], begun=[()])
            expected[number] = one.tokens
        before += text
    wrote = dict(by_segment(found.tokens))
    assert wrote.keys() & expected.keys()
    for number in wrote.keys() & expected.keys():  # beams may join and split segments in other places
        assert wrote[number] == expected[number]
    assert settings != {"merge_segments": False} or wrote.keys() == expected.keys()


def test_a_beam_of_one_is_greedy_search_and_scores_are_those_of_the_whole_document() -> None:
    model, rng = model_of(9), random.Random(9)
    sources = [document(rng, n) for n in (5, 2, 1)]
    nothing = [[None] * source.count(SEP) for source in sources]
    drafted = decode_drafts(model, sources, nothing, GREEDY, CPU)
    for [ours], [wanted] in zip(
        decode_drafts(model, sources, nothing, replace(BEAM, beam_size=1), CPU), drafted, strict=True
    ):
        assert (ours.tokens, ours.finished) == (wanted.tokens, wanted.finished)
        assert ours.log_probability == pytest.approx(wanted.log_probability, rel=1e-5)
        assert ours.score == pytest.approx(wanted.score, rel=1e-5)


def test_documents_do_not_depend_on_those_beside_them_and_single_segments_are_searched_as_before() -> None:
    model, rng = model_of(4), random.Random(4)
    sources = [document(rng, n) for n in (3, 1, 6, 1)]
    drafts = [[None] * source.count(SEP) for source in sources]
    together = decode_drafts(model, sources, drafts, BEAM, CPU)
    apart = [decode_drafts(model, [s], [d], BEAM, CPU)[0] for s, d in zip(sources, drafts, strict=True)]
    assert [h.tokens for [h] in together] == [h.tokens for [h] in apart]
    for place in (1, 3):
        [[wanted]] = decode(model, *pad([sources[place]], CPU), BEAM)
        assert together[place][0].tokens == wanted.tokens


def test_progress_rises_to_the_end_and_documents_can_be_given_up() -> None:
    model, rng = model_of(5), random.Random(5)
    sources, told, shown = [document(rng, 6), document(rng, 6)], [], []

    def watch(place: int, tokens: Any) -> bool:
        shown.extend(tokens)
        return place == 0

    drafts = [[None] * 6] * 2
    [[whole], [part]] = decode_drafts(
        model, sources, drafts, BEAM, CPU, watch=watch, progress=lambda _, share: told.append(share)
    )
    [[wanted]] = decode_drafts(model, sources[:1], drafts[:1], BEAM, CPU)
    assert whole.tokens == wanted.tokens
    assert not part.finished
    assert not shown
    assert told == sorted(told)
    assert 0.5 < told[-1] <= 1


def test_a_fixed_segment_stays_and_what_the_limit_cuts_is_cut() -> None:
    model, rng = model_of(2), random.Random(2)
    source = document(rng, 4)
    fixed = [21, 22, SEP]
    [[found]] = decode_drafts(model, [source], [[None] * 4], BEAM, CPU, forced=[{1: fixed}])
    assert dict(by_segment(found.tokens))[1] == tuple(fixed)
    tight = replace(BEAM, max_length_ratio=0.0, max_length_offset=1)
    [[short]] = decode_drafts(model, [source], [[None] * 4], tight, CPU)
    assert not short.finished
    assert int(is_separator(torch.tensor(short.tokens)).sum()) >= 2
