"""The files to translate, and the paths of their translations."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scaleformer.formats.recognition import FORMATS, TRANSLATED, by_name
from scaleformer.system.errors import DataError

ENDINGS = tuple(ending for name in TRANSLATED for ending in FORMATS[name].endings)


@dataclass
class FilePlan:
    """Files and the names of their translations; left: counts files of other formats in the folders, by extension."""

    pairs: list[tuple[Path, Path]] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)


def plan_files(inputs: Sequence[str], output: str) -> FilePlan:
    """Map one file to a file or into a folder, and several files, or those below folders, into a folder by name.

    Files in the output folder are not inputs. Raises DataError if an input is missing, no file has a known format, the
    parent of the output is missing, the output is an input or has a different format, or two files share a name.
    """
    plan = FilePlan()
    folder = Path(output)
    single = len(inputs) == 1 and not Path(inputs[0]).is_dir()
    if not folder.parent.is_dir():
        raise DataError(f"output={output}: there is no folder {folder.parent}: correct the name or create it")
    if single and not folder.is_dir() and not output.endswith(os.sep):
        plan.pairs.append((Path(inputs[0]), folder))
    else:
        for name in inputs:
            _add(plan, Path(name), folder)
    for source, target in plan.pairs:
        if target.exists() and source.exists() and os.path.samefile(source, target):
            raise DataError(f"output={output}: {source} would be overwritten by its translation: choose another output")
        found = by_name(target.name), by_name(source.name)
        if single and None not in found and found[0] != found[1] and found[0] is not None:
            raise DataError(f"output={output}: {found[0].title}: a translation keeps the format of its source")
    if twice := [path for path, count in Counter(target for _, target in plan.pairs).items() if count > 1]:
        raise DataError(f"{twice[0]}: two files have this name: translate them into separate folders")
    if not plan.pairs:
        others = ", ".join(f"{count} {ending}" for ending, count in plan.left.most_common(5)) or "no files"
        raise DataError(f"{', '.join(inputs)}: nothing to translate ({others}): wanted files in {' '.join(ENDINGS)}")
    return plan


def _add(plan: FilePlan, path: Path, folder: Path) -> None:
    if not path.exists():
        raise DataError(f"{path}: no such file or folder")
    if not path.is_dir():
        plan.pairs.append((path, folder / path.name))
        return
    output = folder.resolve()
    inside = output != path.resolve() and output.is_relative_to(path.resolve())
    for found in sorted(path.rglob("*")):
        parts = found.relative_to(path).parts
        if not found.is_file() or any(part.startswith(".") for part in parts):
            continue
        if inside and found.resolve().is_relative_to(output):
            continue
        format = by_name(found.name)
        if format is not None and format.name in TRANSLATED and not found.name.endswith(".gz"):
            plan.pairs.append((found, folder.joinpath(*parts)))
        else:
            plan.left[found.suffix or found.name] += 1
