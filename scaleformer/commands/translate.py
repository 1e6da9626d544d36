"""Translate documents: text and JSON Lines, files or pipes; other formats (docs/own-documents.md), files or folders.

scaleformer translate checkpoint=RUN input=FILE output=FILE [boundaries=blank] [decoding.beam_size=5]
scaleformer translate checkpoint=RUN input=FOLDER output=FOLDER [split=paragraph] [source_language=en]
scaleformer translate checkpoint=RUN input=FOLDER output=FOLDER update=true    (the source was edited)

Finished documents are kept in OUTPUT.part until all are done: the same call continues after an interruption. Documents
finished after an unfinished one, or within the current batch, are translated again.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from scaleformer.checkpoints.run_config import trained_mode
from scaleformer.decoding.config import MaxTokens, Mode, choose_decoding
from scaleformer.decoding.ensemble import Average
from scaleformer.evaluation.confidence import review_page
from scaleformer.formats.lines import Input
from scaleformer.formats.recognition import by_name, recognise
from scaleformer.formats.terms import read_terms
from scaleformer.system.files import atomic_writer, check_file
from scaleformer.system.schema import Positive, Range, listed
from scaleformer.text.languages import check_code
from scaleformer.translation.confidence import Confidence
from scaleformer.translation.files.documents import Split
from scaleformer.translation.files.lines import Boundaries, LinesFormat, choose_format
from scaleformer.translation.files.paths import plan_files
from scaleformer.translation.files.setup import Setup, Unsure
from scaleformer.translation.files.shards import Shard, merge_files, merge_lines
from scaleformer.translation.files.translating import translate_files
from scaleformer.translation.files.translating_lines import LinesTask, translate_lines
from scaleformer.translation.files.updating import Edits
from scaleformer.translation.request import Request
from scaleformer.translation.translation_memory import TranslationMemory
from scaleformer.translation.translations import Translation
from scaleformer.translation.translator import Precision, Translator

log = logging.getLogger(__name__)

#: Settings that only lines of text and JSON Lines have, with their defaults.
ONLY_LINES = {
    "format": "auto", "output_format": "auto", "boundaries": "file", "ids": None, "alternatives": None, "align": None,
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/translate.yaml describes them."""

    checkpoint: str | tuple[str, ...]
    input: str | tuple[str, ...]
    output: str
    overwrite: bool
    update: bool
    edits: Edits
    format: LinesFormat
    output_format: LinesFormat
    mode: Mode | None
    tag: str | None
    max_tokens: MaxTokens | None
    boundaries: Boundaries
    ids: str | None
    split: Split
    source_language: str | None
    target_language: str | None
    translation_memory: str | None
    terms: str | None
    term_report: str | None
    align: str | None
    alternatives: Positive | None
    review: str | None
    min_confidence: Annotated[float, Range(ge=0, le=100)] | None
    unsure: Unsure
    shard: str | None
    ensemble: Average
    device: str
    precision: Precision
    threads: Positive | None
    decoding: dict[str, Any]


def main(options: Options, given: Sequence[str]) -> None:
    if options.edits != "keep" and not options.update:
        raise ValueError(f"edits={options.edits}: for update=true: set both, or overwrite=true to replace translations")
    part = None if options.shard is None else Shard.parse(options.shard)
    if part is not None and options.update:
        raise ValueError(f"shard={options.shard}: update=true verifies all files in one call: leave one of them out")
    if part is not None and (options.terms == "auto" or options.term_report is not None):
        raise ValueError(f"shard={options.shard}: terms are counted over all documents: leave one of them out")
    if part is not None and part.number == 0 and options.review is not None:
        raise ValueError(f"shard={options.shard}: translates nothing to review: give review= with each part")
    if options.unsure != "mark" and options.min_confidence is None:
        raise ValueError(f"unsure={options.unsure}: min_confidence=40 (of 100) says of which segments: set both")
    if part is not None and options.align not in (None, "true"):
        raise ValueError(f"align={options.align}: with shard=, JSON Lines hold the alignments: set align=true")
    of_lines = [name for name, usual in ONLY_LINES.items() if getattr(options, name) != usual]
    if isinstance(options.input, tuple) or _are_documents(options.input, options, bool(of_lines)):
        for name in of_lines:
            value = getattr(options, name)
            raise ValueError(f"{name}={value}: for lines of text and JSON Lines, not for files: leave it out")
        inputs = listed(options.input)
        if part is not None and not any(Path(name).is_dir() for name in inputs) and len(inputs) == 1:
            raise ValueError(f"shard={options.shard}: one file is not divided: give a folder or JSON Lines")
        if part is not None and part.number == 0:
            merge_files(inputs, options.output, part)
            return
        beside = options.review or options.term_report
        _refuse_replacing(options, *(chain(*plan_files(inputs, options.output, True).pairs) if beside else ()))
        setup = _setup(options, given)
        how = options.split, options.source_language, options.overwrite, options.update, options.edits, part
        _review(options.review, *translate_files(setup, inputs, options.output, *how))
    elif options.update:
        wanted = 'files and folders; JSON Lines take the old translation as "draft": [...] in each document'
        raise ValueError(f"update=true: input={options.input} is read as lines, wanted {wanted}")
    else:
        read = options.format, options.output_format, options.boundaries, options.ids
        more = options.align, options.alternatives, options.overwrite
        source, output = Input(options.input), options.output
        if options.split != "auto":
            raise ValueError(f"split={options.split}: input={options.input} is read as lines, wanted a .txt file")
        _refuse_replacing(options)
        if part is not None:
            if output == "-" or choose_format(options.format, source) != "jsonl":
                raise ValueError(f"shard={options.shard}: wanted JSON Lines, from a file into a file, or folders")
            if part.number == 0:
                LinesTask(source, output, *read, *more)  # raises where the output may not be written
                merge_lines(source, output, part)
                return
            output = part.place(output)
        task = LinesTask(source, output, *read, *more, part)
        _review(options.review, *translate_lines(_setup(options, given), task))


def _refuse_replacing(options: Options, *others: Path) -> None:
    """Raise ValueError if a file that is written beside the output would replace one that this call reads or writes."""
    output = options.output.rstrip(os.sep)
    read = *listed(options.input), options.terms, options.translation_memory, options.ids
    taken = {os.path.realpath(path) for path in (*read, *others, output, f"{output}.part", f"{output}.record") if path}
    for name in ("align", "term_report", "review"):
        path = getattr(options, name)
        check_file(name, path)
        if path is not None and os.path.realpath(path) in taken:
            raise ValueError(f"{name}={path}: would replace a file that is read or written: give another name")
        taken |= {os.path.realpath(path)} if path else set()


def _review(path: str | None, request: Request, translations: Sequence[Translation]) -> None:
    """Write the page of the segments to read first, if one is wanted."""
    if path is not None:
        documents = enumerate(zip(request.documents, translations, strict=True))
        with atomic_writer(path) as file:
            file.write(review_page([(request.name(n), *pair) for n, pair in documents]))
        print(f"review: written to {path}", file=sys.stderr)


def _are_documents(name: str, options: Options, of_lines: bool) -> bool:
    """Whether an input is a folder, or a file whose prose is translated. Else it is read as lines: pipes, JSON Lines,
    and text that is compressed, does not become a file of text, or has settings of lines."""
    if name == "-" or options.format != "auto":
        return False
    if Path(name).is_dir():
        return True
    if not Path(name).is_file():  # a pipe, or missing
        return False
    source = Input(name)
    found = recognise(source.begin, name)
    if found.name == "text" and options.split == "auto":
        output = Path(options.output)
        to_pipe = options.output == "-" or (output.exists() and not output.is_file() and not output.is_dir())
        named = by_name(output.name)
        as_json = named is not None and named.name in ("jsonl", "json")
        return not (of_lines or to_pipe or as_json or source.packed or options.decoding.get("match_segments") is False)
    return found.name != "jsonl" and (bool(found.prose) or not of_lines)


def _setup(options: Options, given: Sequence[str]) -> Setup:
    """Read all that the translation needs beside its input; the mode is the model's own if not given."""
    how = options.device, options.tag, options.ensemble, options.precision
    translator = Translator.load(options.checkpoint, *how)
    translator.tag_tokens()  # raises if a tag is missing
    decoding = choose_decoding(translator.decoding, options.decoding, given)
    own: Mode = "document" if options.max_tokens is not None else trained_mode(translator.config)
    languages = options.source_language, options.target_language
    for name, code in zip(("source_language", "target_language"), languages, strict=True):
        if code is not None:
            check_code(name, code)
    source, target = (given or own for given, own in zip(languages, translator.languages(), strict=True))
    known = options.translation_memory
    memory = None if known is None else TranslationMemory.read(known, (source or None, target or None))
    auto, table = options.terms == "auto", options.term_report
    known = None if auto else options.terms
    terms = {} if known is None else read_terms(known, (source or None, target or None))
    table = f"{options.output.rstrip(os.sep)}.terms.json" if auto and table is None else table
    asked = options.review is not None or options.min_confidence is not None
    confidence = Confidence.of(translator) if asked else None
    judging = confidence, options.min_confidence, options.unsure
    return Setup(
        translator, decoding, options.mode or own, options.max_tokens, memory, terms, *judging, (source, target),
        table, auto,
    )  # fmt: skip
