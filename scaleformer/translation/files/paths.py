"""The files to translate, and the paths of their translations."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from scaleformer.formats.folders import find_files
from scaleformer.formats.lines import Input
from scaleformer.formats.recognition import FORMATS, TRANSLATED, by_name, recognise
from scaleformer.system.errors import DataError

ENDINGS = tuple(ending for name in TRANSLATED for ending in FORMATS[name].endings)


@dataclass
class FilePlan:
    """Files and the names of their translations.

    left  counts files of other formats in the folders, by extension
    kept  translations that exist, by an earlier call or by a person, and stay as they are
    part  the file of an unfinished call (`resumable_translations`)
    """

    part: Path
    pairs: list[tuple[Path, Path]] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)
    kept: set[Path] = field(default_factory=set)

    def to_read(self) -> list[tuple[Path, Path]]:
        """The pairs whose source has to be read: without a translation, or with one that is younger than the part. That
        may be of the call which left the part while it was writing; its documents are in the part."""
        begun = self.part.stat().st_mtime_ns if self.part.exists() else None
        old = {path for path in self.kept if begun is None or path.stat().st_mtime_ns < begun}
        return [(source, target) for source, target in self.pairs if target not in old]


def plan_files(
    inputs: Sequence[str], output: str, overwrite: bool = False, known: Callable[[Path], object] | None = None
) -> FilePlan:
    """Map one file to a file or into a folder, and several files, or those below folders, into a folder by name.

    overwrite  whether translations that exist are replaced; else they are kept
    known      whether a translation that exists can be replaced without losing what a person wrote
    Files in the output folder are not inputs. Raises DataError if an input is missing, no file has a known format, the
    parent of the output is missing, the output is an input or has a different format, two files share a name, or the
    output for a single file exists.
    """
    folder = Path(output)
    plan = FilePlan(Path(f"{output.rstrip(os.sep)}.part"))
    single = len(inputs) == 1 and not Path(inputs[0]).is_dir()
    if output == "-":
        raise DataError("output=-: stdout takes lines of text and JSON Lines: name a file or a folder")
    if not folder.parent.is_dir():
        raise DataError(f"output={output}: there is no folder {folder.parent}: correct the name or create it")
    if single and not folder.is_dir() and not output.endswith(os.sep):
        plan.pairs.append((Path(inputs[0]), folder))
    else:
        if folder.is_file():
            raise DataError(f"output={output}: is a file: several translations need a folder")
        for name in inputs:
            _add(plan, Path(name), folder)
    for source, target in plan.pairs:
        if target.exists() and source.exists() and os.path.samefile(source, target):
            raise DataError(f"output={output}: {source} would be overwritten by its translation: choose another output")
        if single and source.is_file() and (named := by_name(target.name)) is not None:
            format = by_name(source.name) or recognise(Input(str(source)).begin, source.name)
            if format is not named and format.name in TRANSLATED:
                raise DataError(f"output={output}: {named.title}: a translation keeps the format of its source")
    if twice := [path for path, count in Counter(target for _, target in plan.pairs).items() if count > 1]:
        raise DataError(f"{twice[0]}: two files have this name: translate them into separate folders")
    if not plan.pairs:
        others = ", ".join(f"{count} {ending}" for ending, count in plan.left.most_common(5)) or "no files"
        raise DataError(f"{', '.join(inputs)}: nothing to translate ({others}): wanted files in {' '.join(ENDINGS)}")
    there = {target for _, target in plan.pairs if target.is_file()}
    plan.kept = set() if overwrite else {target for target in there if known is None or not known(target)}
    if single and plan.kept:
        why = "exists and may have been corrected" + ", and no record tells" * (known is not None)
        raise DataError(f"{plan.pairs[0][1]}: {why}: overwrite=true replaces it")
    return plan


def free_name(path: Path) -> Path:
    """A name for a copy of an edited file that no file has: PATH.edited, PATH.edited2 ..."""
    names = (path.with_name(f"{path.name}.edited{number if number > 1 else ''}") for number in count(1))
    return next(name for name in names if not name.exists())


def _add(plan: FilePlan, path: Path, folder: Path) -> None:
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if not path.is_dir():
        plan.pairs.append((path, folder / path.name))
        return
    output = folder.resolve()
    inside = output != path.resolve() and output.is_relative_to(path.resolve())
    for found in find_files(path, TRANSLATED, plan.left, output if inside else None):
        if found.name.endswith(".gz"):
            plan.left[found.suffix] += 1
        else:
            plan.pairs.append((found, folder / found.relative_to(path)))
