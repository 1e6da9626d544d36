"""The weight w_i(x) of a key at the distance x in segments: a gate, scaled to bound the total weight of far keys."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scaleformer.ops.common.autograd import own_backward

# Devices where the gradient of a gate is one long product per document. On a GPU many short ones are faster: a pass
# forward and back takes down to an eleventh of the time (docs/log/054-choice-of-algorithm-on-a-gpu.md).
WHOLE_ON = frozenset({"cpu"})
HIDDEN = -1e30  # the logit of a hidden key: finite, so that a row of hidden keys does not give NaN


def pair_gates(
    gate: Tensor, query_segments: Tensor, key_segments: Tensor, causal: bool, key_mask: Tensor | None, far_tokens: float
) -> tuple[Tensor, Tensor]:
    """`gate` (H, 2G+1), gates or their logarithms, for all pairs (B, H, L_Q, L_K), and the scale of far keys
    (B, 1, L_Q, L_K), 1 for near keys."""
    reach = gate.shape[1] // 2
    distance = key_segments.long()[:, None, :] - query_segments.long()[:, :, None]  # (B, L_Q, L_K)
    far = distance.abs() >= reach  # (B, L_Q, L_K)
    seen = far if key_mask is None else far & key_mask[:, None, :]
    if causal:
        seen = seen.tril()
    count = seen.sum(-1, keepdim=True).clamp(min=1)  # (B, L_Q, 1), far keys of each query
    scale = (far_tokens / count.to(gate.dtype)).clamp(max=1.0)  # (B, L_Q, 1)
    return look_up(gate, distance.clamp(-reach, reach) + reach), torch.where(far, scale, 1.0)[:, None]


def look_up(gate: Tensor, column: Tensor) -> Tensor:
    """gate (H, 2G+1) at column (B, ...): (B, H, ...). The backward pass is a matrix product, not a scatter."""
    return _LookUp.apply(gate, column)


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, column: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(column)
        ctx.columns = gate.shape[1]
        return gate.index_select(1, column.flatten()).unflatten(1, column.shape).transpose(0, 1)

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        (column,) = ctx.saved_tensors
        if grad.device.type in WHOLE_ON:
            grad, column = grad.flatten(2), column.flatten(1)  # (B, H, n), (B, n)
        else:
            parts = (-1, grad.shape[-1])  # (B, m, H, n), (B, m, n)
            grad, column = grad.reshape(*grad.shape[:2], *parts).transpose(1, 2), column.reshape(len(column), *parts)
        chosen = (column.unsqueeze(-1) == torch.arange(ctx.columns, device=grad.device)).to(grad.dtype)
        return (grad @ chosen).flatten(0, -3).sum(0), None  # (H, 2G+1)
