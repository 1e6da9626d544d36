"""Pieces of documents through the search, in batches of like length, and what it finds as texts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import Hypothesis, decode
from scaleformer.translation.batches import MemoryEstimate, make_batches, pad, runs
from scaleformer.translation.matching import by_source, cut_segments
from scaleformer.translation.streaming import SegmentStreams
from scaleformer.translation.told import Told
from scaleformer.translation.translations import DocumentHypothesis, Translation, nothing
from scaleformer.vocabulary import EOS

if TYPE_CHECKING:
    from scaleformer.translation.translator import Translator


def cut_pieces(segments: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> list[list[str]]:
    """Pieces of a document of at most max_tokens source tokens, none empty."""
    tokens = tokenizer.encode_batch(segments)
    sizes = [len(encoded) + 1 for encoded in tokens]  # with `<sep>`
    return list(runs(zip(segments, sizes, strict=True), max_tokens - 1))  # `</s>` is one


def translate_pieces(
    translator: Translator,
    documents: Sequence[Sequence[str]],
    keys: Sequence[str],
    told: Sequence[Told],
    config: DecodingConfig,
    before: Sequence[int],
    progress: Callable[[float, int], None] | None,
    done: int = 0,
    streams: SegmentStreams | None = None,
) -> Iterator[Translation]:
    """Documents, each at once, in their order, made in batches of like length: what `Translator` is built on.

    keys: of their samples; told: to say; before: the tag; done: source tokens translated before; streams: that
    are told of segments.
    """
    sources = {
        place: [*before, *translator.source_tokenizer.encode_segments(segments), EOS]
        for place, segments in enumerate(documents)
        if told[place] or any(segment.strip() for segment in segments)
    }
    lengths = {place: len(tokens) for place, tokens in sources.items()}
    total = done + sum(lengths.values())
    written = at_hand = 0  # target tokens so far, source tokens of the batch

    def report(tokens: int, share: float) -> None:
        nonlocal written
        written += tokens
        if progress is not None:
            progress((done + share * at_hand) / total, written)

    found = {n: nothing(len(segments)) for n, segments in enumerate(documents) if n not in sources}
    following = 0
    for places in [*_batches(translator, sources, config, any(told), progress is not None), []]:
        if places:
            batch = pad([sources[place] for place in places], translator.device)
            at_hand = sum(lengths[place] for place in places)
            target = translator.target_tokenizer
            decoded = decode(
                translator.model, *batch, config, keys=[keys[n] for n in places],
                progress=report, forced=[told[n].tokens(target) for n in places],
                watch=None if streams is None else streams.of(places),
            )  # fmt: skip
            for place, hypotheses in zip(places, decoded, strict=True):
                found[place] = Translation(
                    tuple(make_hypothesis(translator, h, config, told[place], sources[place]) for h in hypotheses),
                    len(documents[place]),
                    lengths[place],
                )
            done, at_hand = done + at_hand, 0
            report(0, 0.0)
        while following in found:
            yield found.pop(following)
            following += 1


def _batches(
    translator: Translator, sources: Mapping[int, Sequence[int]], config: DecodingConfig, told: bool, tell: bool
) -> list[list[int]]:
    """By `memory_limit`, where that is set, else by `batch_tokens`; tell: on stderr, the estimate."""
    limit = config.memory_limit_bytes
    if limit is None or not sources:
        return make_batches({place: len(tokens) for place, tokens in sources.items()}, config)
    batches, words = MemoryEstimate(translator.model, config, told).batches(sources, limit)
    if tell:
        print(words, file=sys.stderr)
    return batches


def make_hypothesis(
    translator: Translator, found: Hypothesis, config: DecodingConfig, told: Told, tokens: Sequence[int] = ()
) -> DocumentHypothesis:
    """What the search has found of a document, as texts; without its source tokens, it does not say which of its
    segments were cut."""
    target = translator.target_tokenizer
    cut: tuple[int, ...] = ()
    if tokens and config.match_segments and not found.finished:
        cut = cut_segments(tokens, found.tokens, told.tokens(target), config)
    written = target.decode_counted(found.tokens)
    segments, shared = by_source(written) if config.match_segments else ([text for text, _ in written], [])
    segments = told.restore(segments, target) if told else segments
    return DocumentHypothesis(tuple(segments), found.log_probability, found.score, found.finished, tuple(shared), cut)
