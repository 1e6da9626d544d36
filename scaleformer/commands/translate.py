"""Translate documents: JSON Lines or plain text, files or pipes.

scaleformer translate checkpoint=RUN input=FILE output=FILE [decoding.beam_size=5] [decoding.match_segments=true]
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scaleformer.data.readers.lines import Input
from scaleformer.system.bars import translation_bar
from scaleformer.translation.config import choose_decoding
from scaleformer.translation.files import (
    choose_format,
    choose_output_format,
    read_documents,
    translation_writer,
    write_translations,
)
from scaleformer.translation.translator import Translator

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/translate.yaml describes them."""

    checkpoint: str
    input: str
    output: str
    format: str
    output_format: str
    mode: str
    max_tokens: int | None
    device: str
    threads: int | None
    decoding: dict[str, Any]


def main(options: Options, given: Sequence[str]) -> None:
    names = options.input, options.output
    given_input = Input(names[0])
    format = choose_format(options.format, given_input)
    output_format = choose_output_format(options.output_format, names[1], format)
    if output_format == "text" and all(map(os.path.isfile, names)) and os.path.samefile(*names):
        raise ValueError(f"output={names[1]} is the input: its text would be lost; give another name, or JSON Lines")
    translator = Translator.load(options.checkpoint, options.device)
    decoding = choose_decoding(translator.decoding, options.decoding, given)
    if output_format == "text" and decoding.n_best > 1:
        raise ValueError(
            f"decoding.n_best={decoding.n_best}: text holds one translation of a document: set output_format=jsonl"
        )
    source = read_documents(given_input, format)
    with translation_writer(names[1]) as file:
        with translation_bar("translating") as progress:
            translations = translator.translate_documents(
                [document.source for document in source.documents],
                decoding,
                ids=[document.id for document in source.documents],
                max_tokens=options.max_tokens,
                mode=options.mode,
                progress=progress,
            )
        write_translations(file, source, translations, output_format, lists=decoding.n_best > 1)
    empty = sum(not segment.strip() for t in translations for segment in t.segments)
    if empty and output_format == "text":
        log.warning(
            "%d segments are empty: blank lines, which look like the end of a document; output_format=jsonl has none",
            empty,
        )
    differ = sum(len(t.segments) != t.source_segments for t in translations)
    if differ:
        log.warning(
            "%d of %d documents do not have as many segments as their source; decoding.match_segments=true gives them",
            differ,
            len(translations),
        )
