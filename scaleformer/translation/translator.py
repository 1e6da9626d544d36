"""A trained model that translates documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

import torch

from scaleformer.checkpoints.model_file import LoadedModel, load_model
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.ensemble import Average
from scaleformer.model.transformer import Transformer
from scaleformer.system.devices import resolve_device
from scaleformer.system.schema import check_type, from_mapping
from scaleformer.translation.ensembles import load_ensemble
from scaleformer.translation.forced import Texts, force
from scaleformer.translation.notices import warn_of_broken, warn_of_cut, warn_of_empty, warn_of_long
from scaleformer.translation.pieces import PieceTranslator, pieces_of
from scaleformer.translation.request import Listener, Request
from scaleformer.translation.streaming import SegmentStreams
from scaleformer.translation.term_search import TermSearch
from scaleformer.translation.terms import count_terms, warn_of_terms
from scaleformer.translation.translations import DocumentHypothesis, Translation, join
from scaleformer.translation.word_alignments import Links, align_words

Precision = Literal["fp32", "bf16", "int8"]
NOBODY = Listener()
_LANGUAGE = re.compile(r"(?!src|tgt|trg|ref)[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*")  # not the endings of files without one


class Translator(LoadedModel):
    """A trained model that translates documents, each a list of segments.

    loaded    the model, or the path of a run, checkpoint or exported model, as for `load`
    decoding  the default settings of the search; None for those of the model's run
    tag       the default tag, the target language of a model trained with tags

    Raises ValueError for an unknown tag, and if the run has unknown settings.
    """

    def __init__(
        self, loaded: LoadedModel | str | Path, decoding: DecodingConfig | None = None, tag: str | None = None
    ) -> None:
        if isinstance(loaded, (str, Path)):
            loaded = load_model(loaded, resolve_device(None))
        if loaded.source_tokenizer.imported:
            tag = tag or (loaded.config.get("data") or {}).get("tag")
            loaded = loaded if tag is None else loaded.tagged(tag)
        super().__init__(**vars(loaded))
        self.decoding = decoding or from_mapping(DecodingConfig, self.config.get("decoding") or {}, "decoding")
        self.tag = tag
        if tag is not None:
            self.tag_tokens(tag)

    def __repr__(self) -> str:
        parameters = sum(p.numel() for p in self.model.parameters())
        return f"Translator({str(self.path)!r}, {parameters:,} parameters, {self.device}, {self.decoding})"

    @property
    def precision(self) -> Precision:
        """The precision of the weights."""
        if any(getattr(model, "output_int8", None) for model in self.model.modules()):
            return "int8"
        return "bf16" if next(self.model.parameters()).dtype == torch.bfloat16 else "fp32"

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
        `logs`. precision "int8" uses 8-bit weights on a CPU: faster, slightly less exact (`Transformer.to_int8`);
        "bf16" loads weights of 16 bits, half the memory, and computes with them. Raises ValueError in one line if the
        model is missing, truncated or of a different version, or for an unknown device, tag or precision."""
        check_type("precision", precision, Precision)
        paths = [path] if isinstance(path, (str, Path)) else list(path)
        dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        if len(paths) == 1:
            if ensemble != "probabilities":
                raise ValueError(f"ensemble={ensemble}: of one model: name several checkpoints, or leave it out")
            loaded = load_model(paths[0], resolve_device(device), dtype)
        else:
            loaded = load_ensemble(paths, resolve_device(device), ensemble, dtype)
        if precision == "int8":
            for model in loaded.model.modules():
                if isinstance(model, Transformer):
                    model.to_int8()
        return cls(loaded, tag=tag)

    def of(self, tag: str | None) -> Translator:
        """The translator whose tokens are those of a tag: another one where tags stand in the vocabularies (imported
        models), else itself. Raises ValueError for a tag that an imported model does not know."""
        if tag in (None, self.tag) or not self.source_tokenizer.imported:
            return self
        return Translator(self.tagged(tag), self.decoding, tag)

    def target_language(self, tag: str | None = None) -> str:
        """The language that it writes, as in `es` or `pt-BR`: of a tag such as `2es`, else of the corpus; "" if neither
        names one."""
        named = (tag or self.tag or "").removeprefix("2"), self.segmentation.get("target_language") or ""
        return next(filter(_LANGUAGE.fullmatch, named), "")

    def languages(self, tag: str | None = None) -> tuple[str, str]:
        """Those of source and target; "" for one that nothing names."""
        return self.segmentation.get("source_language") or "", self.target_language(tag)

    def tag_tokens(self, tag: str | None = None) -> list[int]:
        """`LoadedModel.tag_tokens` of a tag, by default of the translator's own."""
        return super().tag_tokens(self.tag if tag is None else tag)

    def translate(self, documents: Sequence[Sequence[str]], **settings: Any) -> list[list[str]]:
        """The best translation of each document, in order; a document is a list of segments.

        settings  as in `request`: mode, max_tokens, tag, fixed, begin, terms, and settings of the search (beam_size=1,
                  match_segments=False ...)

        A document without text (no segments, or only blank ones) gives empty segments, without using the model. The
        segment count equals the source's unless match_segments=False. Logs a warning for documents that hit the length
        limit and for segments longer than any in training.

        Raises ValueError as `request` and `translate_documents`, and for n_best above 1 (use `translate_documents`).
        """
        if settings.get("n_best", 1) != 1:
            raise ValueError(
                f"n_best={settings['n_best']}: translate returns only the best: call translate_documents for all"
            )
        return [list(found.segments) for found in self.translate_documents(self.request(documents, **settings))]

    def request(
        self, documents: Sequence[Sequence[str]], decoding: DecodingConfig | None = None, *,
        fixed: Sequence[Texts] | None = None, begin: Sequence[Texts] | None = None,
        draft: str | Sequence[Sequence[str]] | None = None, **settings: Any,
    ) -> Request:  # fmt: skip
        """A request with the settings of this translator, and with these.

        decoding  all settings of the search; None for those of the translator
        fixed     for each document, translations by segment number from 0: {12: "text"}, returned unchanged
        begin     likewise beginnings of translations, which the model continues
        draft     for each document, texts that the translations of its segments probably have, as from an earlier
                  version; or whether to make such texts (`decoding.draft`). They do not change the result
        settings  other fields of `Request`, and single settings of the search that override `decoding`

        Raises ValueError as `Request`, for settings that do not exist, and for those that the strategy does not use (a
        beam without beam search).
        """
        if isinstance(draft, str):
            settings["draft"] = draft
        elif draft is not None:
            settings["drafts"] = draft
        names = {field.name for field in fields(Request)}
        search = {name: value for name, value in settings.items() if name not in names}
        chosen = from_mapping(DecodingConfig, {**asdict(decoding or self.decoding), **search}, "decoding")
        chosen.refuse_unread(search)
        own = {name: value for name, value in settings.items() if name in names and value is not None}
        if fixed is not None or begin is not None:
            own["forced"] = force(fixed, begin, len(documents))
        return Request(documents, chosen, **{"languages": self.languages(own.get("tag")), **own})

    def translate_documents(
        self, request: Request, listener: Listener = NOBODY, begun: Sequence[Translation] = ()
    ) -> list[Translation]:
        """All hypotheses (n_best per document) of each document, with their scores.

        listener  functions to call meanwhile
        begun     existing translations of the first documents, which are not translated again

        Logs a warning for documents that hit the length limit, segments longer than any in training or with an empty
        translation, and terms that could not be placed. Raises ValueError for a tag that the model does not know or
        wants, and if the model gives NaN.
        """
        if (other := self.of(request.tag)) is not self:
            return other.translate_documents(request, listener, begun)
        tag, tokenizer = self.tag_tokens(request.tag), self.source_tokenizer
        warn_of_long(request, tokenizer, self.longest_segment)
        groups = [pieces_of(request, n, tokenizer, len(tag)) for n in range(len(begun), len(request.documents))]
        pieces = [piece for group in groups for piece in group]
        streams = None
        if listener.segments is not None:
            sizes = [[len(piece.segments) for piece in group] for group in groups]
            final = request.decoding.match_segments and not any(request.required)  # what a search writes
            streams = SegmentStreams(sizes, len(begun), self.target_tokenizer, final, listener.segments)
        translator = PieceTranslator(self, request.decoding, tag)
        how = listener.progress, sum(translation.source_tokens for translation in begun), streams
        parts = translator.translate(pieces, *how)
        if any(request.required):
            parts = TermSearch(translator, pieces).enforced(parts)
        translations = list(begun)
        for group in groups:
            found = [next(parts) for _ in group]
            translations.append(found[0] if request.whole else join(found, request.mode))
            if listener.finished is not None:
                listener.finished(translations[-1])
        if listener.drafted is not None and translator.counts.calls:
            listener.drafted(translator.counts)
        warn_of_cut(request, translations)
        warn_of_broken(request, translations)
        warn_of_empty(request, translations)
        if any(request.required):
            warn_of_terms(count_terms(request, translations))
        return translations

    def align(self, documents: Sequence[Sequence[str]], translations: Sequence[Sequence[str]]) -> list[list[Links]]:
        """Word alignments of each segment of documents and their translations (`align_words`)."""
        if len(documents) != len(translations):
            raise ValueError(f"{len(documents)} documents, {len(translations)} translations: wanted one for each")
        made = [Translation((DocumentHypothesis(tuple(one), 0.0, 0.0, True),), len(one), 0) for one in translations]
        return align_words(self, documents, made, self.tag_tokens())
