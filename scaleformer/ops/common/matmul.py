"""Products with weights; for fp32 on a CPU, by the library that is faster there.

torch uses MKL for them, which uses AVX-512 only on CPUs of its own vendor: on an AMD EPYC of Zen 5 it is half as fast
as oneDNN, which torch uses for convolutions. A convolution of width 1 is the same product. On Zen 4, with units of 256
bits, the two are equally fast. With a single thread torch does not use oneDNN for convolutions of width 1.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from scaleformer.system.processor import zen_generation

# Below these sizes the call overhead of a convolution outweighs the gain.
_FEWEST_ROWS = 192
_FEWEST_PRODUCTS = 1 << 23


class Int8Weight:
    """A weight (N, K) in 8 bits, each row with its own scale, for products on a CPU: x (..., K) to (..., N).

    Each product rounds x to 7 bits with one scale for all of x [torch's dynamic quantization], so that the result of a
    row depends slightly on the other rows. Reading the weight, which bounds a product of few rows, takes a quarter of
    the memory traffic. Raises ValueError if torch has no 8-bit products for this machine.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        there = hasattr(torch, "quantize_per_channel") and torch.backends.quantized.engine != "none"
        if weight.device.type != "cpu" or not there:
            raise ValueError("precision=int8: torch has no 8-bit products for this device or CPU: set precision=fp32")
        weight = weight.detach().float()
        scales = weight.abs().amax(1).clamp(min=1e-12).double() / 127
        places = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # torch plans to move these functions to a separate package
            warnings.simplefilter("ignore", UserWarning)
            rounded = torch.quantize_per_channel(weight, scales, places, 0, torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(rounded, None if bias is None else bias.detach())

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x.float(), self._packed, True).to(x.dtype)  # type: ignore[no-any-return]


class Linear(nn.Linear):
    """torch's linear map, computed by `linear`, or by `int8` if it is set; the same weights and names."""

    int8: Int8Weight | None = None

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias) if self.int8 is None else self.int8(x)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b, as `torch.nn.functional.linear`: x (..., K), weight (N, K), bias (N,) to (..., N)."""
    if not by_convolution(x, weight.shape[0]):
        return functional.linear(x, weight, bias)
    out = functional.conv2d(_as_image(x), weight[:, :, None, None], bias)  # (1, N, 1, at least rows)
    rows = x.numel() // x.shape[-1]
    return out.permute(0, 2, 3, 1)[0, 0, :rows].reshape(*x.shape[:-1], weight.shape[0])


def weight_gradient(grad: Tensor, x: Tensor) -> Tensor:
    """grad^T x, the gradient of the weight of `linear`: grad (rows, N) and x (rows, K) to (N, K)."""
    if not by_convolution(x, grad.shape[1]):
        return grad.T @ x
    size = grad.shape[1], x.shape[1], 1, 1
    return conv2d_weight(_as_image(x), size, _as_image(grad))[:, :, 0, 0]


def by_convolution(x: Tensor, outputs: int) -> bool:
    """Whether the product of x (..., K) with a weight (outputs, K) is computed as a convolution."""
    return (
        x.numel() >= _FEWEST_ROWS * x.shape[-1]
        and x.numel() * outputs >= _FEWEST_PRODUCTS
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and torch.get_num_threads() > 1
        and not torch.is_autocast_enabled("cpu")
        and convolutions_are_faster()
    )


def convolutions_are_faster() -> bool:
    """Whether this is a Zen 5 CPU and torch has both libraries. It depends on nothing else, so that a run resumed or
    repeated on the same CPU with the same number of threads gives the same results."""
    return zen_generation() == 5 and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()


def _as_image(x: Tensor) -> Tensor:
    """x (..., K) as an image of one row of pixels with K contiguous channels: (1, K, 1, at least rows).

    Zeros pad the rows to one of eight sizes between two powers of two: oneDNN compiles code for each new size, and
    batches come in any size.
    """
    rows = x.reshape(-1, x.shape[-1])
    step = 1 << max(len(rows).bit_length() - 4, 0)
    if len(rows) % step:
        rows = functional.pad(rows, (0, 0, 0, -len(rows) % step))
    return rows[None, None].permute(0, 3, 1, 2)
