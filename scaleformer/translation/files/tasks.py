"""Files in the work of one call, what is known of their translations beforehand, and what an update made of them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from scaleformer import __version__
from scaleformer.system.display import counted
from scaleformer.translation.files.documents import Opened, ProseFile
from scaleformer.translation.files.setup import FileDocument, Setup
from scaleformer.translation.files.updating import Earlier
from scaleformer.translation.notices import some_of
from scaleformer.translation.pieces import PieceTranslator
from scaleformer.translation.request import Request
from scaleformer.translation.resumable import hash_of, settings_of
from scaleformer.translation.translations import Translation
from scaleformer.translation.translator import Translator

log = logging.getLogger(__name__)
Hashes = Mapping[int, tuple[str, str]]


@dataclass(eq=False)
class FileTask:
    """A file to translate.

    earlier  what is known of it from an earlier call
    found    its translations; copy: where the edited file went that they replace
    """

    file: Opened
    source: Path
    target: Path
    earlier: Earlier | None = None
    found: Sequence[Translation] = field(default_factory=list)
    copy: Path | None = None

    def documents(self) -> Iterable[FileDocument]:
        """Its documents, with what the earlier call makes of them."""
        if self.earlier is None:
            return self.file.documents
        if isinstance(self.file, ProseFile):
            self.file.given = self.earlier.parts
        return self.earlier.documents(self.file.documents)

    @property
    def is_lost(self) -> bool:
        """Whether the present file has anything by hand that its new translation has not."""
        return self.earlier is not None and not self.earlier.whole

    @property
    def texts(self) -> list[str]:
        """The segments of its translations."""
        return [text for translation in self.found for text in translation.segments]


def file_hashes(translator: Translator, request: Request, tasks: Sequence[FileTask]) -> Hashes:
    """For each file, by its id: the hash of the model and all settings, and that of its forced texts."""
    alike = [__version__, translator.precision, settings_of(translator, request)]
    seeded = request.decoding.strategy == "sample"  # by the names of documents
    found = {}
    for task, (first, stop) in zip(tasks, pairwise(_ends(tasks)), strict=True):
        terms = [[(term.source, term.target) for term in some] for some in request.required[first:stop]]
        forced = [[sorted(one.fixed.items()), sorted(one.begin.items())] for one in request.forced[first:stop]]
        names = [request.name(n) for n in range(first, stop)] if seeded else []
        found[id(task)] = hash_of([*alike, terms]), hash_of([forced, names])
    return found


def in_order(
    tasks: Sequence[FileTask], request: Request, hashes: Hashes
) -> tuple[list[FileTask], Request, list[Translation]]:
    """The files and the request with those first whose translations are known, for all that they follow from is as in
    the earlier call; and these translations."""
    known = {id(task) for task in tasks if _is_known(task, hashes[id(task)])}
    places = dict(zip(map(id, tasks), pairwise(_ends(tasks)), strict=True))
    ordered = sorted(tasks, key=lambda task: id(task) not in known)
    numbers = [n for task in ordered for n in range(*places[id(task)])]
    names = ("documents", "names", "forced", "terms", "drafts", "where")
    fields: dict[str, Any] = {name: [getattr(request, name)[n] for n in numbers] for name in names}
    request = replace(request, **fields)
    found = [
        Translation((one,), len(one.segments), 0)
        for task in ordered
        if id(task) in known and task.earlier
        for one in task.earlier.record.found
    ]
    return ordered, request, found


def _is_known(task: FileTask, hashes: tuple[str, str]) -> bool:
    if task.earlier is None:
        return False
    record = task.earlier.record
    sources = tuple(document.source for document in task.file.documents)
    return (record.settings, record.forced) == hashes and record.sources == sources


def _ends(tasks: Sequence[FileTask]) -> list[int]:
    """Where the documents of files begin among all, and the end."""
    return [0, *accumulate(len(task.file.documents) for task in tasks)]


def report_update(setup: Setup, request: Request, tasks: Sequence[FileTask], hashes: Hashes) -> None:
    """Print what an update changed: of the files that an earlier call translated."""
    edited = changed = total = 0
    kept: list[str] = []
    discarded: list[str] = []
    lost: list[str] = []
    updated = [task for task in tasks if task.earlier is not None]
    for task, first in zip(tasks, _ends(tasks), strict=False):
        if (known := task.earlier) is None:
            continue
        places = [
            request.place(n, i) for n, one in enumerate(task.found, first) for i in range(len(request.documents[n]))
        ]
        target = known.record.target
        before = {n: known.corrected.get(n, target[old]) for n, old in known.same.items()}
        total += len(places)
        edited += len(places) - len(before)
        changed += sum(task.texts[n] != text for n, text in before.items())
        kept += [places[n] for n in sorted(known.corrected)]
        discarded += [places[n] if n >= 0 else str(task.target) for n in known.discarded]
        lost += [str(task.copy)] if task.copy else []
    if not updated:
        return
    stay = total - edited - changed
    print(f"update: of {counted(total, 'segment')} {edited} edited, {changed} changed, {stay} stay", file=sys.stderr)
    if any(task.earlier and task.earlier.record.settings != hashes[id(task)][0] for task in updated):
        print("update: another model or other settings than before: all was verified anew", file=sys.stderr)
    if not PieceTranslator(setup.translator, request.decoding).drafted:
        how = f"decoding.strategy={request.decoding.strategy}"
        print(f"update: {how}: cannot use drafts: what was not known is translated from nothing", file=sys.stderr)
    if kept:
        print(f"update: {counted(len(kept), 'correction')} by hand kept: {some_of(kept)}", file=sys.stderr)
    if discarded:
        log.warning("%d corrections by hand are discarded: %s", len(discarded), some_of(discarded))
    if lost:
        log.warning(
            "what was edited in %d files has no place in them any more; they are kept as %s", len(lost), some_of(lost)
        )
