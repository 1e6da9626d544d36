"""Hostile input: texts, documents, bytes and values, all functions of a random generator; and slow readers of them."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from scaleformer.text.documents import Document

Rng = random.Random
# fmt: off
PIECES = (
    "", " ", "  ", "\u3000", "\u00a0", "a", "Z", "word ", "ß", "e\u0301", "日本語", "😀", "\U0001f469\u200d\U0001f467",
    "\U0001f1ea\U0001f1f8", "\U0010ffff", "\u202e", "\u2066", "\u2069", "\u200b", "\u200d", "\u200f", "\ufeff",
    "\ufffd", "\ue000", "\ue000_", "\ue000sep>", "\0", "\x01", "\x1b[31m", "\x7f", "\x85", "\u2028", "\u2029", "\x0b",
    "\x0c", "\x1c", "\r", "\t", "<sep>", "<s>", "</s>", "<pad>", "<unk>", "<0x41>", "\u2581", "\u2585", "<<sep>>",
    "<sep", "sep>", "../../etc/passwd", "/etc/passwd", "..\\..\\x", "~", "$(touch x)", "%s%n", "{0}", '"', "\\", "\\n",
    "'", "#~", "NaN",
)
JUNK = (
    b"\0", b"\xff", b"\xfe\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n\n", b"\n", b"\x1a",
    b"[" * 100_000, b'{"a":' * 5000, b"9" * 5000, b"1e999", b"NaN", b"\\ud800", b"\\udfff\\ud800", b"null", b"{}",
    b"[]", b'"', b"\\", b"\t", b",", b":", b"msgid", b"msgstr", b'msgid ""', b"#~ ", b"#, fuzzy", b"\\777", b"\\xff",
    b"<seg>", b"</tu>", b"<tuv>", b"<!DOCTYPE tmx [<!ENTITY a 'b'>]>", b"&a;", b"&#0;", b"<![CDATA[", b"]]>",
    b"<a>" * 5000, b"<?xml version='1.0' encoding='utf-7'?>", b"charset=utf-7", b"<!--", b"<source/>", b"PAR1",
)
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 1000, 10**400, -(10**30), 0.0, 0.5, 1e308, -1e308, math.nan, math.inf, "", "x",
    "\n", "a\nb", "x" * 300, "../..", "\0", [], [1], [1, 2], [2, 1], ["a"], [0.1, math.nan], {}, {"a": {}},
    {"name": 1}, "jsonl", "text", "hub", "blank", "ids", "/", "/nowhere", "\ud800", "unigram", "beam", "greedy", "[",
    "{a: }", "!!x",
)
# fmt: on


def segment(rng: Rng) -> str:
    """A text that a reader of lines or cells could meet: no line feed."""
    kind = rng.random()
    if kind < 0.001:
        return rng.choice(PIECES) * (1_000_000 // 4)
    if kind < 0.1:
        return "".join(chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xE000, 0x10FFFF)))) for _ in range(9))
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(6)))


def document(rng: Rng, number: int) -> Document:
    """A document that is right."""
    count = rng.choice((1, 1, 2, 3, 5)) if rng.random() > 0.0005 else 100_000
    pairs = [(segment(rng), segment(rng)) for _ in range(min(count, 50))]
    if count > len(pairs):
        pairs = ([(source[:20], target[:20]) for source, target in pairs] * (count // len(pairs) + 1))[:count]
    name = rng.choice((f"d{number}", f"{number}/{segment(rng)}"))
    return Document(name, tuple(p[0] for p in pairs), tuple(p[1] for p in pairs))


def mutated(rng: Rng, data: bytes) -> bytes:
    """Bytes with a few faults in them; every third time as they were."""
    if rng.random() < 1 / 3:
        return data
    for _ in range(rng.randrange(1, 4)):
        start, stop = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
        stop = min(stop, start + 40)
        new = rng.choice((b"", rng.choice(JUNK), rng.choice(JUNK), data[start:stop] * 2, rng.randbytes(3)))
        if rng.random() < 0.15:
            data = data[:start]
        else:
            data = data[:start] + new + data[rng.choice((start, start, stop)) :]
    if rng.random() < 0.1:
        data = data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\n\r")))
    return rng.choice((b"", b"", b"", b"\xef\xbb\xbf", b"\xff\xfe")) + data


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def slow_lines(data: bytes) -> list[str]:
    """The lines of a file, by other means than the reader's; UnicodeDecodeError where they are not UTF-8."""
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    text = data.removeprefix(b"\xef\xbb\xbf").decode()
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines[:-1] if not lines[-1] else lines)]


def slow_jsonl(data: bytes) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]] | None:
    """What a JSON Lines file says; None where it is wrong."""
    found = []
    try:
        for line in slow_lines(data):
            record = json.loads(line)
            sides = [record["source"], record["target"]]
            texts = [record["id"], *sides[0], *sides[1]]
            good = all(isinstance(side, list) for side in sides) and all(isinstance(text, str) for text in texts)
            if not good or not sides[0] or len(sides[0]) != len(sides[1]):
                return None
            "".join(texts).encode()
            found.append((record["id"], tuple(sides[0]), tuple(sides[1])))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return found
