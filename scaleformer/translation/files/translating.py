"""Translates files and folders: all documents together, then writes each file in its original format."""

from __future__ import annotations

import logging
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from shutil import copy2

from scaleformer import __version__
from scaleformer.formats.folders import report_others
from scaleformer.system.display import counted, counted_as
from scaleformer.system.errors import DataError
from scaleformer.system.files import replaced
from scaleformer.translation.files.documents import Split, choose_file_decoding, choose_splitting, open_file
from scaleformer.translation.files.paths import FilePlan, free_name, plan_files
from scaleformer.translation.files.record import FileRecord, Record, hash_of_bytes, read_bytes
from scaleformer.translation.files.setup import Setup
from scaleformer.translation.files.shards import Shard
from scaleformer.translation.files.tasks import FileTask, report_update
from scaleformer.translation.files.updating import Edits, compare, describe
from scaleformer.translation.notices import warn_of_unsure
from scaleformer.translation.pieces import PieceTranslator
from scaleformer.translation.request import Request
from scaleformer.translation.resumable import hash_of, resumable_translations
from scaleformer.translation.terms import report_terms
from scaleformer.translation.translations import Translation

log = logging.getLogger(__name__)


def translate_files(
    setup: Setup, inputs: Sequence[str], output: str, split: Split = "auto", source_language: str | None = None,
    overwrite: bool = False, update: bool = False, edits: Edits = "keep", part: Shard | None = None,
) -> tuple[Request, list[Translation]]:  # fmt: skip
    """Translate files or folders, and write each translation whole or not at all; report what was left out or
    misplaced. Returns the documents as they were asked for, and their judged translations.

    split, source_language  how prose is split into segments (`choose_splitting`)
    overwrite               whether translations that exist are replaced; else they are kept and counted
    update                  whether those are replaced of which the record tells what a person corrected since
    edits                   whether an update keeps these corrections
    part                    which of the files to translate, of several
    Raises ValueError (DataError for a file) in one line before writing anything; DataError after writing the others if
    some of several files cannot be read; OSError.
    """
    record = Record.read(output if part is None else part.place(output))
    plan = plan_files(inputs, output, overwrite, record.of if update else None)
    if part is not None:
        plan.pairs, plan.part = list(part.take(plan.pairs)), Path(f"{part.place(output)}.part")
        plan.kept &= {target for _, target in plan.pairs}
    report_others(plan.left)
    if plan.kept:
        told = ", and no record tells what was corrected there" * update
        log.warning("%d translations exist and are kept%s: overwrite=true replaces them", len(plan.kept), told)
    grain, language = choose_splitting(setup.translator, split, source_language)
    choose_file_decoding(setup.translator, setup.decoding, 0)  # raises before anything is read
    how = language, grain, split != "auto", setup.languages[1] or setup.translator.target_language()
    settings = _settings(setup, *how)
    tasks: list[FileTask] = []
    unchanged: list[FileRecord] = []
    bad: list[str] = []
    for source, target in plan.to_read():
        try:
            seed = str(source) * (setup.decoding.strategy == "sample")
            call = hash_of([settings, seed, hash_of_bytes(read_bytes(source) or b"")])
            known, now = (record.of(target), read_bytes(target)) if update else (None, None)
            same = known is not None and now is not None and (known.call, known.written) == (call, hash_of_bytes(now))
            if known is not None and same and not (known.by_hand and edits == "discard"):
                unchanged.append(known)
                continue
            task = FileTask(open_file(source, *how), source, target, call)
            if known is not None:
                compare(task, known, now, edits)
            tasks.append(task)
        except DataError as error:
            if len(plan.pairs) == 1:
                raise
            log.warning("%s", error)
            bad.append(str(source))
    spans = sum(task.file.spans for task in tasks)
    setup = replace(setup, decoding=choose_file_decoding(setup.translator, setup.decoding, spans))
    segments = sum(len(task.segments) for task in tasks)
    print(f"{', '.join(inputs)}: {counted(len(tasks), 'file')}, {counted(segments, 'segment')}", file=sys.stderr)
    notes: dict[str, Counter[Path]] = defaultdict(Counter)
    found: tuple[Request, list[Translation]] = Request([], setup.decoding), []
    if tasks:
        found = _translate(plan, setup, tasks, record, settings, notes, bad)
    elif unchanged and not bad:  # an earlier call was broken off after it had written all
        plan.part.unlink(missing_ok=True)
    if update and (tasks or unchanged):
        report_update(unchanged, tasks, settings, PieceTranslator(setup.translator, setup.decoding).drafted)
    for reason, where in notes.items():
        names = ", ".join(f"{path} ({count})" for path, count in where.most_common(5))
        log.warning("%s: %s%s", counted_as(where.total(), reason), names, " ..." if len(where) > 5 else "")
    if bad:
        names = ", ".join(bad[:5]) + ", ..." * (len(bad) > 5)
        raise DataError(f"{len(bad)} of {len(plan.pairs)} files were not translated, for the reasons above: {names}")
    return found


def _settings(setup: Setup, *how: object) -> str:
    """The hash of all that translations follow from, but for their sources."""
    translator, memory = setup.translator, setup.translation_memory
    model = __version__, translator.sha256, translator.precision, translator.tag
    own = (
        asdict(setup.decoding), setup.mode, setup.max_tokens, setup.one_form or dict(setup.terms),
        memory and memory.entries,
    )  # fmt: skip
    confidence = setup.confidence and setup.min_confidence is not None and asdict(setup.confidence)
    return hash_of([model, own, how, *((confidence, setup.min_confidence, setup.unsure) if confidence else ())])


def _translate(
    plan: FilePlan,
    setup: Setup,
    tasks: Sequence[FileTask],
    record: Record,
    settings: str,
    notes: dict[str, Counter[Path]],
    bad: list[str],
) -> tuple[Request, list[Translation]]:
    """Translate the documents of the files, keep the record, and write those whose translation does not exist; return
    the request and the judged translations. notes: counts what was left out or misplaced, by reason and file; bad: gets
    the names of files that cannot be written."""
    request = setup.request([document for task in tasks for document in task.documents()])
    with resumable_translations(setup.translator, request, plan.part) as translations:
        request, translations = setup.counted(request, translations)
        report_terms(request, translations)
        judged = setup.judged(request, translations)
        rest = iter(setup.written(request, judged))
        contents = []
        for task in tasks:
            counts: Counter[str] = Counter()
            task.found = [next(rest) for _ in task.file.documents]
            try:
                content, now = task.file.write(task.found, counts), read_bytes(task.target)
            except DataError as error:
                if len(plan.pairs) == 1:
                    raise
                log.warning("%s", error)
                bad.append(str(task.source))
                continue
            if task.target in plan.kept and now != content:
                continue
            for reason, count in counts.items():
                notes[reason][task.source] += count
            if now != content:
                contents.append((task.target, content))
                if now is not None and task.lost:
                    task.copy = free_name(task.target)
                    copy2(task.target, task.copy)
            record.files[record.name(task.target)] = describe(task, content, now, settings)
        record.write()
        for target, content in contents:
            with replaced(target) as temporary:
                temporary.write_bytes(content)
    if setup.confidence is not None:
        warn_of_unsure(request, judged, setup.min_confidence or 0.0, setup.unsure == "leave")
    return request, judged
