"""The files below a folder that a command reads, and what it says of the others."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from scaleformer.formats.lines import Input
from scaleformer.formats.recognition import LANGUAGE, by_name, recognise

_OWN = b'{"record": "scaleformer', b'{"checkpoint": "', b'{\n  "command": "scaleformer'  # records, and unfinished calls

log = logging.getLogger(__name__)


def find_files(
    folder: Path, formats: Collection[str], others: Counter[str], without: Path | None = None
) -> Iterator[Path]:
    """The files of these formats below a folder, ordered by name, without hidden ones and those below another; what a
    `.json`, `.xml` or `.ts` is shows its content. JSON and YAML have to name a language, since most are settings.

    others counts the other files, by suffix, but for what `translate` keeps beside its output. Links to folders are not
    followed, but named in a warning.
    """
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if without is not None and path.resolve().is_relative_to(without):
            continue
        if path.is_symlink() and path.is_dir():
            log.warning("%s: a link to a folder, which is not followed: name the folder itself as input", path)
        elif path.is_symlink() and not path.exists():
            log.warning("%s: a link to nothing", path)
        elif path.is_file():
            format = by_name(path.name)
            if path.suffix.lower() in (".json", ".ts", ".xml"):
                format = recognise(Input(str(path)).begin, path.name)
            names = re.split(r"[./]", path.relative_to(folder).as_posix())[:-1]
            named = any(LANGUAGE.fullmatch(part) for part in (folder.resolve().name, *names))
            if path.name.endswith(".terms.json") and Input(str(path)).begin.startswith(_OWN):
                continue
            if format is not None and format.name in formats and (named or format.name not in ("json", "yaml")):
                yield path
            elif path.suffix not in (".record", ".part") or not Input(str(path)).begin.startswith(_OWN):
                others[path.suffix or path.name] += 1


def report_others(others: Counter[str]) -> None:
    """Warn about the files of other formats in folders, with what to do about those that are known."""
    if others:
        kinds = ((ending, count, by_name(f"a{ending}")) for ending, count in others.most_common())
        known = (f"{count} {ending}{f', {format.title}' if format else ''}" for ending, count, format in kinds)
        log.warning("%d of other formats skipped: %s", others.total(), "; ".join(known))
