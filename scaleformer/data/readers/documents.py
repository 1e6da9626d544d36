"""Strict readers of the input formats, and the `Document` that they all yield.

Every fault is a `DataError` of one line that starts with `file:line`.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scaleformer.data.errors import DataError
from scaleformer.data.readers.lines import read_lines
from scaleformer.system.schema import shown
from scaleformer.vocabulary import Beads, check_beads

_COLUMNS = {
    "document": ("document", "document_id", "doc", "doc_id", "docid", "id"),
    "source": ("source", "src", "source_text"),
    "target": ("target", "tgt", "trg", "target_text", "translation", "reference", "ref"),
}
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:[-_][a-z]{2,4})?", re.IGNORECASE)


@dataclass(frozen=True)
class Document:
    """Aligned segments of a source and a target text, in order.

    id      name in reports and outputs
    source  segments
    target  segments, none at all if the translation is unknown
    labels  facts about single words (`scaleformer.data.synthetic.corpus.Label`), for scoring
    beads   numbers of source and target segments that belong together, in order: (2, 1) two and one, (0, 1) one without
            a source; () if all segments match one to one
    """

    id: str
    source: tuple[str, ...]
    target: tuple[str, ...] = ()
    labels: tuple[Any, ...] = ()
    beads: Beads = ()

    def to_json(self) -> str:
        """The document as a line of JSON Lines, without the labels and without a newline."""
        record: dict[str, Any] = {"id": self.id, "source": self.source, "target": self.target}
        return json.dumps(record | ({"beads": self.beads} if self.beads else {}), ensure_ascii=False)

    @property
    def shapes(self) -> Beads:
        """The beads, also if all segments match one to one; without a target, each has no target segment."""
        return self.beads or ((1, 1 if self.target else 0),) * len(self.source)

    def parts(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """The source and target segments of each bead."""
        found, source, target = [], 0, 0
        for s, t in self.shapes:
            found.append((self.source[source : source + s], self.target[target : target + t]))
            source, target = source + s, target + t
        return found

    def one_to_one(self) -> Document:
        """The document with one segment per bead on either side, its segments joined by spaces: for scoring."""
        if not self.beads:
            return self
        source, target = zip(*((" ".join(s), " ".join(t)) for s, t in self.parts()), strict=True)
        return replace(self, source=source, target=target, beads=())


def from_parts(id: str, parts: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Document:
    """The document with these `Document.parts`."""
    beads = tuple((len(source), len(target)) for source, target in parts)
    source, target = (tuple(segment for part in parts for segment in part[side]) for side in (0, 1))
    return Document(id, source, target, beads=() if all(bead == (1, 1) for bead in beads) else beads)


def one_line(segments: Sequence[str]) -> str:
    """A document as one line: segments joined by spaces, line breaks turned into spaces, empty ones left out."""
    return " ".join(line for segment in segments for line in segment.splitlines() if line)


def assign_splits(count: int, valid: float, test: float, seed: int = 1) -> list[str]:
    """The split of each of `count` documents: a seeded draw with exact shares; at least one document for each share
    above 0, and one for train unless the shares sum to 1. Raises DataError if there are too few documents."""
    numbers = {
        name: max(1, round(share * count)) if share > 0 else 0 for name, share in (("valid", valid), ("test", test))
    }
    if sum(numbers.values()) + (valid + test < 1) > count:
        raise DataError(f"{count} documents are too few to set {' and '.join(n for n in numbers if numbers[n])} aside")
    rng = random.Random(f"scaleformer splits {seed}")
    draws = [rng.random() for _ in range(count)]
    splits = ["train"] * count
    ranking = iter(sorted(range(count), key=lambda i: draws[i]))
    for name, number in numbers.items():
        for _ in range(number):
            splits[next(ranking)] = name
    return splits


def read_jsonl(path: str | Path, require_target: bool = True) -> Iterator[Document]:
    """Documents of a JSON Lines file: one `{"id": str, "source": [str, ...], "target": [str, ...]}` per line.

    Other keys are ignored. An empty or blank segment is kept; a document without segments is an error. With
    `require_target=False` "target" may be missing, and a missing "id" becomes FILE:LINE. If segments do not match one
    to one, "beads" says which belong together: `[[1, 1], [2, 1], ...]`, numbers of source and of target segments.
    """
    for number, line in read_lines(path, "jsonl"):
        yield parse_document(line, f"{path}:{number}", require_target)


def parse_document(line: str, where: str, require_target: bool = True) -> Document:
    """The document of one JSON line. `where` begins the message of a DataError, and is the name of a document without
    an id if no target is required."""
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
        raise DataError(f"{where}: a JSON {type(record).__name__}, wanted an object with id, source, target")
    if not require_target:
        record.setdefault("id", where)
    wanted = ("id", "source", "target") if require_target else ("source",)
    if missing := [key for key in wanted if key not in record]:
        present = ", ".join(shown(key)[1:-1] for key in list(record)[:8]) or "-"
        raise DataError(f"{where}: no {' and no '.join(map(repr, missing))} (keys present: {present})")
    if not isinstance(record["id"], str):
        raise DataError(f"{where}: 'id' is {type(record['id']).__name__}, wanted a string")
    sides = {}
    for side in ("source", "target"):
        segments = record.get(side, [])
        if not isinstance(segments, list):
            raise DataError(f"{where}: {side!r} is {type(segments).__name__}, wanted a list of strings")
        for index, segment in enumerate(segments):
            if not isinstance(segment, str):
                raise DataError(f"{where}: {side}[{index}] is {type(segment).__name__}, wanted a string")
        sides[side] = tuple(segments)
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


def check_document(document: Document, where: str, has_target: bool = True) -> None:
    """Raise DataError unless the document has segments, equally many on both sides, and is valid Unicode."""
    if not document.source and not document.target:
        raise DataError(f"{where}: document {shown(document.id)} is empty: it has no segments")
    if has_target and not document.beads and len(document.source) != len(document.target):
        raise DataError(
            f"{where}: document {shown(document.id)} has {len(document.source)} source segments and "
            f'{len(document.target)} target segments: align them one to one, or say which belong together in "beads"'
        )
    for text in (document.id, *document.source, *document.target):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise DataError(f"{where}: document {shown(document.id)} has a lone surrogate (\\ud800-\\udfff)") from None


def read_text_pair(
    source: str | Path, target: str | Path, boundaries: str = "blank", ids: str | Path | None = None
) -> Iterator[Document]:
    """Documents of two line-aligned text files, one segment per line.

    boundaries: "blank"  a blank line on both sides ends a document
                "ids"    line n of the file `ids` names the document of line n (as `sacrebleu --echo docid` prints)
                "lines"  every line is a document
    Raises DataError with file and line if the files do not match or a document is wrong.
    """
    name = re.sub(r"\.gz$", "", Path(source).name)
    pending: tuple[list[str], list[str]] = ([], [])
    current = f"{name}:1"
    seen: set[str] = set()
    number = 0
    for number, first, second, label in _aligned_lines(source, target, ids if boundaries == "ids" else None):
        blank = (not first.strip(), not second.strip())
        if boundaries == "blank" and any(blank):
            if not all(blank):
                text, other = (source, target) if blank[0] else (target, source)
                raise DataError(
                    f"{text}:{number}: blank here but not in {other}: end documents at the same line in both"
                )
            if pending[0]:
                yield _checked(current, pending, f"{source}:{number}")
            pending = ([], [])
            continue
        if boundaries == "ids":
            if pending[0] and label != current:
                yield _checked(current, pending, f"{source}:{number}")
                seen.add(current)
                pending = ([], [])
            if label in seen:
                raise DataError(f"{ids}:{number}: document {shown(label)} began earlier: put its lines together")
            current = label
        elif not pending[0]:
            current = f"{name}:{number}"
        pending[0].append(first)
        pending[1].append(second)
        if boundaries == "lines":
            yield _checked(current, pending, f"{source}:{number}")
            pending = ([], [])
    if pending[0]:
        yield _checked(current, pending, f"{source}:{number}")


def _checked(name: str, sides: tuple[list[str], list[str]], where: str) -> Document:
    document = Document(name, tuple(sides[0]), tuple(sides[1]))
    check_document(document, where)
    return document


def _aligned_lines(
    source: str | Path, target: str | Path, ids: str | Path | None
) -> Iterator[tuple[int, str, str, str]]:
    """Number, source, target and document name ("" without `ids`) of each line; all files must end together."""
    files = [source, target] if ids is None else [source, target, ids]
    readers = [read_lines(file, "text") for file in files]
    number = 0
    while True:
        lines = [next(reader, None) for reader in readers]
        present = [line is not None for line in lines]
        if not any(present):
            return
        if not all(present):
            short = files[present.index(False)]
            longer = files[present.index(True)]
            raise DataError(f"{short}:{number + 1}: ends after {number} lines, but {longer} is longer: align them")
        number += 1
        texts = [line[1] for line in lines if line is not None]
        yield number, texts[0], texts[1], texts[2] if ids is not None else ""


def read_tsv(path: str | Path, dropped: Counter[str] | None = None) -> Iterator[Document]:
    """Documents of a TSV file: document id, source and target on each line; a document's lines are consecutive.

    A header line sets the order of the columns and is counted in `dropped`. Raises DataError with file and line for
    anything else.
    """
    pending: tuple[list[str], list[str]] = ([], [])
    current = ""
    seen: set[str] = set()
    order = [0, 1, 2]
    for number, line in read_lines(path, "tsv"):
        columns = line.split("\t")
        if len(columns) != 3:
            raise DataError(f"{path}:{number}: {len(columns)} columns, wanted 3: document id, source, target")
        if number == 1 and (named := _header(columns)):
            order = named
            if dropped is not None:
                dropped["the names of the columns"] += 1
            continue
        name, source, target = (columns[place] for place in order)
        if pending[0] and name != current:
            yield _checked(current, pending, f"{path}:{number}")
            seen.add(current)
            pending = ([], [])
        if name in seen:
            raise DataError(f"{path}:{number}: document {shown(name)} began earlier: put its lines together")
        current = name
        pending[0].append(source)
        pending[1].append(target)
    if pending[0]:
        yield _checked(current, pending, str(path))


def _header(cells: Sequence[str]) -> list[int] | None:
    """The places of document, source and target in a header line; languages may name the last two."""
    names = [cell.strip().lower() for cell in cells]
    places = [next((i for i, name in enumerate(names) if name in _COLUMNS[role]), None) for role in _COLUMNS]
    if places[0] is not None and places[1:] == [None, None]:
        others = [i for i in range(3) if i != places[0]]
        if all(_LANGUAGE.fullmatch(names[i]) for i in others):
            return [places[0], *others]
    return [place for place in places if place is not None] if None not in places else None
