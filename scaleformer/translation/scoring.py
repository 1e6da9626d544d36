"""Log-probabilities of given targets (teacher forcing), in parallel over tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from scaleformer.data.batching import Example, collate, pack_padded
from scaleformer.decoding.ensemble import Ensemble
from scaleformer.model.transformer import Transformer
from scaleformer.system.bars import Progress

Floats = NDArray[np.float64]
_CHUNK = 1024  # positions whose logits, which cover the whole vocabulary, are held at once


@torch.inference_mode()
def target_losses(
    model: Transformer | Ensemble,
    examples: Sequence[Example],
    batch_tokens: int,
    progress: Progress | None = None,
    other: Sequence[int] | None = None,
) -> list[Floats]:
    """For each example, the negative log-probability, in nats, of every target token, given all before it.

    batch_tokens  most padded tokens, source and target together, per batch (a longer example goes alone)
    progress      called with the share of the tokens and their number so far
    other         a token of each example, to score at every position in place of the target's own
    The model must be in evaluation mode. Raises ValueError where it gives NaN.
    """
    lengths = [(len(example.source), len(example.target)) for example in examples]
    # Similar lengths together, the longest first: running out of memory shows at once.
    longest_first = sorted(enumerate(lengths), key=lambda one: (-sum(one[1]), -one[1][0]))
    found: list[Floats] = [np.zeros(0)] * len(examples)
    total, done = sum(map(sum, lengths)), 0
    for places in pack_padded(longest_first, batch_tokens):
        tokens = None if other is None else [other[place] for place in places]
        for place, loss in zip(places, _forward(model, [examples[place] for place in places], tokens), strict=True):
            found[place] = loss
            done += sum(lengths[place])
        if progress is not None:
            progress(done / total, done)
    return found


def _forward(model: Transformer | Ensemble, examples: Sequence[Example], other: Sequence[int] | None) -> list[Floats]:
    batch = collate(examples).to(next(model.parameters()).device)
    targets = batch.target_output[batch.target_mask]  # (tokens,)
    counts = [len(example.target) for example in examples]
    if other is not None:
        targets = torch.tensor(np.repeat(other, counts), device=targets.device)
    models = model.models if isinstance(model, Ensemble) else [model]
    states = [one(batch)[batch.target_mask].split(_CHUNK) for one in models]  # (tokens, D) of each
    losses = []
    for y, *hidden in zip(targets.split(_CHUNK), *states, strict=True):
        logits = [one.logits(h).double() for one, h in zip(models, hidden, strict=True)]  # (chunk, V) of each
        if isinstance(model, Ensemble):
            logits = [model.mean(torch.stack([own.log_softmax(1) for own in logits]))]
        losses.append(logits[0].logsumexp(1) - logits[0].gather(1, y[:, None])[:, 0])
    flat = torch.cat(losses).cpu().numpy()
    if not np.isfinite(flat).all():
        raise ValueError("the model gives a loss that is not finite: its weights are damaged: take another checkpoint")
    return np.split(flat, np.cumsum(counts)[:-1])
