"""The commands that pages show in their blocks of code, and the output shown with them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

PROGRAMS = ("scaleformer", "python", "python3", "pip", "make", "torchrun", "srun", "curl", "echo", "cat", "cd", "git")
SHELLS = ("sh", "bash", "console", "shell", "text")
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*=\S*")


@dataclass
class Shown:
    """A command as a page shows it.

    line    of the page
    block   the first line of its block
    text    as it is typed, without its comment
    output  lines shown behind it; or in the next block of the same section, or the one after a paragraph that names it
    """

    line: int
    text: str
    block: int = 0
    output: list[str] = field(default_factory=list)

    @property
    def typed(self) -> str:
        """The text without its comment."""
        return re.sub(r"\s+#.*", "", self.text)

    @property
    def words(self) -> list[str]:
        """Those of the shell, variables before the program left out. Raises ValueError for open quotes."""
        words = shlex.split(self.text, comments=True)
        while words and VARIABLE.fullmatch(words[0]):
            words.pop(0)
        return words


def commands(page: Path) -> list[Shown]:
    """All commands of a page in their order."""
    found: list[Shown] = []
    last: Shown | None = None  # whose output the next block may be
    before = ""  # the paragraph before the block
    for token in MarkdownIt().enable("table").parse(page.read_text(encoding="utf-8")):
        if token.type == "heading_open":
            last = None
        if token.type == "inline":
            before = token.content
        if token.type not in ("fence", "code_block") or token.map is None:
            continue
        if token.type == "fence" and token.info.split()[:1] not in (
            [],
            ["sh"],
            ["bash"],
            ["console"],
            ["shell"],
            ["text"],
        ):
            last = None
            continue
        first = token.map[0] + 1 + (token.type == "fence")
        lines = token.content.rstrip("\n").split("\n")
        if any(_is_command(line) for line in lines):
            of_block = list(_of_block(lines, first))
            found += of_block
            last = of_block[-1]
        else:
            named = [shown for shown in found if f"`{shown.typed}`" in before]
            source = named[-1] if named else last
            if source is not None and not source.output:
                source.output = lines
            last = None
        before = ""
    return found


def _is_command(line: str) -> bool:
    words = line.removeprefix("$ ").split()
    while words and VARIABLE.fullmatch(words[0]):
        words.pop(0)
    return bool(words) and words[0].split("/")[-1] in PROGRAMS and not line.startswith(" ")


def _of_block(lines: list[str], first: int) -> Iterator[Shown]:
    """The commands of a block, continued lines joined; what is no command is output of the one before."""
    shown: Shown | None = None
    rest = iter(enumerate(lines, start=first))
    for number, line in rest:
        if _is_command(line):
            if shown is not None:
                yield shown
            text = line.removeprefix("$ ")
            while _is_open(text):
                following = next(rest, (0, ""))[1]
                text = f"{text[:-1]} {following.strip()}" if text.endswith("\\") else f"{text}\n{following}"
                if not following:
                    break
            shown = Shown(number, text, first)
        elif shown is not None and (shown.output or (line.strip() and not line.lstrip().startswith("#"))):
            shown.output.append(line)
    if shown is not None:
        yield shown


def _is_open(text: str) -> bool:
    if text.endswith("\\"):
        return True
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


def masked(line: str, corpus: frozenset[str] = frozenset()) -> str:
    """A line of output without what changes from one model and machine to the next: numbers, words of the embedded
    corpus, lines of tables and runs of spaces."""
    line = line.replace(", cut at the length limit", "")  # which a model of two steps always reaches
    line = re.sub(r"[━─┏┳┓┡╇┩└┴┘┃│\s]+", " ", line)
    words = ["~" if word.strip("'\"") in corpus else word for word in line.split()]
    line = re.sub(r"~( (~|[.,!?;:]+(?= |$)))*", "~", " ".join(words))
    return re.sub(r"[-+]?\d(?:[\d.,:_-]*\d)?(?:e[-+]\d+)?", "#", line).strip()


def missing(shown: list[str], output: list[str], corpus: frozenset[str] = frozenset()) -> list[str]:
    """Lines shown that the output does not have, in this order. `...` stands for any lines, or any part of one; so do
    words of the corpus, which are translations, and TIME, NAME and RUN."""
    rest = [masked(line, corpus) for line in output]
    lost = []
    for line in shown:
        wanted = masked(line, corpus)
        if wanted in ("", "...", "~"):
            continue
        parts = (re.escape(part.strip()) for part in re.split(r"\.\.\.|~|\bTIME\b|\bNAME\b|\bRUN\b", wanted))
        pattern = re.compile(".*".join(parts))
        place = next((n for n, text in enumerate(rest) if pattern.fullmatch(text)), None)
        if place is None:
            lost.append(line)
        else:
            rest = rest[place + 1 :]
    return lost
