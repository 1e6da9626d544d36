"""A trained model that translates documents."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scaleformer.checkpoints.model_file import LoadedModel, load_model
from scaleformer.translation.search import DecodingConfig, decode
from scaleformer.vocabulary import EOS, PAD, SEP

MODES = ("document", "segment")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DocumentHypothesis:
    """One translation of a document; log_probability, score and finished as in `search.Hypothesis`."""

    segments: tuple[str, ...]
    log_probability: float
    score: float
    finished: bool


@dataclass(frozen=True)
class Translation:
    """What became of one document: its hypotheses, finished ones first, the best before others, and its source's size.

    source_tokens counts what the model read, `<sep>` and `</s>` too; 0 for a document without any text.
    """

    hypotheses: tuple[DocumentHypothesis, ...]
    source_segments: int
    source_tokens: int

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments of the best hypothesis."""
        return self.hypotheses[0].segments

    @property
    def finished(self) -> bool:
        """False where a length limit cut the best hypothesis."""
        return self.hypotheses[0].finished


class Translator:
    """Translates documents, each a list of segments, with a trained model.

    decoding: the settings from which calls start; None for those of the model's own run.
    Raises ValueError where the run has settings that this version does not know.
    """

    def __init__(self, loaded: LoadedModel, decoding: DecodingConfig | None = None) -> None:
        self.model = loaded.model
        self.source_tokenizer = loaded.source_tokenizer
        self.target_tokenizer = loaded.target_tokenizer
        self.config = loaded.config
        self.sha256 = loaded.sha256
        self.path = loaded.path
        self.device = next(self.model.parameters()).device
        self.decoding = decoding or DecodingConfig.from_mapping(self.config.get("decoding") or {})

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device | None = None) -> Translator:
        """From a run directory, a checkpoint file or an exported model; on a GPU where there is one, or on `device`.

        Raises ValueError in one line: nothing there, cut short, of another version, no such device.
        """
        return cls(load_model(path, resolve_device(device)))

    def translate(self, documents: Sequence[Sequence[str]], **decoding: Any) -> list[list[str]]:
        """The best translation of each document, in the order given; a document is a list of segments.

        `decoding` changes single settings of `DecodingConfig` (beam_size=1, match_segments=True ...). A document
        without any text (no segments, or blank ones only) comes back as empty segments, without the model. The number
        of segments may differ from the source's unless match_segments. Raises ValueError for what is no list of lists
        of strings, for wrong settings, and for those that the strategy does not read (a beam without beam search);
        documents that hit the length limit are logged as a warning.
        """
        config = DecodingConfig.from_mapping({**asdict(self.decoding), **decoding})
        config.refuse_unread(decoding)
        return [list(t.segments) for t in self.translate_documents(documents, config)]

    def translate_documents(
        self,
        documents: Sequence[Sequence[str]],
        config: DecodingConfig | None = None,
        *,
        ids: Sequence[str] | None = None,
        max_tokens: int | None = None,
        mode: str = "document",
        progress: Callable[[float, int], None] | None = None,
    ) -> list[Translation]:
        """As `translate`, with all hypotheses and what is to be known of each.

        ids         names of the documents for the warning about the length limit; their numbers (from 0) otherwise
        max_tokens  cut sources between segments into pieces of at most so many tokens (`<sep>` and `</s>` counted),
                    translated on their own and joined again; a longer segment is a piece by itself
        mode        "document", or "segment": each on its own, the output then has the segments of the source
        progress    called with the share of source tokens that is translated and the target tokens written so far
        """
        config = config or self.decoding
        _check(documents)
        if mode not in MODES:
            raise ValueError(f"mode={mode}: choose one of {', '.join(MODES)}")
        if max_tokens is not None and mode == "segment":
            raise ValueError(f"max_tokens={max_tokens} cuts documents, mode=segment has none: set one of the two")
        if max_tokens is not None and max_tokens < 3:
            raise ValueError(f"max_tokens={max_tokens}: wanted at least 3 (a token, <sep> and </s>)")
        if max_tokens is None and mode == "document":
            translations = self._translate(documents, config, progress)
        else:
            if config.n_best > 1:
                raise ValueError(
                    f"n_best={config.n_best}: pieces of a document are joined from their best; set n_best=1"
                )
            if mode == "segment":
                pieces = [[[segment] for segment in segments] for segments in documents]
            else:
                pieces = [list(self._cut(segments, max_tokens or 0)) for segments in documents]
            parts = iter(self._translate([piece for group in pieces for piece in group], config, progress))
            translations = [_join([next(parts) for _ in group], mode) for group in pieces]
        _warn(translations, ids)
        return translations

    def _cut(self, segments: Sequence[str], max_tokens: int) -> Iterator[list[str]]:
        """Pieces of a document of at most max_tokens source tokens, none empty."""
        piece: list[str] = []
        size = 1  # </s>
        for segment in segments:
            length = len(self.source_tokenizer.encode_segments([segment]))
            if piece and size + length > max_tokens:
                yield piece
                piece, size = [], 1
            piece.append(segment)
            size += length
        if piece:
            yield piece

    def _translate(
        self,
        documents: Sequence[Sequence[str]],
        config: DecodingConfig,
        progress: Callable[[float, int], None] | None,
    ) -> list[Translation]:
        """Whole documents in batches of like length, the longest first: what does not fit into memory shows at once."""
        found = [_nothing(len(segments)) for segments in documents]
        sources = {
            place: [*self.source_tokenizer.encode_segments(segments), EOS]
            for place, segments in enumerate(documents)
            if any(segment.strip() for segment in segments)
        }
        total = sum(len(tokens) for tokens in sources.values())
        done = written = 0

        def report(tokens: int) -> None:
            nonlocal written
            written += tokens
            if progress is not None:
                progress(done / total, written)

        generator = torch.Generator(self.device).manual_seed(config.seed) if config.strategy == "sample" else None
        for places in _batches({place: len(tokens) for place, tokens in sources.items()}, config):
            batch = _pad([sources[place] for place in places], self.device)
            decoded = decode(
                self.model, *batch, config, counted=self.target_tokenizer.counted, generator=generator, progress=report
            )
            for place, hypotheses in zip(places, decoded, strict=True):
                texts = [self.target_tokenizer.decode_segments(h.tokens) for h in hypotheses]
                found[place] = Translation(
                    tuple(
                        DocumentHypothesis(tuple(text), h.log_probability, h.score, h.finished)
                        for text, h in zip(texts, hypotheses, strict=True)
                    ),
                    len(documents[place]),
                    len(sources[place]),
                )
            done += sum(len(sources[place]) for place in places)
            report(0)
        return found


def resolve_device(device: str | torch.device | None) -> torch.device:
    """The device asked for; without one (or "auto") a GPU where there is one, else the CPU. ValueError if not there."""
    if device is None or device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        torch.empty(0, device=resolved)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"device={device}: not available here ({reason}); take device=cpu") from error
    return resolved


def _check(documents: Sequence[Sequence[str]]) -> None:
    wanted = "wanted a list of documents, each a list of segments, each a string"
    if isinstance(documents, str) or not isinstance(documents, Sequence):
        raise ValueError(f"documents is {type(documents).__name__}: {wanted}")
    for number, segments in enumerate(documents):
        if isinstance(segments, str) or not isinstance(segments, Sequence):
            raise ValueError(f"document {number} is {type(segments).__name__}: {wanted}")
        for place, segment in enumerate(segments):
            if not isinstance(segment, str):
                raise ValueError(f"segment {place} of document {number} is {type(segment).__name__}: {wanted}")


def _batches(lengths: Mapping[int, int], config: DecodingConfig) -> Iterator[list[int]]:
    """Places of documents, longest first, so many that places * longest * rows a document is in batch_tokens."""
    batch: list[int] = []
    for place in sorted(lengths, key=lambda place: -lengths[place]):
        longest = lengths[batch[0]] if batch else lengths[place]
        if batch and (len(batch) + 1) * longest * config.rows > config.batch_tokens:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _pad(sources: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """source, mask and segments (B, S) as `scaleformer.batch.Batch` has them."""
    length = max(len(tokens) for tokens in sources)
    source = torch.tensor([[*tokens, *[PAD] * (length - len(tokens))] for tokens in sources])
    mask = torch.arange(length) < torch.tensor([len(tokens) for tokens in sources])[:, None]
    separators = (source == SEP).long()
    return source.to(device), mask.to(device), (separators.cumsum(1) - separators).to(device)


def _nothing(segments: int) -> Translation:
    return Translation((DocumentHypothesis(("",) * segments, 0.0, 0.0, True),), segments, 0)


def _join(parts: list[Translation], mode: str) -> Translation:
    """One translation from those of a document's pieces, numbers summed; by segment each part is one segment."""
    best = [part.hypotheses[0] for part in parts]
    if mode == "segment":
        segments = tuple(" ".join(h.segments) for h in best)
    else:
        segments = tuple(segment for h in best for segment in h.segments)
    joined = DocumentHypothesis(
        segments,
        sum(h.log_probability for h in best),
        sum(h.score for h in best),
        all(h.finished for h in best),
    )
    return Translation(
        (joined,), sum(part.source_segments for part in parts), sum(part.source_tokens for part in parts)
    )


def _warn(translations: Sequence[Translation], ids: Sequence[str] | None) -> None:
    cut = [str(i if ids is None else ids[i]) for i, t in enumerate(translations) if not t.finished]
    if cut:
        shown = ", ".join(cut[:10]) + (" ..." if len(cut) > 10 else "")
        log.warning(
            "%d of %d documents hit the length limit and are cut (decoding.max_length_ratio, max_length_offset): %s",
            len(cut),
            len(translations),
            shown,
        )
