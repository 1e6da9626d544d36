"""Translate documents: text and JSON Lines, files or pipes; other formats (docs/own-documents.md), files or folders.

scaleformer translate checkpoint=RUN input=FILE output=FILE [boundaries=blank] [decoding.beam_size=5]
scaleformer translate checkpoint=RUN input=FOLDER output=FOLDER [split=paragraph] [source_language=en]

Finished documents are kept in OUTPUT.part until all are done: the same call continues after an interruption. Documents
finished after an unfinished one, or within the current batch, are translated again.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from scaleformer.checkpoints.run_config import trained_mode
from scaleformer.decoding.config import MaxTokens, Mode, choose_decoding
from scaleformer.decoding.ensemble import Average
from scaleformer.formats.lines import Input
from scaleformer.formats.terms import read_terms
from scaleformer.system.bars import translation_bar
from scaleformer.system.files import check_file
from scaleformer.system.schema import Positive, listed
from scaleformer.translation.alternatives import alternatives_config, find_alternatives
from scaleformer.translation.files.lines import (
    Boundaries,
    LinesFormat,
    choose_format,
    choose_output_format,
    read_documents,
    translation_writer,
    write_translations,
)
from scaleformer.translation.files.translating import FileRequest, Split, are_files, check_options, translate_files
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.pieces import PieceTranslator
from scaleformer.translation.request import Listener, Request
from scaleformer.translation.resumable import resumable_translations
from scaleformer.translation.terms import merge_terms, report_terms
from scaleformer.translation.translation_memory import TranslationMemory, recall
from scaleformer.translation.translations import Translation
from scaleformer.translation.translator import Precision, Translator
from scaleformer.translation.word_alignments import align_words, alignments_path, write_alignments

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/translate.yaml describes them."""

    checkpoint: str | tuple[str, ...]
    input: str | tuple[str, ...]
    output: str
    format: LinesFormat
    output_format: LinesFormat
    mode: Mode | None
    tag: str | None
    max_tokens: MaxTokens | None
    boundaries: Boundaries
    ids: str | None
    split: Split
    source_language: str | None
    translation_memory: str | None
    terms: str | None
    align: str | None
    alternatives: Positive | None
    ensemble: Average
    device: str
    precision: Precision
    threads: Positive | None
    decoding: dict[str, Any]


def main(options: Options, given: Sequence[str]) -> None:
    if isinstance(options.input, tuple) or are_files(options.input, options.format, options.split):
        check_options(vars(options))
        if options.alternatives is not None:
            raise ValueError(f"alternatives={options.alternatives}: only JSON Lines can hold them: leave it out")
        if options.align is not None:
            raise ValueError("align: only for JSON Lines and text with one segment per line: leave it out")
        translator, mode = _load(options)
        decoding = choose_decoding(translator.decoding, options.decoding, given)
        job = FileRequest(
            tuple(listed(options.input)), options.output, options.split, options.source_language, mode,
            options.max_tokens, _translation_memory(options, translator), _terms(options),
        )  # fmt: skip
        translate_files(translator, job, decoding)
        return
    files = options.input, options.output
    given_input = Input(files[0])
    format = choose_format(options.format, given_input)
    output_format = choose_output_format(options.output_format, files[1], format)
    if output_format == "text" and all(map(os.path.isfile, files)) and os.path.samefile(*files):
        raise ValueError(f"output={files[1]} is the input: its text would be lost: give another name or JSON Lines")
    output = Path(files[1])
    check_file("output", files[1])
    to_file = files[1] != "-" and (output.is_file() or not output.exists())
    translator, mode = _load(options)
    decoding = choose_decoding(translator.decoding, options.decoding, given)
    if output_format == "text" and decoding.n_best > 1:
        raise ValueError(
            f"decoding.n_best={decoding.n_best}: text can hold only one translation: set output_format=jsonl"
        )
    if options.alternatives is not None:
        if output_format == "text" or mode != "document" or options.max_tokens is not None:
            wanted = "output_format=jsonl, with mode=document, without max_tokens"
            raise ValueError(f"alternatives={options.alternatives}: need whole documents in JSON Lines: set {wanted}")
        decoding = alternatives_config(decoding)
    aligned = alignments_path(options.align, files[1], output_format, decoding.match_segments)
    source = read_documents(given_input, format, options.boundaries, options.ids)
    print(f"{given_input.name}: {source.counts()}", file=sys.stderr)
    write = partial(write_translations, source=source, format=output_format, lists=decoding.n_best > 1)
    documents = [document.source for document in source.documents]
    memory = _translation_memory(options, translator)
    forced = recall(memory, source.forced or [ForcedTexts()] * len(documents), documents)
    names = [document.id for document in source.documents]
    terms = merge_terms(_terms(options), source.terms, documents)
    how = mode, options.max_tokens, None, forced, terms, source.where
    request = Request(documents, decoding, names, *how)

    def others(translations: Sequence[Translation], first: int = 0) -> dict[str, Any]:
        """The alternatives and alignments of these translations, if JSON Lines should have them."""
        part = slice(first, first + len(translations))
        found: dict[str, Any] = {}
        if options.alternatives is not None:
            with translation_bar("alternatives") if to_file else nullcontext() as progress:
                pieces = PieceTranslator(translator.loaded, decoding, translator.tag_tokens())
                found["alternatives"] = find_alternatives(
                    pieces, documents[part], translations, forced[part], options.alternatives, progress
                )
        if options.align is not None and aligned is None:
            found["alignments"] = align_words(translator.loaded, documents[part], translations, translator.tag_tokens())
        return found

    with ExitStack() as stack:
        if to_file:
            with translation_bar("translating") as progress:
                kept = output.with_name(f"{output.name}.part")
                translations = stack.enter_context(resumable_translations(translator, request, kept, progress))
            found = others(translations)
            write(
                stack.enter_context(translation_writer(files[1])),
                translations=translations,
                **found,
            )
        else:
            file = stack.enter_context(translation_writer(files[1]))
            numbers = count()

            def show(translation: Translation) -> None:
                first = next(numbers)
                write(
                    file,
                    translations=[translation],
                    first=first,
                    **others([translation], first),
                )
                file.flush()

            with translation_bar("translating") as progress:
                translations = translator.translate_documents(request, Listener(progress, show))
            if not documents:
                write(file, translations=[])
    if aligned is not None:
        tag = translator.tag_tokens()
        write_alignments(aligned, align_words(translator.loaded, documents, translations, tag))
    report_terms(request, translations, translator.source_tokenizer.has_terms)
    differ = sum(len(t.segments) != t.source_segments for t in translations)
    if differ:
        log.warning(
            "the segment count of %d of %d documents differs from their source; set decoding.match_segments=true",
            differ,
            len(translations),
        )


def _load(options: Options) -> tuple[Translator, Mode]:
    """The model, and the mode: the model's own if not given."""
    how = options.device, options.tag, options.ensemble, options.precision
    translator = Translator.load(options.checkpoint, *how)
    translator.tag_tokens()  # raises if a tag is missing
    own: Mode = "document" if options.max_tokens is not None else trained_mode(translator.config)
    return translator, options.mode or own


def _terms(options: Options) -> dict[str, str]:
    return {} if options.terms is None else read_terms(options.terms)


def _translation_memory(options: Options, translator: Translator) -> TranslationMemory | None:
    if options.translation_memory is None:
        return None
    source, target = (translator.segmentation.get(f"{side}_language") for side in ("source", "target"))
    return TranslationMemory.read(options.translation_memory, (options.source_language or source, target))
