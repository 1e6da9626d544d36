"""A trained model that translates documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import torch

from scaleformer.checkpoints.model_file import LoadedModel, load_model
from scaleformer.decoding.config import DecodingConfig, MaxTokens, Mode
from scaleformer.decoding.ensemble import Average
from scaleformer.model.transformer import Transformer
from scaleformer.system.devices import resolve_device
from scaleformer.system.schema import check_type, from_mapping
from scaleformer.translation.ensembles import load_ensemble
from scaleformer.translation.notices import warn_of_cut, warn_of_empty, warn_of_long
from scaleformer.translation.pieces import Piece, PieceTranslator, cut_pieces
from scaleformer.translation.streaming import SegmentStreams
from scaleformer.translation.term_search import TermSearch
from scaleformer.translation.terms import Terms, count_terms, terms_of, warn_of_terms
from scaleformer.translation.told import Texts, told_of
from scaleformer.translation.translations import DocumentHypothesis, Translation, check_documents, join
from scaleformer.translation.two_pass import translate_twice
from scaleformer.translation.word_alignments import Links, align_words

BY_SEGMENT = ("segment", "two-pass")
Precision = Literal["fp32", "int8"]


class Translator:
    """Translates documents, each a list of segments, with a trained model.

    loaded: the model, or the path of a run, checkpoint or exported model, as for `load`.
    decoding: the default settings; None for those of the model's run.
    tag: the default tag.
    Raises ValueError for an unknown tag, and if the run has unknown settings.
    """

    def __init__(
        self, loaded: LoadedModel | str | Path, decoding: DecodingConfig | None = None, tag: str | None = None
    ) -> None:
        if isinstance(loaded, (str, Path)):
            loaded = load_model(loaded, resolve_device(None))
        self.loaded = loaded
        self.model = loaded.model
        self.source_tokenizer = loaded.source_tokenizer
        self.target_tokenizer = loaded.target_tokenizer
        self.config = loaded.config
        self.sha256 = loaded.sha256
        self.path = loaded.path
        self.longest_segment = loaded.longest_segment
        self.parent = loaded.parent
        self.segmentation = loaded.segmentation
        self.device = loaded.device
        self.decoding = decoding or from_mapping(DecodingConfig, self.config.get("decoding") or {}, "decoding")
        self.tag = tag
        if tag is not None:
            self.tag_tokens(tag)

    def __repr__(self) -> str:
        parameters = sum(p.numel() for p in self.model.parameters())
        return f"Translator({str(self.path)!r}, {parameters:,} parameters, {self.device}, {self.decoding})"

    @property
    def precision(self) -> Precision:
        """That of the weights."""
        return "int8" if any(getattr(model, "output_int8", None) for model in self.model.modules()) else "fp32"

    @classmethod
    def load(
        cls,
        path: str | Path | Sequence[str | Path],
        device: str | torch.device | None = None,
        tag: str | None = None,
        ensemble: Average = "probabilities",
        precision: Precision = "fp32",
    ) -> Translator:
        """Load a run directory, a checkpoint file, an exported model or OWNER/NAME from the Hugging Face Hub, onto
        `device` or else a GPU if there is one. Several paths form an ensemble, which averages `probabilities` or
        `logs`. precision "int8" uses 8-bit weights on a CPU: faster, slightly less exact (`Transformer.to_int8`).

        Raises ValueError in one line if the model is missing, truncated or of a different version, or for an unknown
        device, tag or precision.
        """
        check_type("precision", precision, Precision)
        paths = [path] if isinstance(path, (str, Path)) else list(path)
        if len(paths) == 1:
            loaded = load_model(paths[0], resolve_device(device))
        else:
            loaded = load_ensemble(paths, resolve_device(device), ensemble)
        if precision == "int8":
            for model in loaded.model.modules():
                if isinstance(model, Transformer):
                    model.to_int8()
        return cls(loaded, tag=tag)

    def tag_tokens(self, tag: str | None = None) -> list[int]:
        """`LoadedModel.tag_tokens` of a tag, by default of the translator's own."""
        return self.loaded.tag_tokens(self.tag if tag is None else tag)

    def translate(
        self,
        documents: Sequence[Sequence[str]],
        *,
        max_tokens: int | None = None,
        mode: Mode = "document",
        tag: str | None = None,
        fixed: Sequence[Texts] | None = None,
        begin: Sequence[Texts] | None = None,
        terms: Terms | Sequence[Terms] | None = None,
        **decoding: Any,
    ) -> list[list[str]]:
        """The best translation of each document, in order; a document is a list of segments.

        `decoding` changes single settings of `DecodingConfig` (beam_size=1, match_segments=False ...); max_tokens,
        mode, tag, fixed, begin, terms as in `translate_documents`. A document without text (no segments, or only blank
        ones) gives empty segments, without using the model. The segment count equals the source's unless
        match_segments=False. Logs a warning for documents that hit the length limit and for segments longer than any in
        training.

        Raises ValueError for anything but a list of lists of strings, for wrong settings, for settings that the
        strategy does not use (a beam without beam search), and for n_best above 1 (use `translate_documents`).
        """
        if decoding.get("n_best", 1) != 1:
            raise ValueError(
                f"n_best={decoding['n_best']}: translate returns only the best: call translate_documents for all"
            )
        settings: dict[str, Any] = {"max_tokens": max_tokens, "mode": mode, "tag": tag}
        settings |= {"fixed": fixed, "begin": begin, "terms": terms}
        found = self.translate_documents(documents, **settings, **decoding)
        return [list(translation.segments) for translation in found]

    def translate_documents(
        self,
        documents: Sequence[Sequence[str]],
        config: DecodingConfig | None = None,
        *,
        ids: Sequence[str] | None = None,
        max_tokens: int | None = None,
        mode: Mode = "document",
        tag: str | None = None,
        fixed: Sequence[Texts] | None = None,
        begin: Sequence[Texts] | None = None,
        terms: Terms | Sequence[Terms] | None = None,
        progress: Callable[[float, int], None] | None = None,
        begun: Sequence[Translation] = (),
        finished: Callable[[Translation], None] | None = None,
        place: Callable[[int, int], str] | None = None,
        watch: Callable[[int, int, Sequence[str]], bool] | None = None,
        **decoding: Any,
    ) -> list[Translation]:
        """Like `translate`, but returns all hypotheses (n_best per document) with their scores.

        config      all settings of the search; None for those of the model's run
        decoding    single settings that override config
        ids         names of the documents in warnings (default: their numbers from 0). Samples of a document depend on
                    config.seed and its name only
        max_tokens  split sources between segments into pieces of at most this many tokens (`<sep>` and `</s>`
                    included), translate them separately and join them; a longer segment is a piece of its own
        mode        "document"; "segment": translate each segment separately, so the segment count is the source's; or
                    "two-pass": do so first, then translate each after the translations before it (`two_pass`)
        tag         the target language, such as `2es`, for a model trained with tags (`tag_tokens`); precedes every
                    document, piece or segment that is translated separately
        fixed       for each document, translations by segment number from 0: {12: "text"}. The model scores them,
                    continues after them and returns them unchanged; limits and rules do not apply to them
        begin       likewise beginnings of translations, which the model continues
        terms       target forms by source forms (`scaleformer.text.terms.Term`), for all documents or for each.
                    Segments that lack one are translated again, the others do not change (`TermSearch`); terms that
                    cannot be placed are logged as a warning. Log-probability and score cover the final translation
        progress    called with the share of source tokens translated and the number of target tokens written so far
        begun       existing translations of the first documents, which are not translated again
        finished    called with each further translation in document order, as soon as all before it are finished
        place       names a segment in warnings, by document and segment from 0
        watch       called from time to time for each unfinished document with its number, the place of the first newly
                    final segment and the texts of these segments (see `streaming.SegmentStreams`); if it returns False,
                    the document is given up and its partial translation returned
        """
        config = from_mapping(DecodingConfig, {**asdict(config or self.decoding), **decoding}, "decoding")
        config.refuse_unread(decoding)
        check_documents(documents)
        check_type("mode", mode, Mode)
        check_type("max_tokens", max_tokens, MaxTokens | None)
        if max_tokens is not None and mode in BY_SEGMENT:
            raise ValueError(f"max_tokens={max_tokens} is for documents, mode={mode} for segments: set only one")
        if config.n_best > 1 and (max_tokens is not None or mode in BY_SEGMENT):
            raise ValueError(f"n_best={config.n_best}: only the best hypotheses of pieces can be joined; set n_best=1")
        told = told_of(documents, fixed, begin, config.match_segments)
        asked = terms_of(documents, terms, config.match_segments, config.n_best)
        before = self.tag_tokens(tag)
        names = list(map(str, range(len(documents)))) if ids is None else list(ids)
        if place is None:
            place = lambda document, segment: f"document {names[document]}, segment {segment + 1}"  # noqa: E731
        if self.longest_segment is not None:
            warn_of_long(documents, self.source_tokenizer, self.longest_segment, place)
        done = sum(translation.source_tokens for translation in begun)
        groups = []
        for number, segments in enumerate(documents[len(begun) :], len(begun)):
            if mode in BY_SEGMENT:
                cut = [[segment] for segment in segments]
            elif max_tokens is not None:
                cut = cut_pieces(segments, self.source_tokenizer, max_tokens - len(before))
            else:
                cut = [list(segments)]
            stops = accumulate(map(len, cut))
            groups.append(
                [
                    Piece(
                        part,
                        f"{names[number]} {n}" if n else names[number],
                        told[number].part(stop - len(part), stop),
                        asked[number],
                    )
                    for n, (part, stop) in enumerate(zip(cut, stops, strict=True))
                ]
            )
        streams = None
        if watch is not None:
            final = config.match_segments and not any(asked)  # what a search writes
            sizes = [[len(piece.segments) for piece in group] for group in groups]
            streams = SegmentStreams(sizes, len(begun), self.target_tokenizer, final, watch)
        flat = [piece for group in groups for piece in group]
        translator = PieceTranslator(self.loaded, config, before)
        if mode == "two-pass":
            parts = translate_twice(translator, groups, progress, done, streams)
        else:
            parts = translator.translate(flat, progress, done, streams)
        if any(asked):
            parts = TermSearch(translator, flat).enforced(parts)
        translations = list(begun)
        for group in groups:
            found = [next(parts) for _ in group]
            translation = found[0] if max_tokens is None and mode == "document" else join(found, mode)
            translations.append(translation)
            if finished is not None:
                finished(translation)
        warn_of_cut(translations, names)
        warn_of_empty(documents, translations, place)
        if any(asked):
            warn_of_terms(count_terms(documents, translations, asked, place))
        return translations

    def align(self, documents: Sequence[Sequence[str]], translations: Sequence[Sequence[str]]) -> list[list[Links]]:
        """Word alignments of each segment of documents and their translations (`align_words`)."""
        made = [Translation((DocumentHypothesis(tuple(one), 0.0, 0.0, True),), len(one), 0) for one in translations]
        return align_words(self.loaded, documents, made, self.tag_tokens())
