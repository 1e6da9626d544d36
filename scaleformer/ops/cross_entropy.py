"""Output layer and cross-entropy in one, so that the logits of a batch never exist at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def linear_cross_entropy(
    states: Tensor, weight: Tensor, targets: Tensor, label_smoothing: float = 0.0, chunk_size: int = 1024
) -> Tensor:
    """Mean cross-entropy of softmax(states @ weight^T) against targets, in nats.

    loss_i = logsumexp(x_i) - (1 - e) x_i[y_i] - e mean(x_i),   x_i = W h_i,  e = label_smoothing [Szegedy 2016].

    Equal to `torch.nn.functional.cross_entropy` of the logits. `chunk_size` tokens at a time, each with its gradient
    (softmax minus the smoothed target) at once, so that memory is O(chunk V + T D + V D) where the logits and their
    gradient took O(T V). Under autocast the products run in its dtype; sums and exponentials in fp32.

    states   (T, D)
    weight   (V, D)
    targets  (T,) long
    returns  a scalar in fp32 (fp64 for fp64 states); raises ValueError where T is 0
    """
    if states.shape[0] == 0:
        raise ValueError("cross-entropy of no token: states has shape (0, D), wanted at least one row")
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    return _LinearCrossEntropy.apply(states, weight, targets, label_smoothing, chunk_size, dtype)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        targets: Tensor,
        label_smoothing: float,
        chunk_size: int,
        dtype: torch.dtype,
    ) -> Tensor:
        T, V = len(states), len(weight)
        exact = torch.promote_types(states.dtype, torch.float32)
        with torch.autocast(states.device.type, enabled=False):
            product_weight = weight.to(dtype)  # (V, D)
            loss = torch.zeros((), dtype=exact, device=states.device)
            wanted = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
            grad_states = torch.empty_like(states, dtype=exact) if wanted else None
            grad_weight = torch.zeros_like(weight, dtype=exact) if wanted else None
            for h, y, start in zip(
                states.split(chunk_size), targets.split(chunk_size), range(0, T, chunk_size), strict=True
            ):
                h = h.to(dtype)
                x = (h @ product_weight.T).to(exact)  # (C, V)
                total = x.logsumexp(1, keepdim=True)  # (C, 1)
                at_target = x.gather(1, y[:, None])  # (C, 1)
                loss += (total - (1 - label_smoothing) * at_target).sum()
                if label_smoothing:
                    loss -= label_smoothing / V * x.sum()
                if grad_states is None or grad_weight is None:
                    continue
                p = x.sub_(total).exp_()  # (C, V)
                if label_smoothing:
                    p -= label_smoothing / V
                p.scatter_add_(1, y[:, None], p.new_full((len(y), 1), label_smoothing - 1))
                p = p.to(dtype)
                grad_states[start : start + chunk_size] = p @ product_weight  # (C, D)
                grad_weight += p.T @ h  # (V, D)
            if grad_states is not None and grad_weight is not None:
                ctx.save_for_backward((grad_states / T).to(states.dtype), (grad_weight / T).to(weight.dtype))
        return loss / T

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        grad_states, grad_weight = ctx.saved_tensors
        return grad_states * gradients[0], grad_weight * gradients[0], None, None, None, None
