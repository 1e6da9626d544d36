"""Which styles of a Word document mean code."""

from __future__ import annotations

from collections.abc import Iterable

# Of Word (its built-in styles keep these names in every language), LibreOffice and pandoc. "Preformatted Text" and
# "Plain Text" are not code: a plain text file that becomes a Word document has them throughout.
_CODE = (
    *("code", "code block", "inline code", "source code", "source text", "verbatim"),
    *("html code", "html keyboard", "html preformatted", "html sample", "html typewriter", "macro", "macro text"),
)


def code_styles(styles: Iterable[tuple[str, str, str | None]]) -> frozenset[str]:
    """The identities of styles whose name means code, and of those based on them.

    styles  for each style its identity, its name, and the identity of the style that it is based on
    """
    based = {identity: (name.lower().removesuffix(" char"), base) for identity, name, base in styles}
    found = set()
    for identity in based:
        place: str | None = identity
        seen: set[str] = set()  # a damaged file may have a circle
        while place in based and place not in seen:
            seen.add(place)
            name, place = based[place]
            if name in _CODE:
                found.add(identity)
    return frozenset(found)
