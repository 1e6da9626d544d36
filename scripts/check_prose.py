"""`python -m scripts.check_prose [FILE ...]` lists what is hard to read in pages, and ends with 1 where it found any.
With `--sizes` it prints a table of the pages instead: words, words of the longest paragraph, most numbers of one.

A paragraph or an item of a list may have 90 words and 12 numbers, a sentence 40 words. Code, tables, headings and the
targets of links do not count: numbers belong into tables.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
GENERATED = ("docs/benchmarks.md",)
WRITTEN = ("README.md", "CONTRIBUTING.md", "data/README.md")
# The pages that are checked: docs/ without the timings and the entries of the log, which are all numbers.
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in [*(ROOT / name for name in WRITTEN), *(ROOT / "docs").rglob("*.md")]
    if page.relative_to(ROOT).as_posix() not in GENERATED and not re.match(r"\d{3}-", page.name)
)
PARAGRAPH_WORDS, SENTENCE_WORDS, NUMBERS = 90, 40, 12

ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.|\[\^\w+\]:)\s+")
APART = re.compile(r"\s*(?:[#|]|!\[|```)")  # headings, tables, figures
WORD = re.compile(r"\w[\w'’.,%/+-]*")
END = re.compile(r"(?<=[.!?])[)\"”]?\s+(?=\W*[A-Z0-9`])")


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """(line of its beginning, text) of every paragraph, item and footnote outside of code and tables."""
    lines: list[str] = []
    begin, fenced = 0, False
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        code = fenced or (line.startswith("    ") and not lines)
        apart = code or not line.strip() or APART.match(line)
        if lines and (apart or ITEM.match(line)):
            yield begin, " ".join(lines)
            lines = []
        if not apart:
            begin = begin if lines else number
            lines.append(ITEM.sub("", line, count=1).strip())


def words(text: str) -> list[str]:
    return WORD.findall(re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", text)))


def faults(text: str) -> list[str]:
    """What is too long in a paragraph."""
    found = words(text)
    longest = max(len(words(sentence)) for sentence in END.split(text))
    numbers = sum(word[0].isdigit() for word in found)
    return [
        f"{what} of {count} {unit}"
        for what, count, unit, limit in (
            ("paragraph", len(found), "words", PARAGRAPH_WORDS),
            ("sentence", longest, "words", SENTENCE_WORDS),
            ("paragraph", numbers, "numbers", NUMBERS),
        )
        if count > limit
    ]


def sizes(page: str) -> str:
    """The row of a page in the table of `--sizes`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = [words(paragraph) for _, paragraph in paragraphs(text)]
    numbers = [sum(word[0].isdigit() for word in paragraph) for paragraph in found]
    return f"| {page} | {len(text.split()):,} | {max(map(len, found), default=0)} | {max(numbers, default=0)} |"


def main(arguments: list[str]) -> int:
    pages = [argument for argument in arguments if argument != "--sizes"]
    if len(pages) < len(arguments):
        rows = [sizes(page) for page in pages or PAGES]
        print("| page | words | longest paragraph | most numbers |", "|---|--:|--:|--:|", *rows, sep="\n")
        return 0
    failed = 0
    for page in pages or PAGES:
        for line, text in paragraphs((ROOT / page).read_text(encoding="utf-8")):
            if wrong := faults(text):
                failed += 1
                print(f"{page}:{line}: {', '.join(wrong)}: {text[:60]} ...")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
