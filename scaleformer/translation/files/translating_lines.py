"""Translates text and JSON Lines, from a file or pipe into a file or pipe."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from scaleformer.formats.lines import Input
from scaleformer.system.bars import translation_bar
from scaleformer.system.files import check_file
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
from scaleformer.translation.files.setup import Setup
from scaleformer.translation.files.shards import Shard
from scaleformer.translation.notices import warn_of_unsure
from scaleformer.translation.pieces import PieceTranslator
from scaleformer.translation.request import Listener, Request
from scaleformer.translation.resumable import resumable_translations
from scaleformer.translation.terms import report_terms
from scaleformer.translation.translations import Translation
from scaleformer.translation.word_alignments import Links, align_words, alignments_path, write_alignments

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LinesTask:
    """What to read and to write.

    format           of the input; output_format: of the output; "auto" as in `choose_format`, `choose_output_format`
    boundaries, ids  as in `read_documents`
    align            "true", or a file for the alignments of words (`alignments_path`)
    alternatives     so many translations of each segment, in JSON Lines
    overwrite        whether files that exist are replaced
    part             which of the documents to translate, of several
    Raises ValueError for formats that do not fit, and where the output would replace the input or what it may not.
    """

    source: Input
    output: str
    format: LinesFormat = "auto"
    output_format: LinesFormat = "auto"
    boundaries: Boundaries = "file"
    ids: str | None = None
    align: str | None = None
    alternatives: int | None = None
    overwrite: bool = False
    part: Shard | None = None

    def __post_init__(self) -> None:
        format = choose_format(self.format, self.source)
        output_format = choose_output_format(self.output_format, self.output, format)
        files = self.source.name, self.output
        if output_format == "text" and all(map(os.path.isfile, files)) and os.path.samefile(*files):
            raise ValueError(f"output={files[1]} is the input: its text would be lost: give another name or JSON Lines")
        check_file("output", self.output)
        self.check_new(self.output)
        object.__setattr__(self, "format", format)
        object.__setattr__(self, "output_format", output_format)

    def check_new(self, name: str | None) -> None:
        """Raise ValueError if an output is a file that may not be replaced."""
        if not self.overwrite and name not in (None, "-") and os.path.isfile(str(name)):
            raise ValueError(f"{name}: exists and may have been corrected: overwrite=true replaces it")

    @property
    def to_file(self) -> bool:
        """Whether the output is a file, which is replaced when all is done, or else a pipe."""
        path = Path(self.output)
        return self.output != "-" and (path.is_file() or not path.exists())


def translate_lines(setup: Setup, task: LinesTask) -> tuple[Request, list[Translation]]:
    """Translate the documents, and write them: to a file together, to a pipe one by one. Reports on stderr. Returns
    them as they were asked for, and their judged translations. Raises ValueError (DataError for the input) in one line
    before translating anything, OSError."""
    translator, n_best = setup.translator, setup.decoding.n_best
    if task.output_format == "text" and n_best > 1:
        raise ValueError(f"decoding.n_best={n_best}: text can hold only one translation: set output_format=jsonl")
    if task.alternatives is not None:
        if task.output_format == "text" or setup.mode != "document" or setup.max_tokens is not None:
            wanted = "output_format=jsonl, with mode=document, without max_tokens"
            raise ValueError(f"alternatives={task.alternatives}: need whole documents in JSON Lines: set {wanted}")
        if not setup.decoding.match_segments:
            raise ValueError(f"alternatives={task.alternatives}: of source segments: set decoding.match_segments=true")
        setup = replace(setup, decoding=alternatives_config(setup.decoding))
    if setup.term_report is not None and not task.to_file:
        why = "terms=auto and term_report need all translations before the first is written: name a file"
        raise ValueError(f"output={task.output}: {why}")
    aligned = alignments_path(task.align, task.output, task.output_format, setup.decoding.match_segments)
    task.check_new(aligned)
    source = read_documents(task.source, task.format, task.boundaries, task.ids)
    if task.part is not None:
        source = replace(source, documents=list(task.part.take(source.documents)))
    print(f"{task.source.name}: {source.counts()}", file=sys.stderr)
    request = setup.request(source.documents)
    pieces = PieceTranslator(translator, request.decoding, translator.tag_tokens())

    def align(part: slice, translations: Sequence[Translation]) -> list[list[Links]]:
        return align_words(translator, request.documents[part], translations, pieces.tag)

    judged: list[Translation] = []

    def additions(translations: Sequence[Translation], first: int = 0) -> dict[str, Any]:
        """These translations as they are written, and the alternatives and alignments beside them in JSON Lines."""
        judged.extend(setup.judged(request, translations, first))
        part = slice(first, first + len(translations))
        found: dict[str, Any] = {"translations": setup.written(request, judged[part], first), "first": first}
        if task.alternatives is not None:
            with translation_bar("alternatives") if task.to_file else nullcontext() as progress:
                found["alternatives"] = find_alternatives(
                    pieces, request.documents[part], translations, request.forced[part], task.alternatives, progress
                )
        if task.align is not None and aligned is None:
            found["alignments"] = align(part, found["translations"])
        return found

    write = partial(write_translations, source=source, format=task.output_format, lists=n_best > 1)
    if task.to_file:
        with resumable_translations(translator, request, f"{task.output}.part") as translations:
            request, translations = setup.counted(request, translations)
            found = additions(translations)
            with translation_writer(task.output) as file:
                write(file, **found)
    else:
        with translation_writer(task.output) as file:
            numbers = count()

            def show(translation: Translation) -> None:
                first = next(numbers)
                write(file, **additions([translation], first))
                file.flush()

            with translation_bar("translating") as progress:
                translations = translator.translate_documents(request, Listener(progress, show))
            if not translations:
                write(file, translations=[])
    if aligned is not None:
        write_alignments(aligned, align(slice(None), setup.written(request, judged)))
    report_terms(request, translations)
    differ = sum(len(t.segments) != t.source_segments for t in translations)
    if differ:
        log.warning(
            "the segment count of %d of %d documents differs from their source; set decoding.match_segments=true",
            differ,
            len(translations),
        )
    if setup.confidence is not None:
        warn_of_unsure(request, judged, setup.min_confidence or 0.0, setup.unsure == "leave")
    return request, judged
