"""Documents cut and segments joined to examples: nothing lost, nothing doubled, no limit exceeded."""

from __future__ import annotations

import numpy as np
import pytest

from scaleformer.data.batching import make_example
from scaleformer.data.cutting import Cutting, Plan, kept_segments, make_plan
from scaleformer.data.encoded import EncodedCorpus
from scaleformer.system.errors import DataError
from tests.data.toy import CUTTINGS, encoded, random_corpus, rng

each_cutting = pytest.mark.parametrize("cutting", CUTTINGS.values(), ids=CUTTINGS)


def groups(plan: Plan) -> list[list[int]]:
    return [plan.segments(i).tolist() for i in range(len(plan))]


@each_cutting
@pytest.mark.parametrize("seed", range(3))
def test_every_segment_once_and_within_the_limit(cutting: Cutting, seed: int) -> None:
    corpus = random_corpus(seed)
    plan = make_plan(corpus, cutting, rng(seed))
    assert sorted(i for group in groups(plan) for i in group) == list(range(corpus.segments))
    for group, source, target in zip(groups(plan), plan.source_lengths, plan.target_lengths, strict=True):
        assert source == sum(corpus.source_lengths[i] for i in group) + 1
        assert target == sum(corpus.target_lengths[i] for i in group) + 1
        example = make_example(corpus, np.array(group))
        assert (len(example.source), len(example.target)) == (source, target)
        assert len(group) == 1 or max(source, target) <= cutting.max_tokens
        if cutting.join_segments is None:
            assert group == list(range(group[0], group[-1] + 1))
            assert len({int(corpus.document_of[i]) for i in group}) == 1


def slow_cut(corpus: EncodedCorpus, limit: int) -> list[list[int]]:
    """Take segment after segment as long as both sides fit."""
    found: list[list[int]] = []
    for start, stop in zip(corpus.documents[:-1], corpus.documents[1:], strict=True):
        group: list[int] = []
        for i in range(start, stop):
            longer = [*group, i]
            sides = (corpus.source_lengths, corpus.target_lengths)
            if group and max(sum(side[j] for j in longer) + 1 for side in sides) > limit:
                found.append(group)
                longer = [i]
            group = longer
        found.append(group)
    return found


@pytest.mark.parametrize("limit", [3, 17, 40, 100, 10_000])
def test_longest_cuts_are_those_of_a_plain_loop(limit: int) -> None:
    corpus = random_corpus(5)
    assert groups(make_plan(corpus, Cutting(limit), rng())) == slow_cut(corpus, limit)


def test_limit_is_met_exactly() -> None:
    corpus = encoded([[(4, 2), (5, 2), (1, 1)]])
    assert groups(make_plan(corpus, Cutting(10), rng())) == [[0, 1], [2]]  # 4 + 5 + `</s>` = 10
    assert groups(make_plan(corpus, Cutting(11), rng())) == [[0, 1, 2]]
    assert groups(make_plan(corpus, Cutting(9), rng())) == [[0], [1, 2]]


def test_multi_resolution_sizes_range_from_one_segment_to_the_maximum() -> None:
    corpus = encoded([[(10, 10)] * 64 for _ in range(40)])
    plan = make_plan(corpus, Cutting(641, multi_resolution=True), rng())
    sizes = np.diff(plan.bounds)
    # Log-uniform between 1 and 64 segments: a sixth of the draws lies in each octave.
    assert sizes.min() == 1
    assert sizes.max() > 48
    shares = [((sizes >= 2**k) & (sizes < 2 ** (k + 1))).mean() for k in range(5)]
    assert min(shares) > 0.09
    assert max(shares) < 0.25


def test_join_sizes() -> None:
    corpus = encoded([[(5, 5)]] * 300)
    plan = make_plan(corpus, Cutting(10_000, join_segments=(2, 5)), rng())
    sizes = np.diff(plan.bounds)
    assert set(sizes[:-1]) == {2, 3, 4, 5}
    assert plan.order.tolist() != list(range(300))


@pytest.mark.parametrize("cutting", ["multi-resolution", "joined"])
def test_plans_are_functions_of_the_seed(cutting: str) -> None:
    corpus = random_corpus(1)
    same, again, other = (groups(make_plan(corpus, CUTTINGS[cutting], rng(seed))) for seed in (3, 3, 4))
    assert same == again != other


def test_overlong_error_names_the_segment() -> None:
    corpus = encoded([[(3, 3)], [(3, 3), (4, 30)]])
    message = r"document 'd1', segment 1: 31 tokens are more than data\.max_tokens=30"
    with pytest.raises(DataError, match=message):
        make_plan(corpus, Cutting(30, overlong="error"), rng())
    assert len(make_plan(corpus, Cutting(31, overlong="error"), rng())) == 3


def test_length_ratio() -> None:
    corpus = encoded([[(3, 3), (2, 6), (7, 2)], [(1, 4)]])
    assert kept_segments(corpus, 3.0).tolist() == [0, 1]
    assert kept_segments(corpus, None).tolist() == [0, 1, 2, 3]
    assert groups(make_plan(corpus, Cutting(100, max_ratio=3.5), rng())) == [[0, 1, 2]]
