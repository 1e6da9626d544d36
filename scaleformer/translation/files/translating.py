"""Translates files and folders: all documents together, then writes each file in its original format."""

from __future__ import annotations

import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copy2

from scaleformer.formats.folders import report_others
from scaleformer.system.display import counted_as
from scaleformer.system.errors import DataError
from scaleformer.system.files import replaced
from scaleformer.translation.files.documents import Split, choose_file_decoding, choose_splitting, open_file
from scaleformer.translation.files.paths import FilePlan, free_name, plan_files
from scaleformer.translation.files.record import FileRecord, Record, hash_of_bytes, read_bytes
from scaleformer.translation.files.setup import Setup
from scaleformer.translation.files.tasks import FileTask, file_hashes, in_order, report_update
from scaleformer.translation.files.updating import Edits, Untold, describe, find_earlier
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
    update: bool = False,
    edits: Edits = "keep",
) -> None:
    """Translate files or folders, and write each translation whole or not at all; report what was left out or
    misplaced.

    split, source_language  how prose is split into segments (`choose_splitting`)
    overwrite               whether translations that exist are replaced; else they are kept and counted
    update                  whether those are replaced of which the record tells what a person corrected since
    edits                   whether an update keeps these corrections
    Raises ValueError (DataError for a file) in one line before writing anything; DataError after writing the others if
    some of several files cannot be read; OSError.
    """
    record = Record.read(output)
    plan = plan_files(inputs, output, overwrite, record.of if update else None)
    report_others(plan.left)
    if plan.kept:
        told = ", and no record tells what was corrected there" * update
        log.warning("%d translations exist and are kept%s: overwrite=true replaces them", len(plan.kept), told)
    grain, language = choose_splitting(setup.translator, split, source_language)
    other = setup.translator.target_language()
    tasks: list[FileTask] = []
    bad: list[str] = []
    for source, target in plan.to_read():
        try:
            task = FileTask(open_file(source, language, grain, split != "auto", other), source, target)
            known = record.of(target) if update else None
            if known is not None:
                task.earlier = find_earlier(task.file, known, read_bytes(target), edits)
            tasks.append(task)
        except Untold:
            log.warning("%s: edited, and what was corrected cannot be told: kept; edits=discard replaces it", target)
            plan.kept.add(target)
        except DataError as error:
            if len(plan.pairs) == 1:
                raise
            log.warning("%s", error)
            bad.append(str(source))
    spans = sum(task.file.spans for task in tasks)
    setup = replace(setup, decoding=choose_file_decoding(setup.translator, setup.decoding, spans))
    segments = sum(len(document.source) for task in tasks for document in task.file.documents)
    print(f"{', '.join(inputs)}: {len(tasks):,} file{'s' * (len(tasks) != 1)}, {segments:,} segments", file=sys.stderr)
    if tasks:
        _translate(plan, setup, tasks, record)
    if bad:
        names = ", ".join(bad[:5]) + ", ..." * (len(bad) > 5)
        raise DataError(f"{len(bad)} of {len(plan.pairs)} files were not translated, for the reasons above: {names}")


def _translate(plan: FilePlan, setup: Setup, tasks: Sequence[FileTask], record: Record) -> None:
    """Translate the documents of the files, keep the record, and write those whose translation does not exist."""
    request = setup.request([document for task in tasks for document in task.documents()])
    hashes = file_hashes(setup.translator, request, tasks)
    tasks, request, known = in_order(tasks, request, hashes)
    if len(known) == len(request.documents):  # nothing to resume: an earlier call was broken off as it wrote
        plan.part.unlink(missing_ok=True)
    notes: dict[str, Counter[Path]] = defaultdict(Counter)
    with resumable_translations(setup.translator, request, plan.part, known=known) as translations:
        report_terms(request, translations, setup.translator.source_tokenizer.has_terms)
        rest = iter(translations)
        contents = []
        for task in tasks:
            counts: Counter[str] = Counter()
            task.found = [next(rest) for _ in task.file.documents]
            content, now = task.file.write(task.found, counts), read_bytes(task.target)
            if task.target in plan.kept and now != content:
                continue
            for reason, count in counts.items():
                notes[reason][task.source] += count
            if now != content:
                contents.append((task.target, content))
                if now is not None and task.is_lost:
                    task.copy = free_name(task.target)
                    copy2(task.target, task.copy)
            record.files[record.name(task.target)] = _record(task, hashes[id(task)], content, now)
        record.write()
        for target, content in contents:
            with replaced(target) as temporary:
                temporary.write_bytes(content)
    report_update(setup, request, tasks, hashes)
    for reason, where in notes.items():
        names = ", ".join(f"{path} ({count})" for path, count in where.most_common(5))
        log.warning("%s: %s%s", counted_as(where.total(), reason), names, " ..." if len(where) > 5 else "")


def _record(task: FileTask, hashes: tuple[str, str], content: bytes, now: bytes | None) -> FileRecord:
    """The record of a file that is about to have this content, in place of another."""
    sources = tuple(document.source for document in task.file.documents)
    found = tuple(translation.hypotheses[0] for translation in task.found)
    by_hand = tuple(sorted(task.earlier.corrected)) if task.earlier else ()
    before = hash_of_bytes(now) if now is not None else ""
    return describe(task.file, content, FileRecord(hash_of_bytes(content), before, *hashes, sources, found, by_hand))
