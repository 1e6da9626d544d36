"""Output layer and cross-entropy in one, so that the logits of a batch never exist at once."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.checks import check_positive
from scaleformer.ops.common.choice import wants_gradients
from scaleformer.ops.common.matmul import by_convolution, linear, weight_gradient

_BITS = math.log2(math.e)
_MOST_IN_HALF = 2.0**15


def linear_cross_entropy(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    chunk_size: int = 512,
    real: Tensor | None = None,
) -> Tensor:
    """Mean cross-entropy of softmax(states @ weight^T) against targets, in nats.

    loss_i = logsumexp(x_i) - (1 - e) x_i[y_i] - e mean(x_i),   x_i = W h_i,  e = label_smoothing [Szegedy 2016].

    Equal to `torch.nn.functional.cross_entropy` of the logits. Computes at most `chunk_size` tokens at a time, together
    with their gradients, in memory shared by all chunks: O(chunk V + T D + V D) instead of O(T V) for the logits and
    their gradient. Under autocast the products run in its dtype; sums and exponentials in fp32.

    states   (T, D)
    weight   (V, D)
    targets  (T,) long
    real     (T,) bool, False where a token does not count, or None: for captured graphs, which cannot leave tokens out.
             The mean of no token at all is 0
    returns  a scalar in fp32 (fp64 for fp64 states); raises ValueError if T is 0 or the shapes do not fit together
    """
    if states.shape[0] == 0:
        raise ValueError("states has shape (0, D): the cross-entropy needs at least one token")
    if states.dim() != 2 or weight.shape[1:] != states.shape[1:] or targets.shape != states.shape[:1]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (states, weight, targets))
        raise ValueError(f"states, weight and targets have shapes {shapes}: they must be (T, D), (V, D) and (T,)")
    check_positive("chunk_size", chunk_size)
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    # Found here: inside the function a parameter seems to need its gradient even when gradients are off.
    wanted = wants_gradients(states, weight)
    return _LinearCrossEntropy.apply(states, weight, targets, label_smoothing, chunk_size, dtype, wanted, real)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, label_smoothing: float, chunk_size: int,
        dtype: torch.dtype, wanted: bool, real: Tensor | None,
    ) -> Tensor:  # fmt: skip
        T, V = len(states), len(weight)
        exact = torch.promote_types(states.dtype, torch.float32)
        count: int | Tensor = T
        if real is not None:  # states of zeros add nothing to the gradient of the weight
            states, count = states.masked_fill(~real[:, None], 0.0), real.sum().clamp(min=1)
        chunk = -(-T // -(-T // chunk_size))  # equal chunks: a new shape of product costs a CPU milliseconds
        with torch.autocast(states.device.type, enabled=False):
            W = weight.to(dtype)  # (V, D)
            summed = W.sum(0, dtype=exact)  # (D,): the smoothed part of the target is the same for every word
            loss = torch.zeros((), dtype=exact, device=states.device)
            grad_states = torch.empty_like(states, dtype=exact) if wanted else None
            grad_weight = torch.zeros_like(weight, dtype=exact) if wanted else None
            fast = by_convolution(states[:chunk].to(dtype), V)
            W_turned = W.T.contiguous() if fast else W.T  # (D, V)
            logits = W.new_empty(0 if fast else chunk, V)
            exponentials = logits if dtype == exact else W.new_empty(chunk, V, dtype=exact)
            for h, y, start in zip(states.split(chunk), targets[:, None].split(chunk), range(0, T, chunk), strict=True):
                h = h.to(dtype)
                if fast:
                    low = x = linear(h, W)  # (C, V)
                else:
                    low, x = logits[: len(h)], exponentials[: len(h)]  # (C, V)
                    torch.mm(h, W.T, out=low)
                if low.dtype != exact:
                    x.copy_(low)
                at_target = x.gather(1, y)  # (C, 1)
                most = x.amax(1, keepdim=True)  # (C, 1)
                # exp is slow on AMD CPUs: see feature_maps.py. Subtracting before multiplying keeps 0 exactly 0.
                x.sub_(most).mul_(_BITS).exp2_()
                total = x.sum(1, keepdim=True)  # (C, 1)
                each = total.log() + most - (1 - label_smoothing) * at_target  # (C, 1)
                loss += (each if real is None else each.masked_fill_(~real[start : start + chunk, None], 0.0)).sum()
                if label_smoothing:
                    loss -= label_smoothing / V * (h.to(exact) @ summed).sum()
                if grad_states is None or grad_weight is None:
                    continue
                if low.dtype == torch.float16 and V > _MOST_IN_HALF:  # `total` may be as large as V
                    scale = (total / _MOST_IN_HALF).clamp(min=1)
                    x, total = x.div_(scale), total / scale
                # softmax minus the target, times `total`; the uniform part of the smoothing comes below
                x.scatter_add_(1, y, (label_smoothing - 1) * total)
                if low.dtype != exact:
                    low.copy_(x)
                grad_states[start : start + chunk] = linear(low, W_turned) / total  # (C, D)
                grad_weight += weight_gradient(low, (h / total).to(dtype))  # (V, D)
            if grad_states is not None and grad_weight is not None:
                if label_smoothing:
                    grad_states -= label_smoothing / V * summed
                    grad_weight -= label_smoothing / V * states.to(dtype).sum(0, dtype=exact)
                if real is not None:
                    grad_states.masked_fill_(~real[:, None], 0.0)
                ctx.save_for_backward((grad_states / count).to(states.dtype), (grad_weight / count).to(weight.dtype))
        return loss / count

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grad_states, grad_weight = ctx.saved_tensors
        return grad_states * grad, grad_weight * grad, *6 * (None,)
