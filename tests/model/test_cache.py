"""The cache of decoder states, beside a loop over its entries."""

from __future__ import annotations

import math

import pytest
import torch

from scaleformer.model import cache
from scaleformer.model.cache import OFFSET, SCALE, SLOPE, SPREAD, StateCache, StateCaches, read_cache
from scaleformer.vocabulary import EOS
from tests.helpers import make_batch, make_model


def by_hand(logits: list[float], state: list[float], states: list[list[float]], tokens: list[int]) -> list[float]:
    """Probabilities of the mixture."""
    means = [sum(column) / len(states) for column in zip(*states, strict=True)]
    variance = sum((x - mean) ** 2 for row in states for x, mean in zip(row, means, strict=True)) / len(states)
    near = [-sum((a - b) ** 2 for a, b in zip(state, row, strict=True)) / (SPREAD * variance) for row in states]
    share = 1 / (1 + math.exp(-(SLOPE * max(near) + OFFSET)))
    weights = [math.exp(one - max(near)) for one in near]
    own = [math.exp(SCALE * one) for one in logits]
    found = [(1 - share) * one / sum(own) for one in own]
    for token, weight in zip(tokens, weights, strict=True):
        found[token] += share * weight / sum(weights)
    return found


@pytest.mark.parametrize("at_once", [1 << 24, 1])
def test_mixture_by_hand(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "AT_ONCE", at_once)
    torch.manual_seed(1)
    states, tokens = torch.randn(5, 3), torch.tensor([2, 0, 2, 6, 1])
    logits, queries = (
        torch.randn(2, 4, 7),
        states[torch.tensor([[0, 1, 2, 3], [4, 0, 1, 2]])] + torch.randn(2, 4, 3) / 9,
    )
    found = StateCache(states, tokens).mix(logits, queries)
    for n in range(2):
        for place in range(4):
            given = logits[n, place].tolist(), queries[n, place].tolist(), states.tolist(), tokens.tolist()
            assert found[n, place].exp().tolist() == pytest.approx(by_hand(*given), rel=1e-4)


def test_an_empty_cache_changes_nothing() -> None:
    torch.manual_seed(4)
    logits = torch.randn(2, 5)
    assert torch.equal(
        StateCache(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long)).mix(logits, torch.randn(2, 3)), logits
    )


def test_a_cache_counts_states_by_their_distance_in_parts_of_their_variance() -> None:
    torch.manual_seed(2)
    states, tokens, logits, queries = torch.randn(6, 4), torch.arange(6), torch.randn(3, 6), torch.randn(3, 4)
    one, large = StateCache(states, tokens), StateCache(100 * states + 7, tokens)
    torch.testing.assert_close(one.mix(logits, queries), large.mix(logits, 100 * queries + 7), rtol=1e-3, atol=1e-3)


def test_rows_have_the_caches_of_their_documents() -> None:
    """Of four documents two share a cache and one has none."""
    torch.manual_seed(3)
    one, other = (StateCache(torch.randn(5, 3), torch.randint(7, (5,))) for _ in range(2))
    caches, logits, states = [one, None, other, one], torch.randn(6, 7), torch.randn(6, 3)
    documents = torch.tensor([2, 0, 1, 3, 2, 1])
    found = StateCaches(caches).mix(logits, states, documents)
    for row, document in enumerate(documents.tolist()):
        cache, own = caches[document], (logits[row : row + 1], states[row : row + 1])
        torch.testing.assert_close(found[row], own[0][0] if cache is None else cache.mix(*own)[0])
    few = StateCaches(StateCaches(caches).of([3, 1])).mix(logits, states, torch.tensor([0, 1, 0, 0, 1, 0]))
    torch.testing.assert_close(few[[0, 2, 3, 5]], one.mix(logits, states)[[0, 2, 3, 5]])
    torch.testing.assert_close(few[[1, 4]], logits[[1, 4]])
    alone = StateCaches([one]).mix(logits, states, torch.zeros(6, dtype=torch.long))
    torch.testing.assert_close(alone, one.mix(logits, states))


def test_a_model_remembers_what_follows_its_states() -> None:
    """The weights are the same, the end of a text is not remembered, and a step has the logits of teacher forcing."""
    model, batch = make_model(), make_batch([([3, 2], [2, 4]), ([4], [3])])
    with torch.inference_mode():
        mine = read_cache(model, [batch])
        other = model.remembering([None, mine])
        assert model.caches is None
        assert other.output_weight is model.output_weight
        kept = batch.target_output[batch.target_mask]
        assert mine.tokens.tolist() == kept[kept != EOS].tolist()
        states = model(batch)  # (2, L, D)
        expected = torch.stack([model.logits(states[0]).float(), mine.mix(model.logits(states[1]), states[1])])
        assert (expected[1] - model.logits(states[1]).log_softmax(-1)).abs().max() > 0.1
        numbers = torch.tensor([[0], [1]]).expand(states.shape[:2])
        parts = torch.cat(list(other.logit_parts(states.flatten(0, 1), numbers.flatten())))
        torch.testing.assert_close(parts.view(expected.shape), expected)
        encoded = other.encode(batch.source, batch.source_mask, batch.source_segments)
        for beams in (1, 2):
            state = other.init_state(encoded, beams)
            for place in range(3):
                inputs = batch.target_input[:, place], batch.target_segments[:, place]
                logits, state = other.step(*(x.repeat_interleave(beams) for x in inputs), state)
                torch.testing.assert_close(logits[::beams], expected[:, place], rtol=1e-3, atol=1e-3)
            state = other.reorder(state, torch.arange(beams, 2 * beams), torch.tensor([1]))
            assert state.documents.tolist() == [1] * beams
        assert other.only([1]).caches.of([0]) == [mine]
        assert other.only([0]).caches is None
        assert model.only([1]) is model
