"""Translates files and folders: all documents together, then writes each file in its original format."""

from __future__ import annotations

import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from scaleformer.decoding.config import DecodingConfig, Mode
from scaleformer.formats.lines import Input
from scaleformer.formats.recognition import TRANSLATED, recognise
from scaleformer.system.bars import translation_bar
from scaleformer.system.files import replaced
from scaleformer.translation.files.documents import LinesFile, ProseFile, document_of, open_file
from scaleformer.translation.files.paths import plan_files
from scaleformer.translation.request import Request
from scaleformer.translation.resumable import resumable_translations
from scaleformer.translation.terms import Terms, merge_terms, report_terms
from scaleformer.translation.translation_memory import TranslationMemory, recall
from scaleformer.translation.translator import Translator

log = logging.getLogger(__name__)
Split = Literal["auto", "sentence", "paragraph"]


@dataclass(frozen=True)
class FileRequest:
    """The request: files or folders, the output, how prose is split; the rest as in
    `Translator.translate_documents`."""

    inputs: tuple[str, ...]
    output: str
    split: Split = "auto"
    source_language: str | None = None
    mode: Mode = "document"
    max_tokens: int | None = None
    translation_memory: TranslationMemory | None = None
    terms: Terms = field(default_factory=dict)


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


def check_options(options: Mapping[str, Any]) -> None:
    """Raises ValueError for a setting that applies only to text lines and JSON Lines."""
    for name, usual in (("format", "auto"), ("output_format", "auto"), ("boundaries", "file"), ("ids", None)):
        if options[name] != usual:
            raise ValueError(f"{name}={options[name]}: for lines of text and JSON Lines, not for files: leave it out")


def translate_files(translator: Translator, job: FileRequest, config: DecodingConfig) -> None:
    """Translate files and write each translation atomically; report what was left out or misplaced.

    Raises ValueError (DataError for a file) in one line before writing anything, OSError.
    """
    plan = plan_files(job.inputs, job.output)
    grain, language = choose_splitting(translator, job.split, job.source_language)
    files = [open_file(source, language, grain, job.split != "auto") for source, _ in plan.pairs]
    config = choose_file_decoding(translator, config, files)
    documents = [document_of(file, source) for file, (source, _) in zip(files, plan.pairs, strict=True)]
    every = [document for some in documents for document in some]
    forced = [one for file in files for one in file.forced]
    forced = recall(job.translation_memory, forced, [masked for file in files for masked in file.masked])
    sources = [document.source for document in every]
    terms = merge_terms(job.terms, [one for file in files for one in file.terms], sources)
    segments = sum(len(document.source) for document in every)
    count = f"{len(files):,} file{'s' * (len(files) != 1)}, {segments:,} segments"
    print(f"{', '.join(job.inputs)}: {count}", file=sys.stderr)
    if plan.left:
        kinds = ", ".join(f"{count} {ending}" for ending, count in plan.left.most_common())
        log.warning("%d of other formats skipped: %s", plan.left.total(), kinds)
    names = [document.id for document in every]
    request = Request(sources, config, names, job.mode, job.max_tokens, forced=forced, terms=terms)
    kept = Path(f"{job.output.rstrip('/')}.part")
    with ExitStack() as stack:
        with translation_bar("translating") as progress:
            translations = stack.enter_context(resumable_translations(translator, request, kept, progress))
        report_terms(request, translations, translator.source_tokenizer.has_terms)
        rest = iter(translations)
        notes: dict[str, Counter[Path]] = defaultdict(Counter)
        for file, some, (source, target) in zip(files, documents, plan.pairs, strict=True):
            counts: Counter[str] = Counter()
            content = file.write([next(rest) for _ in some], counts)
            with replaced(target) as temporary:
                temporary.write_bytes(content)
            for reason, number in counts.items():
                notes[reason][source] += number
    for reason, where in notes.items():
        files_of = ", ".join(f"{path} ({count})" for path, count in where.most_common(5))
        log.warning("%d %s: %s%s", where.total(), reason, files_of, " ..." if len(where) > 5 else "")


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
