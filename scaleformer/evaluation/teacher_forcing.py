"""Teacher-forced loss of every target token, for any examples and for long documents, whole or view by view."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scaleformer.data.batching import Example, collate, pack_padded
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.evaluation.length.views import View
from scaleformer.model.transformer import Transformer
from scaleformer.vocabulary import EOS, SEP

Floats = NDArray[np.float64]
_CHUNK = 1024
FINEST = 16  # positions of the first bin of a curve


@dataclass(frozen=True)
class EncodedDocument:
    """Token ids of the segments of a document, each closed by `<sep>`; counted as in `Example`."""

    source: tuple[tuple[int, ...], ...]
    target: tuple[tuple[int, ...], ...]
    counted: bool = False

    @classmethod
    def of(cls, source: Sequence[str], target: Sequence[str], tokenizers: tuple[Tokenizer, Tokenizer]) -> Any:
        """Encode with the source and the target tokenizer."""
        sides = [t.encode_batch(list(texts)) for t, texts in zip(tokenizers, (source, target), strict=True)]
        closed = [tuple((*tokens, SEP) for tokens in side) for side in sides]
        return cls(closed[0], closed[1], tokenizers[1].counted)


def example(document: EncodedDocument, view: View) -> Example:
    """The model's input for a view: its source, and the reference with `</s>` as the target."""
    sides = []
    for side in (document.source, document.target):
        sides.append(np.array([*(t for tokens in side[view.start : view.stop] for t in tokens), EOS], dtype=np.int64))
    return Example("", sides[0], sides[1], document.counted)


def token_losses(
    model: Transformer,
    documents: Sequence[EncodedDocument],
    views: Sequence[Sequence[View]],
    batch_tokens: int = 8192,
    progress: Callable[[float, int], None] | None = None,
) -> list[Floats]:
    """For each document, the negative log-probability, in nats, of every target token: all segments with their `<sep>`,
    then one `</s>`, for any views.

    views     of each document, covering it exactly once; the context of a view is given, not counted, and only the
              `</s>` of the last view counts
    progress  called with the share of the tokens and their number so far
    Raises ValueError where the model gives NaN.
    """
    jobs = [(number, view) for number, of_one in enumerate(views) for view in of_one]
    examples = [example(documents[number], view) for number, view in jobs]
    found: list[list[Floats]] = [[] for _ in documents]
    for (number, view), loss in zip(jobs, target_losses(model, examples, batch_tokens, progress), strict=True):
        target = documents[number].target
        skipped = sum(len(tokens) for tokens in target[view.start : view.new])
        found[number].append(loss[skipped : len(loss) - (view.stop < len(target))])
    return [np.concatenate(of_one) for of_one in found]


@torch.inference_mode()
def target_losses(
    model: Transformer,
    examples: Sequence[Example],
    batch_tokens: int,
    progress: Callable[[float, int], None] | None = None,
) -> list[Floats]:
    """For each example, the negative log-probability, in nats, of every target token, given all before it.

    batch_tokens  most padded tokens, source and target together, per batch (a longer example goes alone)
    progress      called with the share of the tokens and their number so far
    Raises ValueError where the model gives NaN.
    """
    found: list[Floats] = [np.zeros(0)] * len(examples)
    total, done = sum(map(_size, examples)), 0
    for places in _batches(examples, batch_tokens):
        for place, loss in zip(places, _forward(model, [examples[place] for place in places]), strict=True):
            found[place] = loss
            done += _size(examples[place])
        if progress is not None:
            progress(done / total, done)
    return found


def _size(example: Example) -> int:
    return len(example.source) + len(example.target)


def _batches(examples: Sequence[Example], budget: int) -> Iterator[list[int]]:
    """Batches of indices, similar lengths together, longest first: running out of memory shows at once."""
    lengths = [(len(example.source), len(example.target)) for example in examples]
    longest_first = sorted(enumerate(lengths), key=lambda one: (-sum(one[1]), -one[1][0]))
    return pack_padded(longest_first, budget)


def _forward(model: Transformer, examples: Sequence[Example]) -> list[Floats]:
    batch = collate(examples).to(model.output_weight.device)
    states = model(batch)[batch.target_mask]  # (tokens, D)
    targets = batch.target_output[batch.target_mask]  # (tokens,)
    losses = []
    for h, y in zip(states.split(_CHUNK), targets.split(_CHUNK), strict=True):
        logits = model.logits(h).double()  # (chunk, V)
        losses.append(logits.logsumexp(1) - logits.gather(1, y[:, None])[:, 0])
    flat = torch.cat(losses).cpu().numpy()
    if not np.isfinite(flat).all():
        raise ValueError("the model gives a loss that is not finite: its weights are damaged: take another checkpoint")
    return np.split(flat, np.cumsum([len(e.target) for e in examples])[:-1])


def position_bins(longest: int) -> list[tuple[int, int]]:
    """Ranges of target positions, each ending at about 1.4 times its start: [0, 16), [16, 23), [23, 32) ..."""
    edges = [0, FINEST]
    while edges[-1] < longest:
        edges.append(round(FINEST * 2 ** ((len(edges) - 1) / 2)))
    return list(pairwise(edges))


def loss_by_position(losses: Sequence[Floats]) -> list[dict[str, Any]]:
    """Mean loss of the target positions in each of `position_bins`, over all documents that reach them."""
    curve = []
    for start, stop in position_bins(max(len(loss) for loss in losses)):
        inside = np.concatenate([loss[start:stop] for loss in losses])
        curve.append({"from": start, "to": stop, "tokens": len(inside), "nats_per_token": float(inside.mean())})
    return curve
