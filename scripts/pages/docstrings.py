"""Docstrings of this project as Markdown: their columns of names and explanations become lists."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROW = re.compile(r"(\S(?:.*?\S)?) {2,}(\S.*)")
NAME = re.compile(r"\w+,?")  # alone in its line, or as wide as the column


def as_markdown(text: str) -> str:
    """Each line of a column `name  explanation`, with the lines that continue it, as an item of a list.

    What is indented by four spaces stays as it is: an equation, which Markdown takes for code.
    """
    return "\n\n".join(_part(part) for part in re.split(r"\n\s*\n", text.strip("\n")))


def _part(part: str) -> str:
    lines = part.splitlines()
    rows = [number for number, line in enumerate(lines) if ROW.fullmatch(line)]
    if not rows:
        return part
    begin = rows[0]
    column = ROW.fullmatch(lines[begin]).start(2)  # type: ignore[union-attr]
    items: list[list[str]] = []  # name and text
    end = begin
    while end < len(lines):
        name, text = _split(lines[end], column)
        if name is None:  # prose behind the column
            break
        if name and not (items and items[-1][0].endswith(",")):
            items.append([name, text])
        elif items:
            items[-1] = [f"{items[-1][0]} {name}".strip(), f"{items[-1][1]} {text}".strip()]
        end += 1
    made = [f"* `{name}`: {text}" for name, text in items]
    return "\n\n".join("\n".join(some) for some in (lines[:begin], made, lines[end:]) if some)


def _split(line: str, column: int) -> tuple[str | None, str]:
    """Name and text of a line of the list; "" and the text where it continues one, None where it is none of it."""
    if line.startswith(" "):
        return "", line.strip()
    if found := ROW.fullmatch(line):
        return found[1], found[2]
    if NAME.fullmatch(line):
        return line, ""
    name = line[:column].rstrip()
    return (name, line[column:]) if NAME.fullmatch(name) and name not in ("Raises", "Returns") else (None, "")


class Columns(griffe.Extension):
    """What mkdocstrings calls for every object that it reads."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
