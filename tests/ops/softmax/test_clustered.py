"""Attention within clusters against a loop over the keys of each query, at lengths around the chunk."""

from __future__ import annotations

import pytest
import torch

from scaleformer.ops.softmax.clustered import clustered_attention
from tests.ops.kernel.test_attention import LargestTensor


@pytest.mark.parametrize("causal", [False, True], ids=["both ways", "causal"])
@pytest.mark.parametrize("length", [1, 4, 5, 6, 10, 31])
@pytest.mark.parametrize("where", ["mixed", "all queries in one", "all keys in one", "no key in the queries'"])
def test_a_query_sees_the_nearest_keys_of_its_cluster(where: str, length: int, causal: bool) -> None:
    torch.manual_seed(length)
    q, k = (torch.randn(2, 2, length, 4, dtype=torch.double, requires_grad=True) for _ in range(2))
    v = torch.randn(2, 2, length, 3, dtype=torch.double, requires_grad=True)
    q_clusters, k_clusters = torch.randint(3, (2, 2, 2, length))
    if where == "all queries in one":
        q_clusters = torch.full_like(q_clusters, 1)
    elif where == "all keys in one":
        k_clusters = torch.full_like(k_clusters, 2)
    elif where == "no key in the queries'":
        q_clusters = q_clusters + 3
    found = clustered_attention(q, k, v, q_clusters, k_clusters, 5, causal=causal)
    rows = []
    for b, h, i in torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(length)).tolist():
        same = [j for j in range(length) if k_clusters[b, h, j] == q_clusters[b, h, i]]
        seen = [j for j in same if j <= i][-5:] + ([] if causal else [j for j in same if j > i][:5])
        rows.append((q[b, h, i] @ k[b, h, seen].T / 2).softmax(-1) @ v[b, h, seen])
    expected = torch.stack(rows).view_as(v)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(v)
    for one, other in zip(
        *(torch.autograd.grad((x * weights).sum(), (q, k, v)) for x in (found, expected)), strict=True
    ):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("alike", [False, True], ids=["many clusters", "one cluster"])
def test_memory_is_linear_in_length(alike: bool) -> None:
    """Twice the length, at most twice the largest tensor: no (L, L) of any kind."""
    largest = []
    for length in (512, 1024):
        torch.manual_seed(1)
        q, k, v = (torch.randn(1, 1, length, 4, requires_grad=True) for _ in range(3))
        q_clusters, k_clusters = torch.randint(1 if alike else 8, (2, 1, 1, length))
        with LargestTensor() as record:
            clustered_attention(q, k, v, q_clusters, k_clusters, 4).sum().backward()
        largest.append(record.numel)
    assert largest[1] <= 2 * largest[0]
    assert largest[1] < 1024 * 1024 / 16
