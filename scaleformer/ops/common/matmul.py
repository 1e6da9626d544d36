"""Products with weights, in fp32 on a CPU by the library that is the faster there.

torch takes MKL for them, which uses AVX-512 on CPUs of its own vendor alone: on an AMD EPYC of Zen 5 it reaches half of
what oneDNN does, which torch takes for convolutions. A convolution of width 1 is the same product. On Zen 4, whose
units are 256 bits wide, the two are level, and with a single thread torch takes no oneDNN for convolutions of width 1.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from scaleformer.system.processor import zen_generation

# Below these a convolution costs as much to call as it saves.
_FEWEST_ROWS = 192
_FEWEST_PRODUCTS = 1 << 23


class Int8Weight:
    """A weight (N, K) in 8 bits, each row with a scale of its own, for products on a CPU: x (..., K) to (..., N).

    x is rounded to 7 bits in each product, all of it with one scale [torch's dynamic quantization]: so what a row
    becomes depends a little on the others. Less is read, by a quarter, which is what a product of few rows waits for.
    Raises ValueError where torch has no such products.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        there = hasattr(torch, "quantize_per_channel") and torch.backends.quantized.engine != "none"
        if weight.device.type != "cpu" or not there:
            raise ValueError("precision=int8: torch has it for CPUs alone, and not for all: set precision=fp32")
        weight = weight.detach().float()
        scales = weight.abs().amax(1).clamp(min=1e-12).double() / 127
        places = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # torch means to move these functions to a package of their own
            warnings.simplefilter("ignore", UserWarning)
            rounded = torch.quantize_per_channel(weight, scales, places, 0, torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(rounded, None if bias is None else bias.detach())

    def __call__(self, x: Tensor) -> Tensor:
        return torch.ops.quantized.linear_dynamic(x.float(), self._packed, True).to(x.dtype)  # type: ignore[no-any-return]


class Linear(nn.Linear):
    """torch's linear map by `linear`; weights and their names are the same. With `int8` by that."""

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
    """Whether the product of x (..., K) with a weight (outputs, K) is taken as a convolution."""
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
    """Whether this is a CPU of Zen 5 and torch has both libraries; by that alone, so that a run that goes on elsewhere,
    or is made again, computes the same where CPU and number of threads are the same."""
    return zen_generation() == 5 and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()


def _as_image(x: Tensor) -> Tensor:
    """x (..., K) as an image of one row of pixels, K channels that lie beside each other: (1, K, 1, at least rows).

    Zeros fill up to one of eight sizes between a power of two and the next: oneDNN compiles code for each size anew,
    and batches have any.
    """
    rows = x.reshape(-1, x.shape[-1])
    step = 1 << max(len(rows).bit_length() - 4, 0)
    if len(rows) % step:
        rows = functional.pad(rows, (0, 0, 0, -len(rows) % step))
    return rows[None, None].permute(0, 3, 1, 2)
