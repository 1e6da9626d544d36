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
NOTO = dict.fromkeys(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC"), "CJK")  # script -> the font that has it

_told: set[str] = set()  # scripts already reported as missing


def choose_fonts(figure: Figure) -> None:
    """Let the texts of a figure use other fonts of this machine for characters that the usual font lacks.

    Characters without a font are boxes in the figure; a line on stderr reports them once per script.
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
    if missing:
        _tell(missing)


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


def _tell(missing: Set[str]) -> None:
    scripts: dict[str, str] = {}
    for character in sorted(missing):
        name = unicodedata.name(character, "unnamed").split()[0]
        script = NOTO.get(name, name.capitalize())
        scripts[script] = scripts.get(script, "") + character
    new = {script: found for script, found in scripts.items() if script not in _told}
    if new:
        _told.update(new)
        which = "; ".join(f"{script}: {found[:8]}{' ...' if len(found) > 8 else ''}" for script, found in new.items())
        print(
            f"no font on this machine has some characters of the figures ({which}): they are drawn as boxes. Install "
            "fonts that have them, such as Noto (Debian: fonts-noto-cjk for CJK, else fonts-noto), and draw again",
            file=sys.stderr,
        )
