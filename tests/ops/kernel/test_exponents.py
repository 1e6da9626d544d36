"""Attention by exponents against its formula in float64, with exponents far beyond what an exponential can hold."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scaleformer.ops.kernel.exponents import exponent_attention, exponent_memory, exponent_state
from tests.ops.inputs import gradients

each_direction = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
each_form = pytest.mark.parametrize("joint", [False, True], ids=["apart", "joint"])
each_algorithm = pytest.mark.parametrize("algorithm", ["auto", "linear", "quadratic", "memory"])
KEYS = {
    "moderate": lambda k: k,
    "wide": lambda k: 60 * k,
    "rising": lambda k: k + torch.linspace(0, 1000, k.shape[2])[:, None],
    "falling": lambda k: k - torch.linspace(0, 1000, k.shape[2])[:, None],
    "first": lambda k: torch.cat([k[:, :, :1] + 200, k[:, :, 1:]], dim=2),
    "low": lambda k: k - 2000,
    "steps": lambda k: k + 150 * (torch.arange(k.shape[2]) // 13 % 3)[:, None],
}
each_kind = pytest.mark.parametrize("kind", KEYS)


def make(length: int, kind: str, dtype: torch.dtype, m: int = 6) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    q, k, v = (torch.randn(2, 2, length, size, generator=generator) for size in (m, m, 3))
    return [x.to(dtype).requires_grad_() for x in (q, KEYS[kind](k), v)]


def slow(q: Tensor, k: Tensor, v: Tensor, joint: bool, causal: bool, key_mask: Tensor | None = None) -> Tensor:
    """The formula by logarithms, all pairs and features."""
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    seen = (seen.tril() if causal else seen) if key_mask is None else seen & key_mask[:, None, None]
    hidden = ~seen
    if joint:
        scores = (q[:, :, :, None] + k[:, :, None]).logsumexp(-1)  # (B, H, L, L)
        return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
    shares = k[:, :, None].masked_fill(hidden[..., None], float("-inf")).softmax(3)  # (B, H, L, L, m)
    return torch.einsum("bhic,bhijc,bhje->bhie", q.softmax(-1), shares, v)


@each_direction
@each_form
@each_algorithm
@each_kind
@pytest.mark.parametrize("length", [1, 2, 7, 64, 65, 200])
def test_values_and_gradients(length: int, kind: str, algorithm: str, joint: bool, causal: bool) -> None:
    leaves = make(length, kind, torch.float64)
    out = exponent_attention(*leaves, joint=joint, causal=causal, algorithm=algorithm)
    truth = slow(*leaves, joint, causal)
    torch.testing.assert_close(out, truth, rtol=1e-9, atol=1e-10)
    for found, wanted in zip(gradients(out, leaves), gradients(truth, leaves), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)


@each_direction
@each_form
@each_kind
def test_single_precision(kind: str, joint: bool, causal: bool) -> None:
    """An exponent of 1000 has a rounding error of 6e-5, and its exponential the same relative error."""
    leaves = make(200, kind, torch.float32)
    exact = [x.detach().double().requires_grad_() for x in leaves]
    out, truth = exponent_attention(*leaves, joint=joint, causal=causal), slow(*exact, joint, causal)
    torch.testing.assert_close(out.double(), truth, rtol=1e-3, atol=1e-3)
    for found, wanted in zip(gradients(out, leaves), gradients(truth, exact), strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-3, atol=1e-3)


@each_form
@each_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_steps_equal_the_whole(kind: str, joint: bool, dtype: torch.dtype) -> None:
    q, k, v = (x.detach() for x in make(70, kind, dtype))
    truth = slow(q.double(), k.double(), v.double(), joint, causal=True)
    state = exponent_state(2, 2, 6, 3, torch.device("cpu"), dtype)
    for i in range(70):
        state = state.add(k[:, :, i], v[:, :, i])
        close = {"rtol": 1e-3, "atol": 1e-3} if dtype is torch.float32 else {"rtol": 1e-9, "atol": 1e-10}
        torch.testing.assert_close(state.read(q[:, :, i : i + 1], joint)[:, :, 0].double(), truth[:, :, i], **close)
    swapped = state.reorder(torch.tensor([1, 0, 1]))
    assert torch.equal(swapped.mean[0], state.mean[1])
    assert torch.equal(swapped.total[1], state.total[0])


@each_form
@each_kind
def test_pads_and_a_source_of_pads(kind: str, joint: bool) -> None:
    leaves = make(20, kind, torch.float64)
    mask = torch.arange(20) < torch.tensor([[13], [0]])
    pads = ~mask[:, None, :, None]
    q, k, v = leaves
    noisy = [q, k.masked_fill(pads, 5000.0), v.masked_fill(pads, float("nan"))]
    out = exponent_attention(*noisy, joint=joint, key_mask=mask)
    truth = slow(q[:1], k[:1, :, :13], v[:1, :, :13], joint, causal=False)
    torch.testing.assert_close(out[:1], truth, rtol=1e-9, atol=1e-10)
    assert (out[1] == 0).all()
    assert all(gradient.isfinite().all() for gradient in gradients(out, leaves))
    read = exponent_memory(noisy[1], noisy[2], mask).read(q, joint)
    torch.testing.assert_close(read, out, rtol=1e-9, atol=1e-10)


@each_form
@each_algorithm
def test_no_query_sees_later_keys(joint: bool, algorithm: str) -> None:
    q, k, v = (x.detach() for x in make(130, "moderate", torch.float64))
    before = exponent_attention(q, k, v, joint=joint, causal=True, algorithm=algorithm)
    for position in (0, 1, 31, 63, 64, 127):
        later = k.clone()
        later[:, :, position + 1 :] += 500.0
        after = exponent_attention(q, later, v, joint=joint, causal=True, algorithm=algorithm)
        torch.testing.assert_close(after[:, :, : position + 1], before[:, :, : position + 1], rtol=0, atol=1e-12)


@each_direction
@pytest.mark.parametrize(("batch", "length"), [(0, 5), (2, 0)])
def test_empty_inputs(causal: bool, batch: int, length: int) -> None:
    q, k, v = (x.detach()[:batch, :, :length] for x in make(9, "moderate", torch.float32))
    assert exponent_attention(q, k, v, joint=True, causal=causal).shape == (batch, 2, length, 3)
