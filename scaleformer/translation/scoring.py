"""Log-probabilities of given continuations, by the steps that a search takes.

B documents, K rows a document, row = b * K + k, L target tokens of the longest row, V words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from scaleformer.translation.search import DecodableModel
from scaleformer.vocabulary import BOS, PAD, consumed


class Scores(NamedTuple):
    """Log-probabilities (natural logarithm, fp32) of each token of each row, and, at each of its places and behind the
    last of them, of the token that was asked for."""

    tokens: list[list[Tensor]]
    asked: list[list[Tensor]]


@torch.inference_mode()
def score_rows(
    model: DecodableModel,
    source: tuple[Tensor, Tensor, Tensor],
    rows: Sequence[Sequence[Sequence[int]]],
    counted: bool,
    asked: Sequence[int] | None = None,
    skipped: int = 0,
) -> Scores:
    """Of each document its rows of target tokens, each from the start of the target on, without `<s>` and `</s>`.

    source: tokens, mask and segments (B, S) as `decode` takes them; asked: a token of each document, for `Scores`;
    skipped: so many first tokens of every row nobody asks about: they come as 0, which saves time.
    """
    B, K = len(rows), max(map(len, rows))
    filled = [row for some in rows for row in (*some, *[()] * (K - len(some)))]
    length = max(map(len, filled)) + 1
    device = source[0].device
    tokens = torch.tensor([[*row, *[PAD] * (length - len(row))] for row in filled], device=device)  # (B*K, L+1)
    inputs = torch.cat([torch.full_like(tokens[:, :1], BOS), tokens[:, :-1]], 1)  # (B*K, L+1)
    segments = consumed(inputs, counted).cumsum(1)  # (B*K, L+1)
    wanted = torch.tensor(asked or [PAD] * B, device=device).repeat_interleave(K)[:, None]  # (B*K, 1)
    state = model.init_state(model.encode(*source), K)
    found = []
    for place in range(length):
        logits, state = model.step(inputs[:, place], segments[:, place], state)
        if place < skipped:
            found.append(logits.new_zeros(B * K, 2).cpu())
            continue
        both = torch.cat([tokens[:, place, None], wanted], 1)  # (B*K, 2)
        found.append((logits.gather(1, both) - logits.logsumexp(1, keepdim=True)).float().cpu())
    scores = torch.stack(found, 1).unflatten(0, (B, K))  # (B, K, L+1, 2)
    own, other = scores.unbind(3)  # (B, K, L+1)
    places = [(b, some) for b, some in enumerate(rows)]
    return Scores(
        [[own[b, k, : len(row)] for k, row in enumerate(some)] for b, some in places],
        [[other[b, k, : len(row) + 1] for k, row in enumerate(some)] for b, some in places],
    )
