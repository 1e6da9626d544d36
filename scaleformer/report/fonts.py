"""Fonts for the texts of figures: names and pieces may be in any script."""

from __future__ import annotations

import sys
import unicodedata
import warnings
from collections.abc import Set

from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, findSystemFonts, fontManager, get_font
from matplotlib.text import Text

INVISIBLE = ("Cc", "Cf", "Zs", "Zl", "Zp")

_told: set[str] = set()  # characters already reported as missing


def choose_fonts(figure: Figure) -> None:
    """Let the texts of a figure use other fonts of this machine for characters that the usual font lacks.

    Characters without a font are boxes in the figure; a line on stderr reports each once.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # from texts that do not have their fonts yet
        figure.draw_without_rendering()  # ticks get their texts here
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    wanted = {c for text in texts for c in text.get_text() if unicodedata.category(c) not in INVISIBLE}
    missing = _without(wanted, findfont(FontProperties()))
    if not missing:
        return
    families = list(rcParams["font.family"])
    for family, path in _others():
        left = _without(missing, path)
        if len(left) < len(missing):
            families.append(family)
            missing = left
        if not missing:
            break
    for text in texts:
        text.set_fontfamily(families)
    if new := "".join(sorted(missing - _told)):
        _told.update(new)
        some = new[:20] + " ..." * (len(new) > 20)
        print(
            f"no font on this machine has some characters of the figures ({some}): they are boxes. Install Noto "
            "(Debian: fonts-noto, for CJK fonts-noto-cjk), and draw again",
            file=sys.stderr,
        )


def _without(characters: Set[str], path: str) -> set[str]:
    """The characters that the font does not have."""
    font = get_font(path)
    return {c for c in characters if not font.get_char_index(ord(c))}


def _others() -> list[tuple[str, str]]:
    """The upright fonts of normal weight, also those newer than matplotlib's list: families and files."""
    known = {entry.fname for entry in fontManager.ttflist}
    for path in findSystemFonts():
        if path not in known:
            try:
                fontManager.addfont(path)
            except (OSError, RuntimeError):  # a format that matplotlib cannot read
                continue
    return [
        (entry.name, entry.fname)
        for entry in sorted(fontManager.ttflist, key=lambda entry: entry.name)
        if entry.style == "normal" and entry.weight in (400, "normal", "regular")
        and not entry.name.startswith("Last Resort")  # has a box for every character
    ]  # fmt: skip
