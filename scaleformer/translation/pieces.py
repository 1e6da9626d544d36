"""Pieces of documents through the search, in batches of like length, and what it finds as texts."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.data.batching import Example, collate
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.decoding.active import Watch
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.drafts import Counts, decode_drafts
from scaleformer.decoding.reading import DraftableModel
from scaleformer.decoding.search import Hypothesis, decode
from scaleformer.decoding.state import pad
from scaleformer.model.cache import StateCache, read_cache
from scaleformer.system.bars import Progress
from scaleformer.system.display import counted
from scaleformer.text.terms import Term
from scaleformer.translation.batches import MemoryEstimate, make_batches, runs, token_budget
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.matching import by_source, cut_segments
from scaleformer.translation.request import Request
from scaleformer.translation.streaming import SegmentStreams
from scaleformer.translation.translations import DocumentHypothesis, Translation, nothing
from scaleformer.vocabulary import EOS

Report = Callable[[int, float], None]
Known = tuple[tuple[str, str], ...]  # sources and their translations
# The share of tokens in segments that stay as drafted, before any is known (docs/log/078).
STAY = 0.75
CACHED = 1 << 18  # tokens of known translations beyond which the oldest caches are dropped
LONGEST = 1 << 11  # tokens of either side of a known translation; longer ones take too much time


class Piece(NamedTuple):
    """Segments that are translated at once: a document, consecutive segments of one, or a single segment.

    name    seeds its samples
    forced  texts that its translation has to have
    terms   those that its translation has to use
    draft   texts that the translations of its first segments probably have
    known   sources and translations of its document that are known, whose words count more
    """

    segments: Sequence[str]
    name: str
    forced: ForcedTexts = ForcedTexts()
    terms: Sequence[Term] = ()
    draft: Sequence[str] = ()
    known: Known = ()


def cut_pieces(segments: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> list[list[str]]:
    """Runs of segments of at most max_tokens source tokens, none empty; a longer segment is a run of its own."""
    sizes = [len(tokens) + 1 for tokens in tokenizer.encode_batch(segments)]  # with `<sep>`
    return list(runs(zip(segments, sizes, strict=True), max_tokens - 1))  # `</s>` is one


def known_of(segments: Sequence[str], forced: ForcedTexts, config: DecodingConfig) -> Known:
    """The sources and translations that a document with these segments has for the cache."""
    if config.cache == "none":
        return ()
    pairs = (*forced.known, *((segments[n], text) for n, text in sorted(forced.fixed.items())))
    return tuple(pair for pair in dict.fromkeys(pairs) if all(text.strip() for text in pair))


def _size(known: Known) -> int:
    """About as many tokens as the translations have, without a tokenizer."""
    return sum(len(text) for _, text in known) // 3


def pieces_of(request: Request, document: int, tokenizer: Tokenizer, tag: int) -> list[Piece]:
    """The pieces of a document, given by its number, as mode and max_tokens of the request ask.

    tag  how many tokens the tag takes in each piece
    """
    segments = request.documents[document]
    if request.by_segment:
        parts = [[segment] for segment in segments]
    elif request.max_tokens is None:
        parts = [list(segments)]
    else:
        parts = cut_pieces(segments, tokenizer, request.max_tokens - tag)
    name, terms = request.name(document), request.required[document]
    forced = request.forced[document] if request.forced else ForcedTexts()
    stops, draft = accumulate(map(len, parts)), request.drafts[document] if request.drafts else ()
    known = known_of(segments, forced, request.decoding)
    return [
        Piece(
            part,
            f"{name} {n}" if n else name,
            forced.part(stop - len(part), stop),
            terms,
            draft[stop - len(part) : stop],
            known,
        )
        for n, (part, stop) in enumerate(zip(parts, stops, strict=True))
    ]


@dataclass(frozen=True)
class PieceTranslator:
    """Translates pieces with a model.

    config  the settings of the search
    tag     tokens that precede the source of every piece
    counts  how far drafts carried, so far
    caches  of what is known of documents
    """

    loaded: LoadedModel
    config: DecodingConfig
    tag: Sequence[int] = ()
    counts: Counts = field(default_factory=Counts)
    caches: dict[Known, Sequence[StateCache]] = field(default_factory=dict)

    def translate(
        self,
        pieces: Sequence[Piece],
        progress: Progress | None = None,
        done: int = 0,
        streams: SegmentStreams | None = None,
    ) -> Iterator[Translation]:
        """The translations of pieces, in their order, each as soon as it and all before it are finished. Pieces of like
        length are decoded together. One without text or forced texts is not decoded; its segments stay empty.

        progress  called with the share of source tokens translated, of `done` earlier ones and all of these, and with
                  the number of target tokens written
        streams   reports segments as soon as they are final

        Raises ValueError as `decode`, and for a piece that needs more than `config.memory_limit`.
        """
        sources = {
            place: self.source_tokens(piece.segments)
            for place, piece in enumerate(pieces)
            if piece.forced or any(segment.strip() for segment in piece.segments)
        }
        total = done + sum(map(len, sources.values()))
        written = at_hand = 0  # target tokens so far, source tokens of the batch

        def report(tokens: int, share: float) -> None:
            nonlocal written
            written += tokens
            if progress is not None:
                progress((done + share * at_hand) / total, written)

        found = {place: nothing(len(piece.segments)) for place, piece in enumerate(pieces) if place not in sources}
        following = 0
        for places in [*self._batches(sources, pieces, progress is not None), []]:
            if places:
                batch = [pieces[place] for place in places]
                tokens = [sources[place] for place in places]
                at_hand = sum(map(len, tokens))
                watch = None if streams is None else streams.of(places)
                decoded = self._decode(batch, tokens, report, watch)
                for place, piece, source, hypotheses in zip(places, batch, tokens, decoded, strict=True):
                    texts = tuple(self.text(hypothesis, piece.forced, source) for hypothesis in hypotheses)
                    found[place] = Translation(texts, len(piece.segments), len(source))
                done, at_hand = done + at_hand, 0
                report(0, 0.0)
            while following in found:
                yield found.pop(following)
                following += 1

    def _decode(
        self, pieces: Sequence[Piece], sources: Sequence[Sequence[int]], report: Report, watch: Watch | None
    ) -> list[list[Hypothesis]]:
        """The hypotheses of a batch of pieces with these source tokens, from drafts where the settings ask for it."""
        forced = [piece.forced.tokens(self.loaded.target_tokenizer) for piece in pieces]
        if begin := self.loaded.target_tokenizer.prefix:
            every = [dict.fromkeys(range(len(piece.segments)), begin) for piece in pieces]
            forced = [{**first, **own} for first, own in zip(every, forced, strict=True)]
        model, config = self.loaded.model, self.config
        if any(piece.known for piece in pieces) and hasattr(model, "remembering"):
            caches: Sequence[Any] = [self._cache(piece.known) for piece in pieces]
            if not hasattr(model, "models"):  # which an ensemble has
                caches = [some[0] if some else None for some in caches]
            model = model.remembering(caches)
        always = config.strategy == "beam" or config.draft == "segments"  # beams by segment write other texts
        asked = always or any(piece.draft for piece in pieces) or self._pays(len(pieces))
        if not (self.drafted and asked) or all(len(piece.segments) == 1 for piece in pieces):
            names = [piece.name for piece in pieces]
            source = pad(sources, self.loaded.device)
            return decode(model, *source, config, keys=names, progress=report, forced=forced, watch=watch)
        drafts = self._drafts(pieces)
        return decode_drafts(
            cast(DraftableModel, model), sources, drafts, config, self.loaded.device, forced=forced, progress=report,
            watch=watch, counts=self.counts,
        )  # fmt: skip

    @property
    def drafted(self) -> bool:
        """Whether documents are decoded from drafts."""
        return self.config.drafts and bool(getattr(self.loaded.model, "resumes", False))  # an ensemble does not

    def _pays(self, documents: int) -> bool:
        """Whether drafts of so many documents beside each other pay: the more there are, the less a step costs each of
        them, and the more of the drafts have to stay."""
        stay = self.counts.kept / self.counts.tokens if self.counts.tokens else STAY
        return documents == 1 or documents * (1 - stay) ** 2 <= 0.6

    def _drafts(self, pieces: Sequence[Piece]) -> list[list[Sequence[int] | None]]:
        """The tokens of the drafts of segments; None for one with words and without a draft."""
        drafts: list[list[Sequence[int] | None]] = []
        for piece in pieces:
            texts = [*piece.draft, *[""] * len(piece.segments)][: len(piece.segments)]
            tokens = self.loaded.target_tokenizer.encode_batch(texts)
            rows = zip(piece.segments, texts, tokens, strict=True)
            drafts.append([words if text.strip() or not segment.strip() else None for segment, text, words in rows])
        return drafts

    def source_tokens(self, segments: Sequence[str]) -> list[int]:
        """The source tokens of a piece: the tag, its segments, each with `<sep>`, and `</s>`."""
        return [*self.tag, *self.loaded.source_tokenizer.encode_segments(segments), EOS]

    def text(self, found: Hypothesis, forced: ForcedTexts, source: Sequence[int] = ()) -> DocumentHypothesis:
        """A hypothesis of a piece as texts, the forced ones among them. The source tokens are needed to know which
        segments the length limit cut."""
        target, match = self.loaded.target_tokenizer, self.config.match_segments
        cut: tuple[int, ...] = ()
        if source and match and not found.finished:
            cut = cut_segments(source, found.tokens, forced.tokens(target), self.config)
        written = target.decode_counted(found.tokens)
        segments, shared = by_source(written) if match else ([text for text, _ in written], [])
        segments = forced.restore(segments, target) if forced else segments
        return DocumentHypothesis(
            tuple(segments), found.log_probability, found.score, found.finished, tuple(shared), cut,
            target.broken(found.tokens),
        )  # fmt: skip

    def _batches(self, sources: Mapping[int, Sequence[int]], pieces: Sequence[Piece], tell: bool) -> list[list[int]]:
        """The places of sources in batches, by memory_limit or else by batch_tokens; tell: print the estimate. Batches
        do not mix documents whose caches do not fit into memory together: each batch would read them again."""
        limit, forced = self.config.memory_limit_bytes, any(piece.forced for piece in pieces)
        if limit is None or not sources:
            sizes = {known: _size(known) for known in {piece.known for piece in pieces}}
            groups = runs([(place, sizes.pop(pieces[place].known, 0)) for place in sources], CACHED)
            lengths = ({place: len(sources[place]) for place in group} for group in groups)
            return [batch for some in lengths for batch in make_batches(some, self.config)]
        batches, words = MemoryEstimate(self.loaded.model, self.config, forced).batches(sources, limit)
        if tell:
            print(words, file=sys.stderr)
        return batches

    @torch.inference_mode()
    def _cache(self, known: Known) -> Sequence[StateCache] | None:
        """The cache of each model of these sources and translations, each read by itself; None of none. The last ones
        are kept: the pieces of a document have one in common, whatever their batches. Warns of translations that are
        too long to be read."""
        if known and known not in self.caches:
            encode, device, model = self.loaded.target_tokenizer.encode_segments, self.loaded.device, self.loaded.model
            models = getattr(model, "models", [model])
            most = min(LONGEST, *(min(one.most_source_tokens, one.most_target_tokens) for one in models))
            every = ((self.source_tokens([source]), [*encode([text]), EOS]) for source, text in known)
            texts = [pair for pair in every if max(map(len, pair)) <= most]
            if longer := len(known) - len(texts):
                what = f"{counted(longer, 'known translation')} of more than {most:,.0f} tokens"
                warnings.warn(f"{what} cannot help the rest of the document", stacklevel=2)
            examples = [Example("", np.array(source), np.array(target)) for source, target in texts]
            lengths = {n: max(map(len, pair)) for n, pair in enumerate(texts)}
            batches = token_budget(lengths, self.config.batch_tokens)
            while sum(len(some[0].tokens) for some in self.caches.values() if some) > CACHED:
                del self.caches[next(iter(self.caches))]
            read = [collate([examples[n] for n in some]).to(device) for some in batches]
            self.caches[known] = [read_cache(one, read) for one in models] if read else []
        return self.caches.get(known)
