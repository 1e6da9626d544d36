"""Translates files and folders: all documents together, then writes each file in its original format."""

from __future__ import annotations

import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from scaleformer.decoding.config import DecodingConfig
from scaleformer.formats.lines import Input
from scaleformer.formats.recognition import TRANSLATED, recognise
from scaleformer.system.files import replaced
from scaleformer.translation.files.documents import ProseFile, open_file
from scaleformer.translation.files.lines import LinesFile
from scaleformer.translation.files.paths import plan_files
from scaleformer.translation.files.setup import Setup
from scaleformer.translation.resumable import resumable_translations
from scaleformer.translation.terms import report_terms
from scaleformer.translation.translator import Translator

log = logging.getLogger(__name__)
Split = Literal["auto", "sentence", "paragraph"]


def are_files(name: str, format: str, split: Split) -> bool:
    """Whether an input is a folder, or a file in a format other than lines."""
    if name == "-" or format != "auto":
        return False
    if Path(name).is_dir():
        return True
    if not Path(name).is_file():  # a pipe, or missing
        return False
    found = recognise(Input(name).begin, name).name
    return found in TRANSLATED and (found not in ("text", "jsonl") or (found == "text" and split != "auto"))


def translate_files(
    setup: Setup, inputs: Sequence[str], output: str, split: Split = "auto", source_language: str | None = None
) -> None:
    """Translate files or folders, and write each translation whole or not at all; report what was left out or
    misplaced.

    split, source_language  how prose is split into segments (`choose_splitting`)
    Raises ValueError (DataError for a file) in one line before writing anything, OSError.
    """
    plan, translator = plan_files(inputs, output), setup.translator
    grain, language = choose_splitting(translator, split, source_language)
    files = [open_file(source, language, grain, split != "auto") for source, _ in plan.pairs]
    setup = replace(setup, decoding=choose_file_decoding(translator, setup.decoding, files))
    documents = [document for file in files for document in file.documents]
    segments = sum(len(document.source) for document in documents)
    print(f"{', '.join(inputs)}: {len(files):,} file{'s' * (len(files) != 1)}, {segments:,} segments", file=sys.stderr)
    if plan.left:
        kinds = ", ".join(f"{count} {ending}" for ending, count in plan.left.most_common())
        log.warning("%d of other formats skipped: %s", plan.left.total(), kinds)
    request = setup.request(documents)
    notes: dict[str, Counter[Path]] = defaultdict(Counter)
    with resumable_translations(translator, request, f"{output.rstrip('/')}.part") as translations:
        report_terms(request, translations, translator.source_tokenizer.has_terms)
        rest = iter(translations)
        for file, (source, target) in zip(files, plan.pairs, strict=True):
            counts: Counter[str] = Counter()
            content = file.write([next(rest) for _ in file.documents], counts)
            with replaced(target) as temporary:
                temporary.write_bytes(content)
            for reason, count in counts.items():
                notes[reason][source] += count
    for reason, where in notes.items():
        names = ", ".join(f"{path} ({count})" for path, count in where.most_common(5))
        log.warning("%d %s: %s%s", where.total(), reason, names, " ..." if len(where) > 5 else "")


def choose_splitting(translator: Translator, split: Split, source_language: str | None) -> tuple[str, str]:
    """The grain and the language of the segments: as given, or as in training. Raises ValueError."""
    known = translator.segmentation
    grain = known.get("grain") or "sentence" if split == "auto" else split
    language = source_language or known.get("source_language")
    if language is None and grain == "sentence":
        raise ValueError("the model does not say which language it reads: set source_language=en, or split=paragraph")
    return ("paragraph" if grain == "none" else grain), language or ""


def choose_file_decoding(
    translator: Translator, config: DecodingConfig, files: Sequence[LinesFile | ProseFile]
) -> DecodingConfig:
    """Settings that give every segment its own translation, with its spans. Raises ValueError."""
    if config.n_best > 1:
        raise ValueError(f"decoding.n_best={config.n_best}: a file holds one translation: leave it out")
    spans = sum(file.spans for file in files if isinstance(file, ProseFile))
    if spans and not (translator.config.get("data") or {}).get("mask_spans"):
        log.warning(
            "the model was trained without data.mask_spans: it may misplace the %d spans of code, links and marks",
            spans,
        )
    return replace(config, match_segments=True, merge_segments=False)
