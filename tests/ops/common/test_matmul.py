"""Products as convolutions against torch's own, whatever the CPU of the test."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from scaleformer.ops.common import matmul as module
from scaleformer.ops.common.matmul import Linear, by_convolution, linear, weight_gradient
from scaleformer.ops.loss.cross_entropy import linear_cross_entropy


@pytest.fixture
def convolutions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Products go by convolutions, and are counted."""
    calls: list[int] = []
    convolve = functional.conv2d

    def counted(*arguments: torch.Tensor | None) -> torch.Tensor:
        calls.append(1)
        return convolve(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "convolutions_are_faster", lambda: True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(functional, "conv2d", counted)
    return calls


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(300, 160), (3, 100, 160), (2, 3, 97, 160)])
def test_values_and_gradients(convolutions: list[int], shape: tuple[int, ...], bias: bool) -> None:
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(*shape, generator=generator).requires_grad_()
    leaves = [x, torch.randn(200, 160, generator=generator).requires_grad_()]
    if bias:
        leaves.append(torch.randn(200, generator=generator).requires_grad_())
    out, expected = linear(*leaves), functional.linear(*leaves)
    assert convolutions
    assert out.is_contiguous()
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-4)
    grad = torch.randn(out.shape, generator=generator)
    for got, want in zip(
        torch.autograd.grad(out, leaves, grad), torch.autograd.grad(expected, leaves, grad), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-3)


def test_rows_and_weights_that_do_not_lie_in_order(convolutions: list[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(160, 300, generator=generator).T
    weight = torch.randn(160, 400, generator=generator).T[::2]
    torch.testing.assert_close(linear(x, weight), x @ weight.T, rtol=1e-5, atol=1e-4)
    assert convolutions


def test_batches_of_any_size_make_images_of_few() -> None:
    sizes = {module._as_image(torch.ones(rows, 3)).shape[3] for rows in range(1025, 2049)}
    assert sizes == set(range(1152, 2049, 128))
    image = module._as_image(torch.ones(1100, 3))
    assert image.shape == (1, 3, 1, 1152)
    assert image.sum() == 3300


@pytest.mark.usefixtures("convolutions")
def test_weight_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    grad, x = torch.randn(300, 200, generator=generator), torch.randn(300, 160, generator=generator)
    assert by_convolution(x, 200)
    torch.testing.assert_close(weight_gradient(grad, x), grad.T @ x, rtol=1e-5, atol=1e-3)


def test_what_stays_as_it_was(convolutions: list[int]) -> None:
    x, weight = torch.ones(300, 160), torch.ones(200, 160)
    for case in (x[:150], x.double(), x[:, :32], x[:0]):
        linear(case, weight[:, : case.shape[1]].to(case.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(x, weight).dtype == torch.bfloat16
    assert not convolutions


def test_cross_entropy_by_convolutions(convolutions: list[int]) -> None:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(700, 64, generator=generator).requires_grad_()
    weight = (0.2 * torch.randn(900, 64, generator=generator)).requires_grad_()
    targets = torch.randint(900, (700,), generator=generator)
    expected = functional.cross_entropy(states @ weight.T, targets, label_smoothing=0.1)
    loss = linear_cross_entropy(states, weight, targets, label_smoothing=0.1)
    assert convolutions
    torch.testing.assert_close(loss, expected)
    wanted = torch.autograd.grad(expected, (states, weight))
    for got, want in zip(torch.autograd.grad(loss, (states, weight)), wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


def test_the_module_is_torchs_but_for_how_it_multiplies(convolutions: list[int]) -> None:
    ours = Linear(160, 200)
    theirs = torch.nn.Linear(160, 200)
    theirs.load_state_dict(ours.state_dict())
    x = torch.linspace(-1, 1, 300 * 160).view(300, 160)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
    assert convolutions


@pytest.mark.parametrize("missing", [None, "mkl", "mkldnn"])
@pytest.mark.parametrize("zen", [0, 4, 5])
def test_where_convolutions_are_faster(monkeypatch: pytest.MonkeyPatch, zen: int, missing: str | None) -> None:
    monkeypatch.setattr(module, "zen_generation", lambda: zen)
    for name in ("mkl", "mkldnn"):
        monkeypatch.setattr(getattr(torch.backends, name), "is_available", lambda name=name: name != missing)
    assert module.convolutions_are_faster() is (zen == 5 and missing is None)


def test_a_single_thread_keeps_torchs_product(convolutions: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    linear(torch.ones(300, 160), torch.ones(200, 160))
    assert not convolutions
