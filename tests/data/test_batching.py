"""Budgets, shares and padding of batches: nothing lost, nothing doubled, no limit exceeded."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scaleformer.data.batching import (
    Example,
    collate,
    fill,
    make_batches,
    make_example,
    pack,
    pack_padded,
    padded_sizes,
    share,
)
from scaleformer.data.cutting import Cutting, make_plan
from scaleformer.data.sampler import Recipe, plan_epoch
from tests.data.toy import CUTTINGS, encoded, epoch_parts, random_corpus, rng
from tests.pairwise import covering


def test_packing_by_hand() -> None:
    """Widths are those of the batch so far, so that an item may not fit although it is short."""
    items = [("a", (2, 3)), ("b", (3, 1)), ("c", (1, 1)), ("d", (9, 9)), ("e", (1, 1)), ("f", (2, 1))]
    assert list(pack_padded(items, 12)) == [["a", "b"], ["c"], ["d"], ["e", "f"]]
    assert list(pack_padded([], 12)) == []
    sizes = zip("abcd", ({1}, {1, 2}, {3}, {1, 2, 3}), strict=True)
    assert list(pack(sizes, set.union, lambda kinds, number: len(kinds) < 3 and number < 3)) == [
        ["a", "b"],
        ["c"],
        ["d"],
    ]


@covering(cutting=CUTTINGS, budget=[40, 100, 1000], shuffled={"sorted": False, "shuffled": True})
def test_batches_keep_the_budget_and_all_examples(cutting: Cutting, budget: int, shuffled: bool) -> None:
    plan = make_plan(random_corpus(2), cutting, rng())
    batches = make_batches(plan, budget, rng() if shuffled else None)
    assert sorted(i for batch in batches for i in batch.tolist()) == list(range(len(plan)))
    for batch in batches:
        cost = len(batch) * int(plan.source_lengths[batch].max() + plan.target_lengths[batch].max())
        assert cost <= budget or len(batch) == 1


def test_batches_of_a_seed() -> None:
    plan = make_plan(random_corpus(2), Cutting(50), rng())
    same, again, other = ([b.tolist() for b in make_batches(plan, 200, rng(s))] for s in (1, 1, 2))
    assert same == again != other


def test_empty_plan_has_no_batches() -> None:
    plan = make_plan(encoded([[(1, 9)]]), Cutting(10, max_ratio=2.0), rng())
    assert len(plan) == 0
    assert make_batches(plan, 100, rng()) == []
    assert share([], 0, 2) == []


@pytest.mark.parametrize("count", [1, 4, 7])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_shares_of_processes(count: int, rows: int) -> None:
    batches = [np.arange(rows * i, rows * (i + 1)) for i in range(count)]
    shares = [share(batches, rank, 3) for rank in range(3)]
    assert {len(own) for own in shares} == {-(-count // 3)}
    assert sorted(int(i) for own in shares for batch in own for i in batch) == list(range(rows * count))
    for step in range(count // 3):  # batches that need no splitting stay whole and in order
        assert [own[step].tolist() for own in shares] == [b.tolist() for b in batches[3 * step : 3 * step + 3]]


def test_too_few_batches_are_halved() -> None:
    parts = fill([np.arange(5), np.arange(5, 8)], 4)
    assert [part.tolist() for part in parts] == [[0, 1], [2], [3, 4], [5, 6, 7]]
    assert [part.tolist() for part in fill([np.array([3])], 3)] == [[3], [], []]
    assert [part.tolist() for part in fill([], 2)] == [[], []]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 3), st.integers(30, 400), st.booleans())
def test_processes_see_every_segment_once_and_are_balanced(
    seed: int, world: int, accumulated: int, budget: int, multi_resolution: bool
) -> None:
    corpus = random_corpus(seed, documents=seed % 29 + 1)
    recipes = [Recipe(Cutting(30, multi_resolution), budget, seed, rank, world, accumulated) for rank in range(world)]
    shares = [plan_epoch(corpus, recipe, 3) for recipe in recipes]
    assert len({len(batches) for _, batches in shares}) == 1
    found = [i for plan, batches in shares for batch in batches for n in batch for i in plan.segments(n).tolist()]
    assert sorted(found) == list(range(corpus.segments))
    alone, whole = plan_epoch(corpus, Recipe(Cutting(30, multi_resolution), budget, seed, 0, 1, world * accumulated), 3)
    assert np.array_equal(alone.bounds, shares[0][0].bounds)
    for step in range(len(whole) // world):
        own = [batches[step].tolist() for _, batches in shares]
        assert own == [batch.tolist() for batch in whole[step * world : (step + 1) * world]]
    for plan, batches in shares:
        for batch, size in zip(batches, padded_sizes(plan, batches), strict=True):
            assert size <= budget or len(batch) == 1


@pytest.mark.parametrize("group", [1, 4])
def test_batches_of_a_step_have_similar_sizes(group: int) -> None:
    """Examples of very different sizes, one or two per batch: the batches of a step have about equal sizes; mixed sizes
    would keep processes waiting much of the time."""
    lengths = np.random.default_rng(0).integers(100, 1000, (400, 2))
    corpus = encoded([[(int(s), int(t))] for s, t in lengths])
    plan = make_plan(corpus, Cutting(1001), rng())
    sizes = padded_sizes(plan, make_batches(plan, 2002, rng(), group))
    steps = sizes[: len(sizes) // 4 * 4].reshape(-1, 4)
    idle = 1 - steps.sum() / (4 * steps.max(axis=1).sum())
    assert (idle < 0.04) == (group == 4)
    assert len({int(size) // 200 for size in steps[:20, 0]}) > 2  # the order of the steps stays random


def test_examples_carry_their_names_and_tokens() -> None:
    corpus = encoded([[(2, 3), (3, 2)], [(1, 2), (2, 1), (2, 2)]])
    part = make_example(corpus, np.array([2, 3]))
    assert part.id == "d1[0:2]"
    # Source tokens of segments 2 and 3: positions 5 and 6..7 of the corpus, the last of each a `<sep>` (4).
    assert part.source.tolist() == [4, 16, 4, 3]
    assert part.target.tolist() == [15, 4, 4, 3]
    assert make_example(corpus, np.array([0, 1])).id == "d0"
    assert make_example(corpus, np.array([4])).id == "d1[2:3]"
    assert make_example(corpus, np.array([1, 2])).id == "d0[1]+1"
    assert make_example(corpus, np.array([3, 0, 1])).id == "d1[1]+2"


def test_fillers_have_no_weight() -> None:
    filler = collate([])
    assert (filler.ids, len(filler), int(filler.target_mask.sum())) == ((), 1, 0)
    assert filler.source.tolist() == filler.target_output.tolist() == [[3]]
    assert filler.source_mask.all()


def test_collate_by_hand() -> None:
    long = Example("a", np.array([27, 4, 28, 29, 4, 3]), np.array([25, 5, 6, 4, 3]))
    short = Example("b", np.array([4, 3]), np.array([27, 4, 3]))
    batch = collate([long, short])
    assert batch.ids == ("a", "b")
    assert batch.source.tolist() == [[27, 4, 28, 29, 4, 3], [4, 3, 0, 0, 0, 0]]
    assert batch.source_mask.tolist() == [[True] * 6, [True] * 2 + [False] * 4]
    assert batch.source_segments.tolist() == [[0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 1, 1]]
    assert batch.target_input.tolist() == [[2, 25, 5, 6, 4], [2, 27, 4, 0, 0]]
    assert batch.target_output.tolist() == [[25, 5, 6, 4, 3], [27, 4, 3, 0, 0]]
    assert batch.target_mask.tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert batch.target_segments.tolist() == [[0, 0, 0, 2, 3], [0, 0, 1, 1, 1]]
    for tensor in (batch.source, batch.source_segments, batch.target_input, batch.target_output, batch.target_segments):
        assert tensor.dtype == torch.long
    assert batch.source_mask.dtype == batch.target_mask.dtype == torch.bool


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "cutting", [Cutting(50), Cutting(50, multi_resolution=True), Cutting(40, max_ratio=1.5)], ids=str
)
def test_consecutive_examples_of_a_document_stay_in_their_row(cutting: Cutting, seed: int) -> None:
    corpus = random_corpus(seed)
    recipe = Recipe(cutting, 300, seed, consecutive=True)
    plan, batches = plan_epoch(corpus, recipe, 0)
    assert sorted(i for batch in batches for i in batch) == list(range(len(plan)))
    assert padded_sizes(plan, batches).max() <= 300
    assert len(batches[0]) > 1
    parts = [part for batch in epoch_parts(corpus, recipe, 0) for part in batch]
    assert len(parts) == len(plan)
    documents = [int(corpus.document_of[plan.segments(i)[0]]) for i in range(len(plan))]
    continues = iter(part[1] for part in parts)
    latest: list[tuple[int, int]] = []  # document and number of the example in each row of the batch before
    begun = set()
    for batch in batches:
        assert not latest or len(batch) <= len(latest)  # rows only end
        for row, example in enumerate(batch):
            document = documents[example]
            if next(continues):
                assert latest[row] == (document, example - 1)
            else:
                assert document not in begun
                begun.add(document)
        latest = [(documents[example], example) for example in batch]
    assert len(begun) == len(set(documents))
    assert [b.tolist() for b in plan_epoch(corpus, recipe, 1)[1]] != [b.tolist() for b in batches]


def test_a_batch_says_which_examples_continue() -> None:
    corpus = encoded([[(2, 3), (3, 2)], [(1, 2)]])
    rows = [make_example(corpus, np.array([i]), i == 1) for i in range(3)]
    continues = collate(rows).continues
    assert continues is not None
    assert continues.tolist() == [False, True, False]
    assert collate([make_example(corpus, np.array([0]))]).continues is None
