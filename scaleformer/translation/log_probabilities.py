"""Log-probabilities of given translations, by document and segment, and reranking of n-best lists.

The translation is force-decoded: fed to the decoder unchanged, every token scored given all tokens before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from scaleformer.checkpoints.run_config import trained_mode
from scaleformer.data.batching import Example
from scaleformer.system.bars import Progress
from scaleformer.translation.scoring import target_losses
from scaleformer.translation.translations import DocumentHypothesis
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import EOS, SEP


@dataclass(frozen=True)
class SegmentScore:
    """Log-probability (natural) of a segment with its `<sep>`, given all before it; tokens counts the `<sep>` too;
    least: the lowest of a token."""

    log_probability: float
    tokens: int
    least: float = 0.0


@dataclass(frozen=True)
class DocumentScore:
    """Scores of a translation by segment, and of the `</s>` after them: log p(end here | all segments). ends: how many
    those are: of a model that ends each segment by itself one a segment, of an imported one, which writes none, 0."""

    segments: tuple[SegmentScore, ...]
    end: float
    ends: int = 1

    @property
    def log_probability(self) -> float:
        """Log-probability of the whole translation, `</s>` included."""
        return sum(segment.log_probability for segment in self.segments) + self.end

    @property
    def tokens(self) -> int:
        """Tokens of the whole translation, each `<sep>` and `</s>` counted."""
        return sum(segment.tokens for segment in self.segments) + self.ends

    def normalized(self, length_penalty: float) -> float:
        """log-probability / tokens ** length_penalty, as in beam search (`scaleformer.decoding.search`)."""
        return self.log_probability / max(1, self.tokens) ** length_penalty


def score_documents(
    translator: Translator,
    sources: Sequence[Sequence[str]],
    targets: Sequence[Sequence[str]],
    *,
    batch_tokens: int | None = None,
    progress: Progress | None = None,
    tag: str | None = None,
    alone: bool = False,
) -> list[DocumentScore]:
    """Score targets[n], a list of segments, as the translation of sources[n]; segment counts may differ.

    The text is tokenized again with the most probable segmentation: for a hypothesis that the model wrote in different
    pieces, this is the score of the text, not of those pieces.

    batch_tokens  most padded tokens, source and target together, per batch (a longer document goes alone); None for the
                  model's own decoding setting
    progress      called with the share of tokens scored and their number
    tag           as in `Translator.tag_tokens`
    alone         score each segment by itself, where a translation has as many as its source
    Raises ValueError where the counts of sources and targets differ, or the model gives NaN.
    """
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources and {len(targets)} translations: wanted equally many")
    budget = batch_tokens or translator.decoding.batch_tokens
    translator = translator.of(tag)
    before = translator.tag_tokens(tag)
    parts = [
        [([s], [t]) for s, t in zip(source, target, strict=True)]
        if alone and len(source) == len(target) > 1
        else [(source, target)]
        for source, target in zip(sources, targets, strict=True)
    ]
    examples = [
        Example(
            str(number),
            np.array([*before, *translator.source_tokenizer.encode_segments(source), EOS]),
            np.array([*translator.target_tokenizer.encode_segments(target), EOS]),
        )
        for number, (source, target) in enumerate(chain.from_iterable(parts))
    ]
    losses = target_losses(translator.model, examples, budget, progress)
    scored = (_by_segment(e.target.tolist(), (-loss).tolist()) for e, loss in zip(examples, losses, strict=True))
    written = not translator.model.ends_with_segments  # else `</s>` has no probability
    found = [list(islice(scored, len(some))) for some in parts]
    return [
        DocumentScore(
            tuple(segment for one in some for segment in one.segments),
            math.fsum(one.end for one in some) if written else 0.0,
            len(some) if written else 0,
        )
        for some in found
    ]


def perplexity(scores: Sequence[DocumentScore]) -> float:
    """exp of the mean negative log-probability per token, over all documents. ValueError without any."""
    tokens = sum(score.tokens for score in scores)
    if not tokens:
        raise ValueError("no translations to compute the perplexity of")
    return math.exp(-sum(score.log_probability for score in scores) / tokens)


@dataclass(frozen=True)
class RescoredHypothesis:
    """A hypothesis of an n-best list with its old score, the model's own, and the one that ranks it now.

    own  its log-probabilities by teacher forcing, whatever the model would have written itself
    """

    segments: tuple[str, ...]
    old_score: float
    own: DocumentScore
    score: float


def rescore(
    translator: Translator, sources: Sequence[Sequence[str]], lists: Sequence[Sequence[DocumentHypothesis]], *,
    length_penalty: float | None = None, old_weight: float = 0.0, batch_tokens: int | None = None,
    progress: Progress | None = None,
) -> list[list[RescoredHypothesis]]:  # fmt: skip
    """N-best lists sorted by a model's own scores: log p / tokens ** length_penalty + old_weight * old score.

    length_penalty  None for that of the model's own decoding
    old_weight      weight of the old score; 0 ranks by this model alone
    A model of single segments scores each by itself. Hypotheses with equal scores keep their order.
    Raises ValueError for an empty list.
    """
    for number, hypotheses in enumerate(lists):
        if not hypotheses:
            raise ValueError(f"the n-best list of document {number} is empty")
    alpha = translator.decoding.length_penalty if length_penalty is None else length_penalty
    flat = [(source, h) for source, hypotheses in zip(sources, lists, strict=True) for h in hypotheses]
    scores = score_documents(
        translator, [s for s, _ in flat], [h.segments for _, h in flat], batch_tokens=batch_tokens, progress=progress,
        alone=trained_mode(translator.config) == "segment",
    )  # fmt: skip
    scored = iter(
        RescoredHypothesis(tuple(h.segments), h.score, score, score.normalized(alpha) + old_weight * h.score)
        for (_, h), score in zip(flat, scores, strict=True)
    )
    return [sorted((next(scored) for _ in hypotheses), key=lambda h: -h.score) for hypotheses in lists]


def _by_segment(tokens: Sequence[int], scores: Sequence[float]) -> DocumentScore:
    segments, start = [], 0
    for place, token in enumerate(tokens):
        if token == SEP:
            own = scores[start : place + 1]
            segments.append(SegmentScore(math.fsum(own), len(own), min(own)))
            start = place + 1
    assert start == len(tokens) - 1
    return DocumentScore(tuple(segments), scores[-1])
