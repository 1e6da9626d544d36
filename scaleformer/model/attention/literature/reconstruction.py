"""What the compressive transformer loses by compressing: its attention-reconstruction loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from scaleformer.model.attention.literature.compression import full
from scaleformer.ops.common.matmul import linear
from scaleformer.ops.softmax.windowed import chunks

if TYPE_CHECKING:
    from scaleformer.model.attention.literature.compressive import CompressiveAttention


def reconstruction_loss(attention: CompressiveAttention, x: Tensor, mask: Tensor) -> Tensor:
    """The mean over the pieces that a token follows, as `CompressiveAttention` says; x (B, L, D), mask (B, L)."""
    C, first = attention.piece, attention.memory // attention.piece  # the first piece after which tokens leave
    size, known = 0, mask.new_zeros(len(mask), dtype=torch.long)  # (B,)
    if (former := attention._former) is not None:
        x, size, known = former.before(x), former.states.shape[1], former.known
    counts = functional.pad(mask, (size, 0))[:, C::C]  # (B, N), whether a token of x follows the piece
    # and it is known
    counts = counts & (C * torch.arange(counts.shape[1], device=x.device) >= size - known[:, None])
    counts = counts[:, first:]  # (B, n)
    pieces = slice(first, first + counts.shape[1])
    with torch.no_grad():
        query = chunks(attention._split(attention.query(x)), C)[:, :, pieces]  # (B, H, n, C, d)
    old = attention.leaving(x)[:, : counts.shape[1]]  # (B, n, C, D)
    begin = (size - known // attention.rate * attention.rate)[
        :, None, None, None, None
    ]  # (B, 1, 1, 1, 1), whole groups
    parts = torch.arange(old.shape[1] * C, device=x.device).view(-1, 1, C)  # (n, 1, C)
    in_text = parts - attention.memory % C >= begin  # (B, 1, n, 1, C)
    counts = counts & in_text.any(-1)[:, 0, :, 0]
    in_text = in_text | ~counts[:, None, :, None, None]  # no softmax over nothing where nothing counts
    new = attention.compress(old)  # (B, n, C / r, D)
    errors = reconstruction_errors(query, _heads(attention, old), _heads(attention, new), in_text)  # (B, n)
    return (errors * counts).sum() / counts.sum().clamp(min=1)


def reconstruction_errors(query: Tensor, old: list[Tensor], new: list[Tensor], in_text: Tensor) -> Tensor:
    """[Rae 2020, algorithm 2]: the norm of the difference between attention to what leaves and to what stays of it, the
    mean over the C queries of a piece: (B, N).

    query    (B, H, N, C, d)
    old      keys and values (B, H, N, C, d), and new, compressed (B, H, N, C / r, d)
    in_text  (B, 1, N, 1, C) bool, False before the text
    """
    rate = in_text.shape[-1] // new[0].shape[-2]
    wanted = scaled_dot_product_attention(query, old[0], old[1], in_text)  # (B, H, N, C, d)
    found = scaled_dot_product_attention(query, new[0], new[1], in_text[..., ::rate])  # (B, H, N, C, d)
    return (wanted - found).movedim(1, 3).flatten(3).to(full(query.dtype)).norm(dim=-1).mean(-1)


def _heads(attention: CompressiveAttention, states: Tensor) -> list[Tensor]:
    """Keys and values (B, H, n, T, d) of states (B, n, T, D), without gradient to the projections."""
    weights = (attention.key.weight.detach(), attention.value.weight.detach())
    return [linear(states, w).unflatten(-1, (attention.heads, -1)).movedim(-2, 1) for w in weights]
