"""Messages of ICU: where the text stands in `{n, plural, one {# file} other {# files}}`.

Syntax: ICU, "Formatting Messages", with apostrophes as of ApostropheMode.DOUBLE_OPTIONAL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"(?P<quoted>''|'[{}#|](?:[^']|'')*(?:'|\Z))"
    r"|(?P<choice>\{\s*[\w.-]+\s*,\s*(?:plural|selectordinal|select|choice)\s*,(?:\s*offset:\s*\d+)?)|(?P<open>\{)|(?P<close>\})"
)
_SELECTOR = re.compile(r"\s*(?:=\d+|[\w-]+)\s*")


@dataclass
class _Level:
    """Something in braces: a message, a choice between messages or another argument; place: where what comes next
    begins in a choice, and in a message after a choice."""

    kind: str
    start: int
    place: int
    chooses: bool = False


def inner_messages(text: str) -> list[tuple[int, int]] | None:
    """Where the messages in a plural or select stand, at any depth; all of a text without one.

    None if there is text beside a choice, which would need another order of words, or if braces are not balanced.
    """
    levels = [_Level("message", 0, 0)]
    found: list[tuple[int, int]] = []
    if not any(token["choice"] for token in _TOKEN.finditer(text)):
        return [(0, len(text))]
    for token in _TOKEN.finditer(text):
        top, between = levels[-1], text[levels[-1].place : token.start()]
        if token["choice"]:
            if top.kind != "message" or _has_letters(between):
                return None
            top.chooses = True
            levels.append(_Level("choice", token.start(), token.end()))
        elif token["open"]:
            if top.kind == "choice" and not _SELECTOR.fullmatch(between):
                return None
            kind = "message" if top.kind == "choice" else "argument"
            levels.append(_Level(kind, token.end(), token.end()))
        elif token["close"]:
            levels.pop()
            if not levels or (top.kind == "choice" and between.strip()) or (top.chooses and _has_letters(between)):
                return None
            if top.kind == "message" and not top.chooses:
                found.append((top.start, token.start()))
            if top.kind != "argument":
                levels[-1].place = token.end()
    return found if len(levels) == 1 and not _has_letters(text[levels[0].place :]) else None


def _has_letters(text: str) -> bool:
    return any(map(str.isalpha, text))
