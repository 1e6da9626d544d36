"""The gated delta network, against its equation token by token."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature.gated_deltanet import GatedDeltaNetAttention
from tests.model.attention.equation import assert_steps_follow, one_segment


def by_tokens(attention: GatedDeltaNetAttention, x: Tensor, direction: int) -> Tensor:
    """The answers (L, H, d) of the memory of one direction, x (L, D) in its order."""
    H, d, D = attention.heads, attention.head_width, x.shape[1]
    own = slice(direction * H, (direction + 1) * H)
    channels = torch.cat([f.weight for f in (attention.query, attention.key, attention.value)]) @ x.T  # (3 D, L)
    weight = attention.convolution[3 * D * direction : 3 * D * (direction + 1)]  # (3 D, kernel)
    memory, answers = x.new_zeros(H, d, d), []
    for t in range(len(x)):
        mixed = channels.new_zeros(3 * D)
        for back in range(min(attention.kernel, t + 1)):
            mixed = mixed + weight[:, -1 - back] * channels[:, t - back]
        query, key, value = silu(mixed).view(3, H, d)
        query, key = (y / (y.square().sum(-1, keepdim=True) + 1e-6).sqrt() for y in (query, key))
        pace = softplus(attention.decay.weight[own] @ x[t] + attention.decay_bias[own])  # (H,)
        decay, rate = (-attention.log_speed[own].exp() * pace).exp(), (attention.rate.weight[own] @ x[t]).sigmoid()
        rows = []
        for h in range(H):
            faded = decay[h] * memory[h]
            rows.append(faded + rate[h] * torch.outer(key[h], value[h] - key[h] @ faded))
        memory = torch.stack(rows)
        answers.append((query[:, None] @ memory)[:, 0] / d**0.5)
    return torch.stack(answers)


@pytest.mark.parametrize("site", ["encoder", "decoder"])
@pytest.mark.parametrize(("kernel", "chunk"), [(1, 1), (4, 4), (3, 64)])
def test_a_memory_is_corrected_token_by_token(site: str, kernel: int, chunk: int) -> None:
    torch.manual_seed(1)
    attention = GatedDeltaNetAttention(site, 12, 3, kernel, chunk).double()
    torch.nn.init.normal_(attention.norm)
    lengths = (7, 1, 12)
    x = torch.randn(3, 12, 12, dtype=torch.double, requires_grad=True)
    out = attention(x, x, one_segment(torch.arange(12) < torch.tensor(lengths)[:, None]))  # pads full of noise
    loss = expected_loss = x.new_zeros(())
    for row, length in enumerate(lengths):
        alone = x[row, :length]
        found = by_tokens(attention, alone, 0)  # (L, H, d)
        if site == "encoder":
            found = found + by_tokens(attention, alone.flip(0), 1).flip(0)
        found = attention.norm * found / (found.square().mean(-1, keepdim=True) + 1e-6).sqrt()
        found = found * silu(alone @ attention.gate.weight.T).view(found.shape)
        expected = found.flatten(1) @ attention.output.weight.T  # (L, D)
        torch.testing.assert_close(out[row, :length], expected, rtol=1e-9, atol=1e-10)
        weights = torch.randn_like(expected)
        loss, expected_loss = loss + (out[row, :length] * weights).sum(), expected_loss + (expected * weights).sum()
    leaves = [x, *attention.parameters()]
    gradients = [torch.autograd.grad(total, leaves) for total in (loss, expected_loss)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


def test_the_state_does_not_grow() -> None:
    torch.manual_seed(1)
    attention = GatedDeltaNetAttention("decoder", 16, 2, chunk=8).double()
    state = assert_steps_follow(attention, 50)
    assert [part.shape for part in state.inner] == [(2, 3, 48), (2, 2, 8, 8)]


def test_cross_attention_is_that_of_the_fallback() -> None:
    choice = {"name": "gated_deltanet", "fallback": {"name": "softmax", "positions": "none"}}
    assert type(build_attention(choice, "cross", 16, 2)).__name__ == "SoftmaxAttention"
    with pytest.raises(ValueError, match="'gated_deltanet' cannot serve the cross site"):
        build_attention({"name": "gated_deltanet"}, "cross", 16, 2)


@pytest.mark.parametrize("option", ["kernel", "chunk"])
def test_what_does_not_fit_is_named(option: str) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{option} is 0: it must be an int of at least 1"):
        build_attention({"name": "gated_deltanet", option: 0}, "decoder", 16, 2)
