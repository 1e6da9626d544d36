"""Translate documents: JSON Lines or plain text, files or pipes.

python scripts/translate.py checkpoint=RUN input=FILE output=FILE [decoding.beam_size=5] [decoding.match_segments=true]
"""

from __future__ import annotations

import logging
import os

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from scaleformer.system.bars import translation_bar
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import GIVEN_NAME, one_line_errors, run_command
from scaleformer.system.schema import check_types
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


@hydra.main(version_base="1.3", config_path="../conf", config_name="translate")
@one_line_errors()
def main(config: DictConfig) -> None:
    set_up_cpu(config.threads)
    check_types(config, checkpoint=GIVEN_NAME, input=GIVEN_NAME, output=GIVEN_NAME, max_tokens=int | None)
    names = str(config.input), str(config.output)
    format = choose_format(config.format, *names)
    output_format = choose_output_format(config.output_format, names[1], format)
    if output_format == "text" and all(map(os.path.isfile, names)) and os.path.samefile(*names):
        raise ValueError(f"output={names[1]} is the input: its text would be lost; give another name, or JSON Lines")
    translator = Translator.load(str(config.checkpoint), config.device)
    overrides = list(HydraConfig.get().overrides.task)
    decoding = choose_decoding(translator.decoding, dict(config.decoding), overrides)
    if output_format == "text" and decoding.n_best > 1:
        raise ValueError(
            f"decoding.n_best={decoding.n_best}: text holds one translation of a document: set output_format=jsonl"
        )
    source = read_documents(names[0], format)
    with translation_writer(names[1]) as file:
        with translation_bar("translating") as progress:
            translations = translator.translate_documents(
                [document.source for document in source.documents],
                decoding,
                ids=[document.id for document in source.documents],
                max_tokens=config.max_tokens,
                mode=config.mode,
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


if __name__ == "__main__":
    run_command(main)
