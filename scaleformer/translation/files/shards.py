"""Parts of one translation on several machines: `shard=3/64` translates every 64th document, from the third on, and
`shard=merge/64` joins what all have written."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from scaleformer.formats.lines import Input, read_lines
from scaleformer.system.display import counted
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.translation.files.lines import read_documents, translation_writer
from scaleformer.translation.files.paths import plan_files
from scaleformer.translation.files.record import Record

T = TypeVar("T")


@dataclass(frozen=True)
class Shard:
    """One of so many parts, from 1; number 0 joins them."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Of "3/64" or "merge/64". Raises ValueError."""
        number, _, of = text.partition("/")
        if of.isdecimal() and number in ("merge", *map(str, range(1, int(of) + 1))):
            return cls(0 if number == "merge" else int(number), int(of))
        raise ValueError(f"shard is {shown(text)}: it must be a part of all, from 1/N to N/N, or merge/N")

    def take(self, items: Sequence[T]) -> Sequence[T]:
        """Those of this part."""
        return items[self.number - 1 :: self.of]

    def place(self, output: str, number: int | None = None) -> str:
        """The name for what this part writes beside others, or the part of that number: out.3of64.jsonl."""
        head, dot, tail = output.rstrip("/").partition(".jsonl")
        return f"{head}.{number or self.number}of{self.of}{dot}{tail}"

    def command(self, number: int) -> str:
        """The setting that makes a part."""
        return f"shard={number}/{self.of}"


def merge_files(inputs: Sequence[str], output: str, shard: Shard) -> None:
    """Check that every file has its translation, and join the records of all parts. Raises DataError."""
    plan = plan_files(inputs, output, overwrite=True)
    numbers = [number for number, (_, target) in enumerate(plan.pairs) if not target.is_file()]
    if numbers:
        first = plan.pairs[numbers[0]][1], shard.command(numbers[0] % shard.of + 1)
        raise DataError(f"{len(numbers)} of {len(plan.pairs)} translations are missing, first {first[0]} of {first[1]}")
    record = Record.read(output)
    others = [Record.read(shard.place(output, number)) for number in range(1, shard.of + 1)]
    if lacking := [n for n, other in enumerate(others[: len(plan.pairs)], 1) if not other.path.exists()]:
        without = shard.place(output, lacking[0])
        print(f"{len(lacking)} of {shard.of} parts have no record, first {without}.record: merged before, or made by "
              "another shard=: what has none will be translated anew by update=true", file=sys.stderr)  # fmt: skip
    for other in others:
        record.files |= other.files
    record.write()
    for other in others:
        other.path.unlink(missing_ok=True)
    print(f"{output}: {counted(len(plan.pairs), 'file')} of {shard.of} parts", file=sys.stderr)


def merge_lines(source: Input, output: str, shard: Shard) -> None:
    """Write the JSON Lines of all parts in the order of the source. Raises DataError where a document is missing."""
    names = [document.id for document in read_documents(source, "jsonl").documents]
    parts = [shard.place(output, number) for number in range(1, shard.of + 1)]
    for number, part in enumerate(parts[: len(names)], 1):
        if not Path(part).is_file():
            raise DataError(f"{part}: missing: {shard.command(number)} makes it")
    lines = [read_lines(part) if Path(part).is_file() else iter(()) for part in parts]
    with translation_writer(output) as file:
        file.writelines(_in_order(names, lines, parts))
    print(f"{output}: {counted(len(names), 'document')} of {shard.of} parts", file=sys.stderr)


def _in_order(names: Sequence[str], lines: Sequence[Iterator[tuple[int, str]]], parts: Sequence[str]) -> Iterator[str]:
    for place, name in enumerate(names):
        part = parts[place % len(parts)]
        number, line = next(lines[place % len(parts)], (0, ""))
        found = json.loads(line).get("id") if line else None
        if found != name:
            what = f"document {shown(str(found))}" if line else "the end"
            raise DataError(f"{part}:{number or ''} {what}, wanted document {shown(name)}: of another input?")
        yield f"{line.rstrip()}\n"
    for part, rest in zip(parts, lines, strict=True):
        if (more := next(rest, None)) is not None:
            raise DataError(f"{part}:{more[0]}: more documents than the input has")
