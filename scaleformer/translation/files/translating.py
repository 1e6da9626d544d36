"""Translates files and folders: all documents together, then writes each file in its original format."""

from __future__ import annotations

import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scaleformer.formats.folders import report_others
from scaleformer.system.display import counted_as
from scaleformer.system.errors import DataError
from scaleformer.system.files import replaced
from scaleformer.translation.files.documents import Opened, Split, choose_file_decoding, choose_splitting, open_file
from scaleformer.translation.files.paths import FilePlan, plan_files
from scaleformer.translation.files.setup import Setup
from scaleformer.translation.resumable import resumable_translations
from scaleformer.translation.terms import report_terms

log = logging.getLogger(__name__)


def translate_files(
    setup: Setup,
    inputs: Sequence[str],
    output: str,
    split: Split = "auto",
    source_language: str | None = None,
    overwrite: bool = False,
) -> None:
    """Translate files or folders, and write each translation whole or not at all; report what was left out or
    misplaced.

    split, source_language  how prose is split into segments (`choose_splitting`)
    overwrite               whether translations that exist are replaced; else they are kept and counted
    Raises ValueError (DataError for a file) in one line before writing anything; DataError after writing the others if
    some of several files cannot be read; OSError.
    """
    plan = plan_files(inputs, output, overwrite)
    report_others(plan.left)
    if plan.kept:
        log.warning("%d translations exist and are kept: overwrite=true replaces them", len(plan.kept))
    grain, language = choose_splitting(setup.translator, split, source_language)
    other = setup.translator.target_language()
    files: list[tuple[Opened, Path, Path]] = []
    bad: list[str] = []
    for source, target in plan.to_read():
        try:
            files.append((open_file(source, language, grain, split != "auto", other), source, target))
        except DataError as error:
            if len(plan.pairs) == 1:
                raise
            log.warning("%s", error)
            bad.append(str(source))
    opened = [file for file, *_ in files]
    setup = replace(
        setup, decoding=choose_file_decoding(setup.translator, setup.decoding, sum(file.spans for file in opened))
    )
    segments = sum(len(document.source) for file in opened for document in file.documents)
    print(f"{', '.join(inputs)}: {len(files):,} file{'s' * (len(files) != 1)}, {segments:,} segments", file=sys.stderr)
    if files:
        _translate(plan, setup, files)
    if bad:
        names = ", ".join(bad[:5]) + ", ..." * (len(bad) > 5)
        raise DataError(f"{len(bad)} of {len(plan.pairs)} files were not translated, for the reasons above: {names}")


def _translate(plan: FilePlan, setup: Setup, files: Sequence[tuple[Opened, Path, Path]]) -> None:
    """Translate the documents of the files, and write those whose translation does not exist."""
    request = setup.request([document for file, *_ in files for document in file.documents])
    notes: dict[str, Counter[Path]] = defaultdict(Counter)
    with resumable_translations(setup.translator, request, plan.part) as translations:
        report_terms(request, translations, setup.translator.source_tokenizer.has_terms)
        rest = iter(translations)
        for file, source, target in files:
            counts: Counter[str] = Counter()
            content = file.write([next(rest) for _ in file.documents], counts)
            if target in plan.kept:
                continue
            with replaced(target) as temporary:
                temporary.write_bytes(content)
            for reason, count in counts.items():
                notes[reason][source] += count
    for reason, where in notes.items():
        names = ", ".join(f"{path} ({count})" for path, count in where.most_common(5))
        log.warning("%s: %s%s", counted_as(where.total(), reason), names, " ..." if len(where) > 5 else "")
