"""Files in the work of one call, what is known of their translations beforehand, and what an update made of them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from scaleformer.formats.blocks import Span
from scaleformer.system.display import counted
from scaleformer.translation.files.documents import Opened, ProseFile
from scaleformer.translation.files.record import FileRecord
from scaleformer.translation.files.setup import FileDocument
from scaleformer.translation.notices import some_of
from scaleformer.translation.translations import Translation

log = logging.getLogger(__name__)


@dataclass(eq=False)
class FileTask:
    """A file to translate; numbers of segments are over all its documents.

    call       hash of the model, the settings and the source
    record     of an earlier translation
    same       the numbers there of segments that are the same; draft: the translations that segments probably have
    corrected  the texts of segments that a person corrected; parts: how they are written
    discarded  numbers of corrected segments whose corrections are not wanted; None: the segment is gone, too
    lost       whether the present file has more of a person's work than `corrected`
    found      its translations; copy: where the edited file went that they replace
    """

    file: Opened
    source: Path
    target: Path
    call: str
    record: FileRecord | None = None
    same: dict[int, int] = field(default_factory=dict)
    draft: list[str] = field(default_factory=list)
    corrected: dict[int, str] = field(default_factory=dict)
    parts: dict[int, tuple[str | Span, ...]] = field(default_factory=dict)
    discarded: list[int | None] = field(default_factory=list)
    lost: bool = False
    found: Sequence[Translation] = field(default_factory=list)
    copy: Path | None = None

    def documents(self) -> Iterable[FileDocument]:
        """Its documents with their drafts, and with the corrections as fixed texts."""
        if isinstance(self.file, ProseFile):
            self.file.given = self.parts
        first = 0
        for document in self.file.documents:
            stop, own = first + len(document.source), document.forced
            fixed = {n - first: text for n, text in self.corrected.items() if first <= n < stop}
            fixed = {n: text for n, text in fixed.items() if n not in own.begin} | dict(own.fixed)
            draft = document.draft or tuple(self.draft[first:stop])
            yield replace(document, forced=replace(own, fixed=fixed), draft=draft)
            first = stop

    @property
    def segments(self) -> list[str]:
        """The segments of its documents."""
        return [segment for document in self.file.documents for segment in document.source]

    @property
    def texts(self) -> list[str]:
        """The segments of its translations."""
        return [text for translation in self.found for text in translation.segments]

    def place(self, number: int | None) -> str:
        """What to call a segment."""
        names: list[str] = []
        for one in self.file.documents:
            names += one.where or [f"{one.name or one.id}, segment {n}" for n, _ in enumerate(one.source, 1)]
        return str(self.target) if number is None else names[number]


def report_update(unchanged: Sequence[FileRecord], tasks: Sequence[FileTask], settings: str, drafted: bool) -> None:
    """Print what an update changed: of the files that an earlier call translated. settings: hash of the present ones;
    drafted: whether model and settings use drafts."""
    edited = changed = 0
    total = sum(len(record.source) for record in unchanged)
    updated = [(task, task.record) for task in tasks if task.record is not None]
    for task, record in updated:
        before = {n: task.corrected.get(n, record.target[old]) for n, old in task.same.items()}
        total += len(task.texts)
        edited += len(task.texts) - len(before)
        changed += sum(task.texts[n] != text for n, text in before.items())
    stay = total - edited - changed
    print(f"update: of {counted(total, 'segment')} {edited} edited, {changed} changed, {stay} stay", file=sys.stderr)
    if any(record.settings != settings for _, record in updated):
        print("update: another model or other settings than before: all was verified anew", file=sys.stderr)
    if not drafted:
        print("update: this search uses no drafts: what was not known is translated from nothing", file=sys.stderr)
    if kept := [task.place(number) for task in tasks for number in sorted(task.corrected)]:
        print(f"update: {counted(len(kept), 'correction')} by hand kept: {some_of(kept)}", file=sys.stderr)
    if discarded := [task.place(number) for task in tasks for number in task.discarded]:
        log.warning("%d corrections by hand are discarded: %s", len(discarded), some_of(discarded))
    if lost := [str(task.copy) for task in tasks if task.copy]:
        log.warning(
            "what was edited in %d files has no place in them any more; they are kept as %s", len(lost), some_of(lost)
        )
