"""Output layer, cross-entropy and R-Drop in one, so that the logits of a batch never exist at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scaleformer.ops.common.autograd import own_backward
from scaleformer.ops.common.checks import check_positive
from scaleformer.ops.common.choice import wants_gradients
from scaleformer.ops.common.matmul import linear, weight_gradient


def linear_r_drop(
    states: Tensor, weight: Tensor, targets: Tensor, alpha: float, label_smoothing: float = 0.0, chunk_size: int = 256
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of two passes that differ in dropout, plus the divergence of their predictions, in nats.

    loss = (CE(p, y) + CE(q, y)) / 2 + alpha / 4 (KL(p || q) + KL(q || p)),   p, q = softmax(states[i] @ weight^T)

    as means over the tokens: half of equation 4 of Liang et al. 2021, "R-Drop: Regularized Dropout for Neural
    Networks", so that alpha = 0 is the cross-entropy of both passes. Computes at most `chunk_size` tokens at a time,
    together with their gradients: O(chunk V + T D + V D) memory. Under autocast the products run in its dtype (in fp32
    for gradients that fp16 would lose); sums and exponentials in fp32.

    states   (2, T, D)
    weight   (V, D)
    targets  (T,) long
    returns  loss and, without a gradient, its first term, the cross-entropy: scalars in fp32 (fp64 for fp64 states);
             raises ValueError if T is 0 or the shapes do not fit together
    """
    if states.dim() != 3 or states.shape[:2] != (2, *targets.shape) or weight.shape[1:] != states.shape[2:]:
        shapes = ", ".join(str(tuple(x.shape)) for x in (states, weight, targets))
        raise ValueError(f"states, weight and targets have shapes {shapes}: they must be (2, T, D), (V, D) and (T,)")
    if not len(targets):
        raise ValueError("states has shape (2, 0, D): the cross-entropy needs at least one token")
    check_positive("chunk_size", chunk_size)
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    wanted = wants_gradients(states, weight)
    loss, cross_entropy = _LinearRDrop.apply(states, weight, targets, alpha, label_smoothing, chunk_size, dtype, wanted)
    return loss, cross_entropy


class _LinearRDrop(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        targets: Tensor,
        alpha: float,
        label_smoothing: float,
        chunk_size: int,
        dtype: torch.dtype,
        wanted: bool,
    ) -> tuple[Tensor, Tensor]:
        T, V = len(targets), len(weight)
        chunk = -(-T // -(-T // chunk_size))  # equal chunks
        exact = torch.promote_types(states.dtype, torch.float32)
        low = exact if dtype == torch.float16 else dtype
        cross_entropy = torch.zeros((), dtype=exact, device=states.device)
        divergence = torch.zeros_like(cross_entropy)
        grad_states = torch.empty_like(states, dtype=exact) if wanted else None
        grad_weight = torch.zeros_like(weight, dtype=exact) if wanted else None
        with torch.autocast(states.device.type, enabled=False):
            W = weight.to(dtype)  # (V, D)
            W_turned = weight.to(low).T.contiguous()  # (D, V)
            for start in range(0, T, chunk):
                part = slice(start, start + chunk)
                h = states[:, part].to(dtype)  # (2, C, D)
                y = targets[part].expand(2, -1)[..., None]  # (2, C, 1)
                logs = linear(h, W).to(exact).log_softmax(-1)  # (2, C, V)
                cross_entropy -= (1 - label_smoothing) * logs.gather(-1, y).sum() + label_smoothing / V * logs.sum()
                p = logs.exp()  # (2, C, V)
                apart = logs[0] - logs[1]  # (C, V)
                kl = torch.stack(((p[0] * apart).sum(-1), -(p[1] * apart).sum(-1)))[..., None]  # (2, C, 1)
                divergence += kl.sum()
                if grad_states is None or grad_weight is None:
                    continue
                # of the logits x of p: (p - y) / 2 + alpha / 4 (p (log p - log q - KL(p || q)) + p - q)
                grad = p * (0.5 + alpha / 4 * (1 - kl))  # (2, C, V)
                grad[0].addcmul_(p[0], apart, value=alpha / 4).sub_(p[1], alpha=alpha / 4)
                grad[1].addcmul_(p[1], apart, value=-alpha / 4).sub_(p[0], alpha=alpha / 4)
                grad -= label_smoothing / (2 * V)
                grad.scatter_add_(-1, y, grad.new_full((), (label_smoothing - 1) / 2).expand(y.shape))
                grad = grad.to(low)
                grad_states[:, part] = linear(grad, W_turned).to(exact)  # (2, C, D)
                grad_weight += weight_gradient(grad.flatten(0, 1), h.to(low).flatten(0, 1))  # (V, D)
        if grad_states is not None and grad_weight is not None:
            ctx.save_for_backward((grad_states / T).to(states.dtype), (grad_weight / T).to(weight.dtype))
        cross_entropy /= 2 * T
        ctx.mark_non_differentiable(cross_entropy)
        return cross_entropy + alpha / 4 / T * divergence, cross_entropy

    @staticmethod
    @own_backward
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        grad_states, grad_weight = ctx.saved_tensors
        return grad_states * grad, grad_weight * grad, None, None, None, None, None, None
