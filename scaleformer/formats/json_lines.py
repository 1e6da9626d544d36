"""JSON Lines: a document a line. Every fault is a `DataError` of one line that starts with `file:line`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scaleformer.formats.lines import read_lines
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.text.documents import Document, check_beads, check_document


def read_jsonl(path: str | Path, require_target: bool = True) -> Iterator[Document]:
    """Documents of a JSON Lines file: one `{"id": str, "source": [str, ...], "target": [str, ...]}` per line.

    Other keys are ignored. An empty or blank segment is kept; a document without segments is an error. With
    `require_target=False` "target" may be missing, and a missing "id" becomes FILE:LINE. If segments do not match one
    to one, "beads" says which belong together: `[[1, 1], [2, 1], ...]`, numbers of source and of target segments.
    """
    for number, line in read_lines(path, "jsonl"):
        yield parse_document(line, f"{path}:{number}", require_target)


def parse_object(line: str, where: str, keys: str) -> dict[str, Any]:
    """The JSON object of one line. Raises DataError for anything else, which says that one with `keys` was wanted."""
    if not line.strip():
        raise DataError(f"{where}: empty line, wanted one JSON document per line")
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: malformed JSON ({error.msg}, column {error.colno})") from None
    except RecursionError:
        raise DataError(f"{where}: malformed JSON (nested too deeply)") from None
    except ValueError:  # Python refuses integers of more than some thousand digits
        raise DataError(f"{where}: malformed JSON (a number with too many digits)") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: a JSON {type(record).__name__}, wanted an object with {keys}")
    return record


def parse_document(line: str, where: str, require_target: bool = True) -> Document:
    """The document of one JSON line. `where` begins the message of a DataError, and is the name of a document without
    an id if no target is required."""
    return document_of(parse_object(line, where, "id, source, target"), where, require_target)


def document_of(record: dict[str, Any], where: str, require_target: bool = True) -> Document:
    """As `parse_document`, of a line that is read."""
    if not require_target:
        record.setdefault("id", where)
    wanted = ("id", "source", "target") if require_target else ("source",)
    if missing := [key for key in wanted if key not in record]:
        present = ", ".join(shown(key)[1:-1] for key in list(record)[:8]) or "-"
        raise DataError(f"{where}: no {' and no '.join(map(repr, missing))} (keys present: {present})")
    if not isinstance(record["id"], str):
        raise DataError(f"{where}: 'id' is {type(record['id']).__name__}, wanted a string")
    sides = {side: _segments(record, side, where) for side in ("source", "target")}
    beads = record.get("beads", [])
    if not isinstance(beads, list) or not all(isinstance(bead, list) for bead in beads):
        raise DataError(f"{where}: 'beads' is not a list of [source segments, target segments]")
    if beads and (fault := check_beads(beads, len(sides["source"]), len(sides["target"]))):
        raise DataError(f"{where}: document {shown(record['id'])}: {fault}")
    if all(bead == [1, 1] for bead in beads):
        beads = []
    document = Document(record["id"], sides["source"], sides["target"], beads=tuple((s, t) for s, t in beads))
    check_document(document, where, require_target or "target" in record)
    return document


def _segments(record: dict[str, Any], side: str, where: str) -> tuple[str, ...]:
    segments = record.get(side, [])
    if not isinstance(segments, list):
        raise DataError(f"{where}: {side!r} is {type(segments).__name__}, wanted a list of strings")
    for index, segment in enumerate(segments):
        if not isinstance(segment, str):
            raise DataError(f"{where}: {side}[{index}] is {type(segment).__name__}, wanted a string")
    return tuple(segments)


def read_translations(path: str | Path, side: str, dropped: Counter[str], segments: Counter[str]) -> Iterator[Document]:
    """Documents of the output of `scaleformer translate`, with the translation as `side` and the translated text as the
    other one: "source" for back-translation [Sennrich 2016], "target" for distillation [Kim 2016].

    Segments that a length limit cut are left out and counted in `segments`; in `dropped`, documents that it cut in
    every segment or in unknown ones, and those whose segment count differs from the translation's.
    Raises DataError with file and line for lines that `translate` did not write.
    """
    for number, line in read_lines(path, "jsonl"):
        where = f"{path}:{number}"
        record = parse_object(line, where, "id, source, hypothesis, finished")
        if missing := [key for key in ("id", "source", "hypothesis", "finished") if key not in record]:
            raise DataError(f"{where}: no {missing[0]!r}: wanted the output of translate output=FILE.jsonl")
        text, translation = (_segments(record, name, where) for name in ("source", "hypothesis"))
        given = record.get("cut")
        cut = [place for place in range(len(text)) if isinstance(given, list) and place in given]
        if len(text) != len(translation):
            dropped["another number of segments" if record["finished"] else "cut by the length limit"] += 1
        elif not record["finished"] and len(cut) in (0, len(text)):
            dropped["cut by the length limit"] += 1
        else:
            segments["cut by the length limit"] += len(cut)
            sides = (translation, text) if side == "source" else (text, translation)
            left = [tuple(part for place, part in enumerate(texts) if place not in cut) for texts in sides]
            document = Document(str(record["id"]), left[0], left[1])
            check_document(document, where)
            yield document
