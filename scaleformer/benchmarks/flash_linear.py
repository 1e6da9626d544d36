"""The causal linear attention of flash-linear-attention: Triton kernels, the peer of our operators on a GPU.

Optional (`pip install flash-linear-attention`).
"""

from __future__ import annotations

import importlib
import importlib.util
from functools import partial

from torch import Tensor

from scaleformer.ops import get_feature_map, relative_kernel_attention

FLASH_LINEAR = "linear attention (flash-linear-attention)"
PLAIN = "scaleformer, without positions"


def flash_linear_systems(q: Tensor, k: Tensor, v: Tensor) -> dict[str, partial[Tensor]]:
    """Causal attention with phi(x) = elu(x) + 1, theirs and ours; empty without the package or without a GPU.

    q, k  (B, H, L, d), v  (B, H, L, e)
    """
    if not q.is_cuda or importlib.util.find_spec("fla") is None:
        return {}
    return {
        FLASH_LINEAR: partial(flash_linear_attention, q, k, v),
        PLAIN: partial(relative_kernel_attention, q, k, v, causal=True, algorithm="linear"),
    }


def flash_linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(B, H, L, e). The package wants (B, L, H, ...), so the copies to that layout count."""
    chunked = importlib.import_module("fla.ops.linear_attn").chunk_linear_attn
    phi = get_feature_map("elu1")
    out: Tensor = chunked(*(x.transpose(1, 2).contiguous() for x in (phi(q), phi(k), v)), normalize=True)[0]
    return out.transpose(1, 2)
