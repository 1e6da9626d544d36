"""Attention within clusters, against loops over what each position may see."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature.routing import RoutingAttention
from scaleformer.model.transformer import Transformer
from tests.helpers import make_batch, make_model
from tests.model.attention.equation import assert_follows, assert_steps_follow, one_segment

CHOICE = {"name": "routing", "window": 2, "clusters": 3, "members": 2, "fallback": {"name": "softmax"}}


def nearest(x: Tensor, centroids: Tensor) -> list[int]:
    """The cluster of each row of x (L, d), centroids (clusters, d)."""
    return [int(torch.stack([row @ mu / mu.norm() for mu in centroids]).argmax()) for row in x]


def within(q_clusters: list[int], k_clusters: list[int], i: int, members: int, causal: bool) -> list[int]:
    """The positions that i sees in its cluster."""
    before = [j for j in range(i + 1) if k_clusters[j] == q_clusters[i]][-members:]
    after = [j for j in range(i + 1, len(k_clusters)) if k_clusters[j] == q_clusters[i]][:members]
    return before + ([] if causal else after)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "apart"])
@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize(
    ("local", "window", "clusters", "members"),
    [(0.5, 2, 3, 2), (0, 1, 1, 1), (0, 1, 2, 3), (0.5, 30, 40, 2), (0, 1, 4, 30), (1, 3, 2, 1), (0.7, 1, 5, 1)],
)
def test_a_token_sees_its_window_or_its_cluster(
    site: str, local: float, window: int, clusters: int, members: int, shared: bool
) -> None:
    torch.manual_seed(1)
    attention = RoutingAttention(site, 24, 3, local, window, clusters, members, shared=shared).double()
    near = math.ceil(3 * local)

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        rows, places = [], range(query.shape[1])
        for head, (q, k, v) in enumerate(zip(query, key, value, strict=True)):
            if head >= near:
                q, k = layer_norm(q, (8,)), layer_norm(k, (8,))
                q_clusters, k_clusters = (nearest(x, attention.centroids[head - near]) for x in (q, k))
            for i in places:
                if head < near:
                    seen = [j for j in places if abs(j - i) <= window and (j <= i or not causal)]
                else:
                    seen = within(q_clusters, k_clusters, i, members, causal)
                rows.append((q[i] @ k[seen].T / math.sqrt(8)).softmax(-1) @ v[seen])
        return torch.stack(rows).view_as(query)

    assert_follows(attention, slow, lengths=(7, 1, 23))


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "apart"])
def test_steps_follow_over_many_members(shared: bool) -> None:
    torch.manual_seed(1)
    attention = RoutingAttention("decoder", 16, 2, window=4, clusters=3, members=5, shared=shared).double()
    state = assert_steps_follow(attention, 100)
    assert state.inner.key.shape == (2, 1, 3 * 5, 8)
    assert state.inner.members.sum(-1).tolist() == [[100], [100]]


def test_a_training_step_moves_the_centroids_to_the_means_and_evaluation_does_not() -> None:
    torch.manual_seed(1)
    attention = RoutingAttention("encoder", 16, 2, clusters=40, members=2, decay=0.75).double()
    before = attention.centroids.clone()
    x, mask = torch.randn(2, 9, 16, dtype=torch.double), torch.arange(9) < torch.tensor([[9], [5]])
    found: list[list[Tensor]] = [[] for _ in range(40)]
    for project in (attention.query, attention.key):
        members = layer_norm(project(x)[:, :, 8:], (8,))[mask].detach()  # of the second head, which routes
        for member, cluster in zip(members, nearest(members, before[0]), strict=True):
            found[cluster].append(member)
    attention.eval()(x, x, one_segment(mask)).sum().backward()
    with torch.no_grad():
        attention.train()(x, x, one_segment(mask))
    assert torch.equal(attention.centroids, before)
    x[1, 5:] = float("nan")  # pads
    out = attention(x, x, one_segment(mask))
    assert torch.equal(attention.centroids, before)  # not yet: a repeated forward pass finds the same clusters
    out[mask].sum().backward()
    expected = before.clone()
    for cluster, some in enumerate(found):
        if some:
            expected[0, cluster] = 0.75 * before[0, cluster] + 0.25 * torch.stack(some).mean(0)
    assert 0 < sum(map(len, found)) == 28
    assert min(map(len, found)) == 0
    torch.testing.assert_close(attention.centroids, expected)


def test_the_first_of_equal_centroids_wins() -> None:
    torch.manual_seed(1)
    attention = RoutingAttention("decoder", 8, 1, local=0, clusters=4)
    attention.centroids[:, 2:] = attention.centroids[:, 1:2]
    assert attention.cluster(torch.randn(2, 1, 30, 8)).unique().tolist() == [0, 1]


def test_gradient_checkpointing_moves_the_centroids_alike_and_a_saved_model_goes_on_bit_for_bit() -> None:
    batch = make_batch([([5, 3], [4, 4]), ([1], [2])])

    def train(model: Transformer, steps: int) -> Transformer:
        optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            model.logits(model(batch)).square().mean().backward()
            optimizer.step()
        return model

    first = make_model(attention=CHOICE)
    kept = Transformer(replace(first.config, gradient_checkpointing=True)).double()
    kept.load_state_dict(first.state_dict())
    begun = {name: x.clone() for name, x in first.state_dict().items()}
    saved = {name: x.clone() for name, x in train(first, 2).state_dict().items()}
    again = make_model(attention=CHOICE)
    again.load_state_dict(saved)
    results = [train(model, steps).state_dict() for model, steps in ((first, 2), (again, 2), (kept, 4))]
    moved = [name for name in begun if name.endswith("centroids")]
    assert len(moved) == 4  # two layers on either side
    assert not any(torch.equal(begun[name], results[0][name]) for name in moved)
    for name, one in results[0].items():
        assert torch.equal(one, results[1][name]), name
        torch.testing.assert_close(one, results[2][name])


@pytest.mark.parametrize(
    ("option", "value"),
    [("window", 0), ("clusters", 0), ("members", 0), ("local", 1.5), ("local", -0.1), ("decay", 1.1)],
    ids=lambda x: str(x),
)
def test_wrong_options_are_named(option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{option} is {value}"):
        build_attention({"name": "routing", option: value}, "decoder", 16, 2)
