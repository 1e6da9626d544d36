"""Translates files and folders: all documents together, then writes each file in its original format."""

from __future__ import annotations

import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scaleformer.system.files import replaced
from scaleformer.translation.files.documents import Split, choose_file_decoding, choose_splitting, open_file
from scaleformer.translation.files.paths import plan_files
from scaleformer.translation.files.setup import Setup
from scaleformer.translation.resumable import resumable_translations
from scaleformer.translation.terms import report_terms

log = logging.getLogger(__name__)


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
    other = translator.target_language()
    files = [open_file(source, language, grain, split != "auto", other) for source, _ in plan.pairs]
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
