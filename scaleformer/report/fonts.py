"""Fonts for what a figure says: names and pieces of text may be of any script."""

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
NOTO = dict.fromkeys(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC"), "CJK")  # in whose font a script is

_told: set[str] = set()  # scripts that were told to be missing


def choose_fonts(figure: Figure) -> None:
    """Let the texts of a figure take what the usual font lacks from other fonts of this machine.

    What no font has is a box in the figure; a line on stderr says so, once for each script.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # of the texts before they have their fonts
        figure.draw_without_rendering()  # ticks have their texts only then
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
    """The upright fonts of normal weight, those installed since matplotlib listed them too: families and files."""
    known = {entry.fname for entry in fontManager.ttflist}
    for path in findSystemFonts():
        if path not in known:
            try:
                fontManager.addfont(path)
            except (OSError, RuntimeError):  # of a kind that matplotlib does not read
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
            f"no font of this machine has some characters of the figures ({which}): boxes stand there. Install fonts "
            "that have them, such as Noto (Debian: fonts-noto-cjk for CJK, else fonts-noto), and draw again",
            file=sys.stderr,
        )
