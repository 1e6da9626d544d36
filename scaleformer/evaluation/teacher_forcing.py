"""Teacher-forced loss of every target token of long documents, whole or view by view."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np

from scaleformer.data.batching import Example
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.evaluation.bootstrap import interval
from scaleformer.evaluation.length.views import View
from scaleformer.model.transformer import Transformer
from scaleformer.system.bars import Progress
from scaleformer.translation.scoring import Floats, target_losses
from scaleformer.vocabulary import EOS, SEP

FINEST = 16  # positions of the first bin of a curve


@dataclass(frozen=True)
class EncodedDocument:
    """Token ids of the segments of a document, each closed by `<sep>`."""

    source: tuple[tuple[int, ...], ...]
    target: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, source: Sequence[str], target: Sequence[str], tokenizers: tuple[Tokenizer, Tokenizer]) -> Any:
        """Encode with the source and the target tokenizer."""
        sides = [t.encode_batch(list(texts)) for t, texts in zip(tokenizers, (source, target), strict=True)]
        closed = [tuple((*tokens, SEP) for tokens in side) for side in sides]
        return cls(closed[0], closed[1])


def token_losses(
    model: Transformer,
    documents: Sequence[EncodedDocument],
    views: Sequence[Sequence[View]],
    batch_tokens: int = 8192,
    progress: Progress | None = None,
) -> list[Floats]:
    """For each document, the negative log-probability, in nats, of every target token: all segments with their `<sep>`,
    then one `</s>`, for any views.

    views     of each document, covering it exactly once; the context of a view is given, not counted, and only the
              `</s>` of the last view counts
    progress  called with the share of the tokens and their number so far
    Raises ValueError where the model gives NaN.
    """
    jobs = [(number, view) for number, of_one in enumerate(views) for view in of_one]
    examples = []
    for number, view in jobs:  # the source, and the reference with `</s>` as the target
        both = (side[view.start : view.stop] for side in (documents[number].source, documents[number].target))
        read, written = (np.array([*chain(*side), EOS], dtype=np.int64) for side in both)
        examples.append(Example("", read, written))
    found: list[list[Floats]] = [[] for _ in documents]
    for (number, view), loss in zip(jobs, target_losses(model, examples, batch_tokens, progress), strict=True):
        target = documents[number].target
        skipped = sum(len(tokens) for tokens in target[view.start : view.new])
        found[number].append(loss[skipped : len(loss) - (view.stop < len(target))])
    return [np.concatenate(of_one) for of_one in found]


def position_bins(longest: int) -> list[tuple[int, int]]:
    """Ranges of target positions, each ending at about 1.4 times its start: [0, 16), [16, 23), [23, 32) ..."""
    edges = [0, FINEST]
    while edges[-1] < longest:
        edges.append(round(FINEST * 2 ** ((len(edges) - 1) / 2)))
    return list(pairwise(edges))


def loss_by_position(losses: Sequence[Floats]) -> list[dict[str, Any]]:
    """Mean loss of the target positions in each of `position_bins`, over all documents that reach them, with their
    number and the interval by which it may differ for others (`interval`)."""
    curve = []
    for start, stop in position_bins(max(len(loss) for loss in losses)):
        inside = [loss[start:stop] for loss in losses if len(loss) > start]
        sums = np.array([(part.sum(dtype=np.float64), len(part)) for part in inside])
        mean = float(np.concatenate(inside).mean())
        found = {"documents": len(inside), "tokens": int(sums[:, 1].sum()), "nats_per_token": mean}
        curve.append({"from": start, "to": stop, **found, "interval": interval(sums, lambda both: both[0] / both[1])})
    return curve
