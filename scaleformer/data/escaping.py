"""What a text is escaped with before sentencepiece reads it, so that it means neither a space nor a special piece."""

from __future__ import annotations

import re
from collections.abc import Iterable

from scaleformer.vocabulary import SPACE

# sentencepiece writes a space as U+2581 and would read a literal `<sep>` as the user symbol. Both are escaped with a
# character of the private use area, which is itself doubled; `unescape` is the exact inverse of `escape`.
ESCAPE = "\ue000"
ESCAPED = re.compile(f"{ESCAPE}|{SPACE}|<(?=sep[023]?>)")
_UNESCAPED = re.compile(f"{ESCAPE}({ESCAPE}|_|)")


def escape(text: str, found: re.Pattern[str] = ESCAPED) -> str:
    """Escape a text so that sentencepiece finds no separator and no U+2581 in it; `unescape` restores it.

    found: the pattern to escape, with tags from `escaped_with`.
    """

    def replacement(match: re.Match[str]) -> str:
        found = match.group()
        if found == ESCAPE:
            return ESCAPE * 2
        return f"{ESCAPE}_" if found == SPACE else f"<{ESCAPE}"

    return found.sub(replacement, text)


def escaped_with(tags: Iterable[str]) -> re.Pattern[str]:
    """The `ESCAPED` of a vocabulary with these tags: a text that contains one does not mean the tag."""
    names = "".join(f"|{re.escape(tag)}" for tag in tags)
    return re.compile(f"{ESCAPE}|{SPACE}|<(?=(?:sep[023]?{names})>)")


def unescape(text: str) -> str:
    """The inverse of `escape`."""
    return _UNESCAPED.sub(lambda match: {ESCAPE: ESCAPE, "_": SPACE, "": ""}[match.group(1)], text)
