"""Files as documents for a translator, and their translations as files of the same format."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.decoding.config import DecodingConfig
from scaleformer.formats.blocks import MARK, Span
from scaleformer.formats.files import BlockFile, known_pairs, prose_changes, read_prose
from scaleformer.formats.lines import Input, read_content
from scaleformer.formats.recognition import FORMATS, TRANSLATED, recognise, refusal
from scaleformer.formats.restoring import Change
from scaleformer.formats.text import TextFile
from scaleformer.system.errors import DataError
from scaleformer.text.languages import check_code
from scaleformer.translation.files.lines import LinesFile, read_documents
from scaleformer.translation.files.setup import FileDocument
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.translation_memory import Masked
from scaleformer.translation.translations import Translation

log = logging.getLogger(__name__)
Split = Literal["auto", "sentence", "paragraph"]


class ProseFile:
    """A file whose prose is one document: its segments by block, and the file with their translations. Raises DataError
    if it cannot be read, ValueError if its sentences are of an unknown language.

    given  what `write` writes for segments, by number, whatever their translations
    """

    def __init__(self, content: bytes, name: str, format: str, language: str, grain: str, target: str = "") -> None:
        check_language(format, language, grain)
        self._name, self._format, self._grain, self._target = name, format, grain, target
        self.given: Mapping[int, tuple[str | Span, ...]] = {}
        self._changes: list[list[Change]] = []
        self._file, self.segments = read_prose(content, name, format, language, grain, target)
        flat = [segment for segments in self.segments for segment in segments]
        masked = tuple(Masked(segment.text, segment.kept) for segment in flat)
        numbered = zip(self._file.lines, self.segments, strict=True) if isinstance(self._file, TextFile) else ()
        where = tuple(f"{name}:{line}" for line, segments in numbered for _ in segments)
        forced, texts = ForcedTexts(known=known_pairs(self._file, name)), tuple(segment.text for segment in flat)
        self.documents = [FileDocument(name, texts, forced=forced, where=where, masked=masked)]
        self.spans = sum(len(segment.groups) for segments in self.segments for segment in segments)

    def write(self, translations: Sequence[Translation], counts: Counter[str]) -> bytes:
        """The content of the translated file; counts what could not be translated or placed, by reason."""
        [translation] = translations
        told = {n: (one.expected, n in translation.unsure) for n, one in enumerate(translation.judged) if one}
        self._changes = prose_changes(self.segments, translation.segments, counts, self.given, told)
        content = self._file.write(self._changes)
        counts.update(self._file.left)
        return content

    def expected(self, texts: Sequence[str]) -> tuple[list[str], list[list[int]]]:
        """The texts of the blocks that `write` wrote last, and for each segment the number of its block, and where it
        begins and ends there."""
        found, places = [], []
        for number, (block, segments) in enumerate(zip(self._file.blocks, self.segments, strict=True)):
            changes = {change.start: change for change in self._changes[number] if not change.refused}
            text, place = "", 0
            for segment in segments:
                text += block.text[place : segment.start]
                start, place = len(text), segment.stop
                change = changes.get(segment.start)
                parts = (block.text[segment.start : segment.stop],) if change is None else change.parts
                text += "".join(MARK if isinstance(part, Span) else part for part in parts)
                places.append([number, start, len(text)])
            found.append(text + block.text[place:])
        return found, places

    def read_written(self, content: bytes, name: str) -> BlockFile:
        """A translation of the file. Raises DataError."""
        grain = "none" if self._grain == "none" else ""
        return read_prose(content, name, self._format, "", grain, self._target, written=True)[0]


Opened = LinesFile | ProseFile


def open_file(path: Path, language: str, grain: str, split_text: bool, target: str = "") -> Opened:
    """Open a file to translate; the names of its documents begin with the path. grain: sentence | paragraph;
    split_text: split plain text like prose, else each line with words is a segment; target: the other language, or "".

    Raises DataError in one line if the file cannot be read or its format is not supported.
    """
    source = Input(str(path))
    format = check_format(source)
    if format == "jsonl":
        return read_lines_file(source, format)
    by_line = format == "text" and not split_text
    return ProseFile(read_content(path), str(path), format, language, "none" if by_line else grain, target)


def check_format(source: Input) -> str:
    """The name of a file's format. Raises DataError if it cannot be translated."""
    format = recognise(source.begin, source.name)
    if format.name not in TRANSLATED:
        raise DataError(f"{source.name}: {refusal(format, 'translated')}")
    return format.name


def read_lines_file(source: Input, format: str) -> LinesFile:
    """The documents of JSON Lines; their names begin with that of the file."""
    file = read_documents(source, format)
    return replace(file, documents=[replace(one, name=f"{source.name}: {one.id}") for one in file.documents])


def check_language(format: str, language: str, grain: str) -> None:
    """Raise ValueError if a file is to be split into sentences of an unknown language."""
    if grain == "sentence" and not language and not FORMATS[format].whole:
        wanted = "set source_language=en, or split=paragraph"
        raise ValueError(f"the model does not say which language it reads: {wanted}")


def choose_splitting(loaded: LoadedModel, split: Split, source_language: str | None) -> tuple[str, str]:
    """The grain and the language of the segments: as given, or as in training; "" if unknown."""
    known = loaded.segmentation
    grain = known.get("grain") or "sentence" if split == "auto" else split
    if source_language:
        check_code("source_language", source_language)
    language = source_language or known.get("source_language")
    return ("paragraph" if grain == "none" else grain), language or ""


def choose_file_decoding(loaded: LoadedModel, config: DecodingConfig, spans: int) -> DecodingConfig:
    """Settings that give every segment its own translation, with its spans, of which there are so many. Raises
    ValueError."""
    if config.n_best > 1:
        raise ValueError(f"decoding.n_best={config.n_best}: a file holds one translation: leave it out")
    if spans and not (loaded.config.get("data") or {}).get("mask_spans"):
        log.warning(
            "the model was trained without data.mask_spans: it may misplace the %d spans of code, links and marks",
            spans,
        )
    return replace(config, match_segments=True, merge_segments=False)
