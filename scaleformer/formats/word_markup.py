"""The XML of Word documents: elements, runs, and what styles mean."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from scaleformer.formats.markup import Markup, decode_xml

_WORD = re.compile(  # also in strict documents
    r"\{http://(?:schemas\.openxmlformats\.org/wordprocessingml/2006|purl\.oclc\.org/ooxml/wordprocessingml)/main\}"
)
# Of Word (its built-in styles keep these names in every language), LibreOffice and pandoc. "Preformatted Text" and
# "Plain Text" are not code: a plain text file that becomes a Word document has them throughout.
_CODE = (
    *("code", "code block", "inline code", "source code", "source text", "verbatim"),
    *("html code", "html keyboard", "html preformatted", "html sample", "html typewriter", "macro", "macro text"),
)
_FIXED = re.compile(
    r"(?i)(?:mono|courier|consolas|console|menlo|monaco|typewriter|code(?: pro)?|inconsolata)(?: new)?$"
)
_MOST = 0.9  # share of a part in fonts of fixed width from which they are its prose, as of a script for the screen
# Properties of runs that a reader does not see, or does not take for a mark.
_UNSEEN = (
    *("lang", "noProof", "spacing", "w", "kern", "snapToGrid", "webHidden", "specVanish", "rPrChange"),
    *("ligatures", "numForm", "numSpacing", "stylisticSets", "cntxtAlts"),
)
_COMPLEX = ("bCs", "iCs", "szCs")  # of scripts such as Arabic and Hindi
_SWITCHES = ("b", "i", "caps", "smallCaps", "strike", "dstrike", "outline", "shadow", "emboss", "imprint", "vanish")
_ON, _OFF = ("1", "true", "on"), ("0", "false", "off", "none", "auto", "baseline")
_OTHER_SCRIPTS = re.compile("[\u0590-\u1dff\u2e80-\U0010ffff]")  # letters neither Latin, Greek, nor Cyrillic


@dataclass(frozen=True, eq=False)
class Run:
    """Start tag and properties as in the file; formatting: the visible ones."""

    tag: str
    properties: str
    formatting: str

    @cached_property
    def underlined(self) -> bool:
        """Whether its formatting underlines."""
        return "<u " in self.formatting

    def written(self, pieces: Sequence[tuple[bool, str]]) -> str:
        """A run like this; pieces: texts, and elements (False)."""
        name = re.split(r"[\s>]", self.tag[1:], maxsplit=1)[0]
        element = f"{name.removesuffix('r')}t"
        inner = ""
        for is_text, some in groupby(pieces, lambda piece: piece[0]):
            joined = "".join(piece for _, piece in some)
            text = f'<{element} xml:space="preserve">{html.escape(joined, quote=False)}</{element}>'
            inner += text if is_text else joined
        return f"{self.tag}{self.properties}{inner}</{name}>"


class Style(NamedTuple):
    """What a style says of a block or a run: its kind, such as "code", and whether its text has a look of its own."""

    kind: str = ""
    formatted: bool = False


class WordMarkup(Markup):
    """WordprocessingML; names: of its elements, at the numbers of the tokens that start them; "" for other tokens."""

    def __init__(self, content: str, name: str) -> None:
        super().__init__(content, name)
        self.names = [token.local if token.kind == "start" and _WORD.match(token.name) else "" for token in self.tokens]

    def find(self, number: int, *path: str) -> int | None:
        """The first child of that name, its first child of the next name, and so on."""
        found: int | None = number
        for name in path:
            found = None if found is None else next((n for n in self.children(found) if self.names[n] == name), None)
        return found

    def value(self, number: int | None, name: str = "val") -> str:
        """An attribute of an element; "" without it."""
        attributes = {} if number is None else self.tokens[number].attributes
        return next((value for key, value in attributes.items() if key.endswith(f"}}{name}")), "")

    def text(self, number: int) -> str:
        """The text in an element."""
        texts = (n for n in range(number, self.ends[number]) if self.names[n] == "t")
        return "".join(self.tokens[inner].text for n in texts for inner in self.children(n))

    def look(self, properties: int | None, text: str, styles: Mapping[str, Style], *, bold: bool = True) -> str:
        """What a reader sees of the properties of a run, in one spelling.

        text    of the run: what concerns other scripts is not seen
        styles  of the document: those without formatting are not seen
        bold    whether its paragraph may be bold, italic, ..., so that a run that is not can be seen
        """
        other = _OTHER_SCRIPTS.search(text)
        found = []
        for number in () if properties is None else self.children(properties):
            token, name = self.tokens[number], self.tokens[number].local
            values = {key.rpartition("}")[2]: value for key, value in sorted(token.attributes.items())}
            value = values.get("val", "")
            if name == "rFonts":
                values = {k: v for k, v in values.items() if k != "hint" and (other or k.startswith(("ascii", "hA")))}
            elif value in _ON:
                del values["val"]
            unseen = (
                name in _UNSEEN
                or (name in _COMPLEX and not other)
                or (name == "rFonts" and not values)
                or (name == "shd" and value != "solid" and values.get("fill", "auto").lower() in ("auto", "ffffff"))
                or (name == "rStyle" and value in styles and not styles[value].formatted)
                or (value in _OFF and not (name in _SWITCHES and bold))
            )
            if token.kind == "start" and not unseen:
                found.append(f"<{name} {values}>{self.raw(number) if self.ends[number] > number + 1 else ''}")
        return "".join(sorted(found))

    @cached_property
    def fixed(self) -> set[int]:
        """The runs with a font of fixed width, set directly: code, unless nearly all of the part has one."""
        lengths = {number: len(self.text(number)) for number, name in enumerate(self.names) if name == "r"}
        fixed = {n for n in lengths if _FIXED.search(self.value(self.find(n, "rPr", "rFonts"), "ascii"))}
        return fixed if sum(lengths[number] for number in fixed) < _MOST * sum(lengths.values()) else set()


def read_styles(content: bytes, where: str) -> dict[str, Style]:
    """The styles of a document. Code is what has a name of code, and styles based on it."""
    markup = WordMarkup(decode_xml(content, where)[0], where)
    own: dict[str, tuple[str, frozenset[str], str]] = {}  # its name, its traits, and the style that it is based on
    for number in (number for number, name in enumerate(markup.names) if name == "style"):
        name, based_on = (markup.value(markup.find(number, child)) for child in ("name", "basedOn"))
        name = name.lower().removesuffix(" char")
        traits = ["code"] * (name in _CODE) + ["formatted"] * bool(markup.look(markup.find(number, "rPr"), "", {}))
        own[markup.value(number, "styleId")] = name, frozenset(traits), based_on
    known: dict[str, frozenset[str]] = {}
    for identity in own:
        chain: dict[str, frozenset[str]] = {}  # the style and those below it; a damaged file may have a circle
        place = identity
        while place in own and place not in known and place not in chain:
            chain[place], place = own[place][1:]
        found = known.get(place, frozenset().union(*chain.values()) if place in chain else frozenset())
        for one, some in reversed(chain.items()):
            known[one] = found = some | found
    styles = {}
    for identity, (name, *_) in own.items():
        kind = "item" if name.startswith("list") else ""
        kind = "title" if name.startswith(("heading", "title", "subtitle")) else kind
        styles[identity] = Style("code" if "code" in known[identity] else kind, "formatted" in known[identity])
    return styles
