"""The slow reference against numbers worked out by hand and against loops."""

from __future__ import annotations

import pytest
import torch

from tests.ops.inputs import make_inputs
from tests.ops.kernel.naive import dense_attention, recurrent_attention


def test_a_case_by_hand() -> None:
    """One head of width 1, phi = relu: q = 2, keys 1 and 3, values 10 and 20, rel_0 = 0.5, rel_+1 = 0."""
    q, k = torch.tensor([[[[2.0], [2.0]]]]), torch.tensor([[[[1.0], [3.0]]]])
    v, rel = torch.tensor([[[[10.0], [20.0]]]]), torch.tensor([[4.0], [0.5], [0.0]])
    both = dense_attention(q, k, v, rel, feature_map="relu")
    # Query 0: scores 2 (1 + 0.5) = 3 and 2 (3 + 0) = 6. Query 1: 2 (1 + 4) = 10 and 2 (3 + 0.5) = 7.
    torch.testing.assert_close(both.flatten(), torch.tensor([(30 + 120) / 9, (100 + 140) / 17]))
    past = dense_attention(q, k, v, rel, causal=True, feature_map="relu")
    torch.testing.assert_close(past.flatten(), torch.tensor([10, (100 + 140) / 17]))
    second = dense_attention(q, k, v, rel, key_mask=torch.tensor([[False, True]]), feature_map="relu")
    torch.testing.assert_close(second.flatten(), torch.tensor([20.0, 20.0]))


@pytest.mark.parametrize("per_head", [False, True], ids=["shared", "per-head"])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_dense_attention_is_the_double_loop(causal: bool, per_head: bool) -> None:
    x = make_inputs(5, 7, horizon=2, per_head=per_head, masked=True, batch=2).detached()
    assert x.rel is not None
    assert x.key_mask is not None
    out = dense_attention(x.q, x.k, x.v, x.rel, causal=causal, key_mask=x.key_mask)
    for b in range(2):
        for h in range(2):
            frel = torch.nn.functional.elu(x.rel[h] if per_head else x.rel) + 1
            fq, fk = torch.nn.functional.elu(x.q[b, h]) + 1, torch.nn.functional.elu(x.k[b, h]) + 1
            for i in range(5):
                top, total = torch.zeros(3, dtype=torch.float64), 0.0
                for j in range(7):
                    if x.key_mask[b, j] and (j <= i or not causal):
                        score = fq[i] @ (fk[j] + frel[min(max(j - i, -2), 2) + 2])
                        top, total = top + score * x.v[b, h, j], total + score
                torch.testing.assert_close(out[b, h, i], top / total if total else top)


@pytest.mark.parametrize("per_head", [False, True], ids=["shared", "per-head"])
@pytest.mark.parametrize("horizon", [None, 1, 3, 20])
def test_recurrent_attention(horizon: int | None, per_head: bool) -> None:
    x = make_inputs(11, 11, horizon=horizon, per_head=per_head).detached()
    out, _ = recurrent_attention(x.q, x.k, x.v, x.rel)
    torch.testing.assert_close(out, dense_attention(x.q, x.k, x.v, x.rel, causal=True))
