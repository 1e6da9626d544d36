"""The gated delta rule by chunks and by steps, against a loop over tokens: outputs, memories and every gradient."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from scaleformer.ops.delta.attention import gated_delta_rule, gated_delta_step
from scaleformer.ops.softmax.windowed import BLOCK_SCORES
from tests.ops.delta.naive import recurrent_delta_rule


def make(length: int, d: int = 4, e: int = 3, dtype: torch.dtype = torch.double, fade: float = 1.0) -> list[Tensor]:
    """q, k, v, log_decay, beta of two examples and two heads."""
    torch.manual_seed(length)
    q, k, v = (torch.randn(2, 2, length, n, dtype=dtype) for n in (d, d, e))
    log_decay, beta = -fade * torch.rand(2, 2, length, dtype=dtype), torch.rand(2, 2, length, dtype=dtype)
    return [x.requires_grad_() for x in (q, normalize(k, dim=-1), v, log_decay, beta)]


@pytest.mark.parametrize("scores", [1, 128, BLOCK_SCORES], ids=["a chunk at once", "two chunks of 4", "all"])
@pytest.mark.parametrize("chunk", [1, 4, 64])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 13])
def test_chunks_follow_the_recurrence(length: int, chunk: int, scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaleformer.ops.delta.attention.BLOCK_SCORES", scores)
    leaves = make(length)
    found, wanted = gated_delta_rule(*leaves, chunk_size=chunk), recurrent_delta_rule(*leaves)
    weights = [torch.randn_like(x) for x in wanted]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    gradients = [torch.autograd.grad(x, leaves, weights) for x in (found, wanted)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_steps_go_on_from_chunks() -> None:
    leaves = [x.detach() for x in make(11)]
    wanted, last = recurrent_delta_rule(*leaves)
    out, memory = gated_delta_rule(*(x[:, :, :7] for x in leaves), chunk_size=3)
    torch.testing.assert_close(out, wanted[:, :, :7])
    for t in range(7, 11):
        q, k, v, log_decay, beta = (x[:, :, t] for x in leaves)
        out, memory = gated_delta_step(q, k, v, log_decay, beta, memory)
        torch.testing.assert_close(out, wanted[:, :, t])
    torch.testing.assert_close(memory, last)


@pytest.mark.parametrize("fade", [0.0, 100.0], ids=["nothing is forgotten", "all is forgotten"])
def test_float32_holds_over_long_texts(fade: float) -> None:
    leaves = make(2000, d=16, e=16, fade=fade)
    single = [x.detach().float().requires_grad_() for x in leaves]
    (wanted, _), (found, _) = gated_delta_rule(*leaves, chunk_size=50), gated_delta_rule(*single)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)
    wanted.sum().backward()
    found.sum().backward()
    for one, other in zip(single, leaves, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-3, atol=1e-3)


def test_a_key_written_fully_is_answered_with_its_value() -> None:
    q = k = torch.eye(4)[None, None, [2, 0, 2]]
    v = torch.tensor([1.0, 7.0, 5.0])[None, None, :, None]
    zeros, ones = torch.zeros(1, 1, 3), torch.ones(1, 1, 3)
    out, memory = gated_delta_rule(q, k, v, zeros, ones)
    assert (out * 4**0.5).flatten().tolist() == [1.0, 7.0, 5.0]
    assert memory.flatten().tolist() == [7.0, 0.0, 5.0, 0.0]  # the second value of key 2 stands in place of the first


def test_no_tokens_and_no_rows() -> None:
    for shape in ((2, 2, 0), (0, 2, 5)):
        q, v, rate = torch.zeros(*shape, 4), torch.zeros(*shape, 3), torch.zeros(shape)
        out, memory = gated_delta_rule(q, q, v, rate, rate)
        assert out.shape == v.shape
        assert memory.shape == (*shape[:2], 4, 3)


@pytest.mark.parametrize("place", [1, 3, 4], ids=["k", "log_decay", "beta"])
def test_what_does_not_fit_is_named(place: int) -> None:
    leaves = make(5)
    leaves[place] = leaves[place][:, :, :4]
    leaves[2] = leaves[2][:, :, : leaves[1].shape[2]]
    with pytest.raises(
        ValueError, match=r"(k|log_decay|beta) covers tokens \(2, 2, 4\): wanted those of q, \(2, 2, 5\)"
    ):
        gated_delta_rule(*leaves)
    with pytest.raises(ValueError, match="chunk_size is 0"):
        gated_delta_rule(*make(5), chunk_size=0)
