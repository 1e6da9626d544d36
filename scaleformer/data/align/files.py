"""Pairs the files of two folders, or of a list, that are translations of each other, and reads them."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter
from pathlib import Path

from scaleformer.formats.blocks import Block
from scaleformer.formats.files import read_prose
from scaleformer.formats.folders import find_files, report_others
from scaleformer.formats.lines import Input, read_content, read_lines
from scaleformer.formats.recognition import FORMATS, STRINGS, recognise, refusal
from scaleformer.formats.segments import Segment
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown

log = logging.getLogger(__name__)

NAMES = tuple(name for name, format in FORMATS.items() if format.prose not in ("", STRINGS) and not format.rows)
ENDINGS = tuple(ending for name in NAMES for ending in FORMATS[name].endings)
Pair = tuple[str, Path, Path]  # name of the document, file of the source, file of the target


def pairs_of_folders(source: Path, target: Path, languages: tuple[str, str], left_out: Counter[str]) -> list[Pair]:
    """The files that both folders have, matched by path without the suffix and the language before it:
    guide/start.en.md and guide/start.es.html are the document guide/start, however their accents are encoded.
    `left_out` counts files without a partner. Raises DataError if either is not a folder, if two files have the same
    name, or if no names match."""
    sides = [_named(folder, language) for folder, language in zip((source, target), languages, strict=True)]
    names = sorted(set(sides[0]) & set(sides[1]))
    if not names:
        raise DataError(
            f"{source} and {target}: no files have the same path (without suffix): list the pairs with input=FILE.tsv"
        )
    for side, other in (sides, sides[::-1]):
        for name in sorted(set(side) - set(other)):
            log.warning("%s: no partner in the other folder: left out", side[name])
            left_out["files without a partner"] += 1
    return [(name, sides[0][name], sides[1][name]) for name in names]


def _named(folder: Path, language: str) -> dict[str, Path]:
    if not folder.is_dir():
        raise DataError(f"{folder}: {'not a folder' if folder.exists() else 'no such folder'}")
    found: dict[str, Path] = {}
    others: Counter[str] = Counter()
    for path in find_files(folder, NAMES, others):
        if path.suffix.lower() not in ENDINGS:  # compressed
            others[path.suffix] += 1
            continue
        name = unicodedata.normalize("NFC", path.relative_to(folder).with_suffix("").as_posix())  # macOS has NFD
        name = re.sub(rf"[._-]{re.escape(language)}$", "", name, flags=re.IGNORECASE)
        if name in found:
            raise DataError(f"{path}: {found[name]} has the same name: keep one file per document on each side")
        found[name] = path
    report_others(others)
    if not found:
        raise DataError(f"{folder}: no {', '.join(ENDINGS)} files below this folder")
    return found


def pairs_of_list(path: Path) -> list[Pair]:
    """The pairs of a list, with two tab-separated paths per line; relative paths start at the list's folder."""
    pairs = []
    for number, line in read_lines(path, "tsv"):
        cells = line.split("\t")
        if len(cells) != 2 or not all(cells):
            raise DataError(f"{path}:{number}: {shown(line)}: wanted a source path, a tab and a target path")
        pairs.append((Path(cells[0]).with_suffix("").as_posix(), path.parent / cells[0], path.parent / cells[1]))
    if twice := [name for name, count in Counter(name for name, *_ in pairs).items() if count > 1]:
        raise DataError(f"{path}: the document {shown(twice[0])} has several lines: keep one")
    if not pairs:
        raise DataError(f"{path}: no pairs of files: write a source path, a tab and a target path on each line")
    return pairs


def read_file(path: Path, language: str, grain: str) -> tuple[list[Block], list[list[Segment]]]:
    """The blocks of a file and the segments of each (`read_prose`). Raises DataError."""
    format = recognise(Input(str(path)).begin, path.name)
    if format.name not in NAMES:
        raise DataError(f"{path}: {refusal(format, 'aligned')}")
    file, segments = read_prose(read_content(path), str(path), format.name, language, grain)
    return file.blocks, segments
