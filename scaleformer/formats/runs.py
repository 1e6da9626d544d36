"""The XML of office documents: paragraphs of runs, how runs look, and what styles mean."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import ClassVar, NamedTuple

from scaleformer.formats.markup import Markup

_OPEN_XML = r"http://(?:schemas\.openxmlformats\.org/{0}/2006|purl\.oclc\.org/ooxml/{0})/main"  # also strict
# Of Word (its built-in styles keep these names in every language), LibreOffice and pandoc. "Preformatted Text" and
# "Plain Text" are not code: a plain text file that becomes a Word document has them throughout.
_CODE = (
    *("code", "code block", "inline code", "source code", "source text", "verbatim"),
    *("html code", "html keyboard", "html preformatted", "html sample", "html typewriter", "macro", "macro text"),
    *("teletype", "user entry"),
)
_FIXED = re.compile(
    r"(?i)(?:mono|courier|consolas|console|menlo|monaco|typewriter|code(?: pro)?|inconsolata)(?: new)?$"
)
_DEEPEST = 16  # styles on which a style is based, one on the other
_MOST = 0.9  # share of a part in fonts of fixed width from which they are its prose, as of a script for the screen
# Properties of runs that a reader does not see, or does not take for a mark.
_UNSEEN = (
    *("lang", "noProof", "spacing", "w", "kern", "snapToGrid", "webHidden", "specVanish", "rPrChange"),
    *("ligatures", "numForm", "numSpacing", "stylisticSets", "cntxtAlts"),
    *("altLang", "bmk", "dirty", "err", "extLst", "normalizeH", "smtClean", "spc"),  # of DrawingML
    *("charset", "family", "scheme"),  # of cells
    *("country", "hyphenate", "language", "letter-kerning", "letter-spacing", "opacity", "paragraph-rsid", "rsid"),
    *("script", "use-window-font-color"),  # of OpenDocument, as those before
)
_COMPLEX = re.compile("(?:b|i|sz)Cs|cs|ea|.*-(?:asian|complex)")  # of scripts such as Arabic and Hindi
_SWITCHES = (
    *("b", "i", "caps", "smallCaps", "strike", "dstrike", "outline", "shadow", "emboss", "imprint", "vanish", "cap"),
    *("font-style", "font-variant", "font-weight"),
)
_ON, _OFF = ("1", "true", "on"), ("0", "false", "off", "none", "auto", "baseline", "noStrike", "normal", "transparent")
_OTHER_SCRIPTS = re.compile("[\u0590-\u1dff\u2e80-\U0010ffff]")  # letters neither Latin, Greek, nor Cyrillic


@dataclass(frozen=True, eq=False)
class Run:
    """What the file has before and after a run, properties included, and around a text in it; formatting: the visible
    properties."""

    begin: str
    end: str
    around: tuple[str, str]
    formatting: str = ""
    is_code: bool = False

    def written(self, pieces: Sequence[tuple[bool, str]]) -> str:
        """A run like this; pieces: texts, and elements (False)."""
        inner = ""
        for is_text, some in groupby(pieces, lambda piece: piece[0]):
            joined = "".join(piece for _, piece in some)
            inner += html.escape(joined, quote=False).join(self.around) if is_text else joined
        return f"{self.begin}{inner}{self.end}"


class Style(NamedTuple):
    """What a style says of a block or a run: its kind, such as "code", and whether its text has a look of its own."""

    kind: str = ""
    formatted: bool = False


class RunMarkup(Markup):
    """XML with paragraphs of runs, in the names of WordprocessingML: <p> has <r>, which has <rPr> and <t>.

    styles  of the document, by their names
    names   of the elements, at the numbers of the tokens that start them; "" for other tokens
    Of a dialect: its name spaces, also of strict documents; elements with other names; the attributes of <t>; what is
    written as a character, and an element elsewhere; where runs have their font; whether text needs no run.
    """

    spaces: ClassVar[str]
    renamed: ClassVar[Mapping[str, str]] = {}
    preserve: ClassVar[str] = ' xml:space="preserve"'
    controls: ClassVar[Mapping[str, str]] = {}
    font: ClassVar[tuple[str, str]] = ("rFonts", "ascii")
    mixed: ClassVar[bool] = False

    def __init__(self, content: bytes, name: str, styles: Mapping[str, Style] | None = None) -> None:
        super().__init__(content, name)
        self.styles = styles or {}
        own = re.compile(rf"\{{(?:{self.spaces})\}}(.+)")
        found = (own.match(token.name) if token.kind == "start" else None for token in self.tokens)
        self.names = [self.renamed.get(one[1], one[1]) if one else "" for one in found]

    def find(self, number: int | None, *path: str) -> int | None:
        """The first child of that name, its first child of the next name, and so on."""
        for name in path:
            number = None if number is None else next((n for n in self.children(number) if self.names[n] == name), None)
        return number

    def value(self, number: int | None, name: str = "val") -> str:
        """An attribute of an element; "" without it."""
        attributes = {} if number is None else self.tokens[number].attributes
        return next((value for key, value in attributes.items() if key.rpartition("}")[2] == name), "")

    def text(self, number: int) -> str:
        """The text in an element."""
        texts = (n for n in range(number, self.ends[number]) if self.names[n] == "t")
        return "".join(self.tokens[inner].text for n in texts for inner in self.children(n))

    def is_text(self, number: int) -> bool:
        """Whether a child of a paragraph or run is text in it."""
        return self.names[number] == "t" or (self.mixed and self.tokens[number].kind == "text")

    def kind(self, around: Sequence[int]) -> str:
        """The kind of a paragraph in these elements; "" if its text is not read."""
        return "cell" if any(self.names[number] == "tc" for number in around) else "paragraph"

    def style(self, number: int) -> Style:
        """The style of a paragraph."""
        return self.styles.get(self.value(self.find(number, "pPr", "pStyle")), Style())

    def named(self, number: int) -> tuple[str, str, str]:
        """Of a style: how paragraphs and runs call it, how people do, and the style that it is based on."""
        name, based_on = (self.value(self.find(number, child)) for child in ("name", "basedOn"))
        return self.value(number, "styleId"), name, based_on

    def run(self, number: int, outer: Run, *, bold: bool) -> Run:
        """A run, which stands in an outer one. bold: as in `look`."""
        properties = self.find(number, "rPr")
        style = self.styles.get(self.value(self.find(number, "rPr", "rStyle")), Style())
        begin = self.tag(number) + ("" if properties is None else self.raw(properties))
        look = self.look(properties, self.text(number), bold=bold)
        is_code = style.kind == "code" or number in self.fixed
        return Run(begin, self.tag(self.ends[number]), self.bare(number).around, look, is_code)

    def bare(self, number: int) -> Run:
        """A run for text that stands in an element without one."""
        prefix = re.sub(r"(?s)<([^\s:/>]+:|).*", r"\1", self.tag(number))
        return Run("", "", (f"<{prefix}t{self.preserve}>", f"</{prefix}t>"))

    def look(self, properties: int | None, text: str, *, bold: bool = True) -> str:
        """What a reader sees of the properties of a run, in one spelling.

        text    of the run: what concerns other scripts is not seen
        bold    whether its paragraph may be bold, italic, ..., so that a run that is not can be seen
        Styles without formatting are not seen either.
        """
        other = _OTHER_SCRIPTS.search(text)
        found = []
        for name, values, inner in () if properties is None else self._properties(properties):
            value = values.get("val", "")
            if name == "rFonts":
                values = {k: v for k, v in values.items() if k != "hint" and (other or k.startswith(("ascii", "hA")))}
            elif value in _ON:
                del values["val"]
            unseen = (
                name in _UNSEEN
                or (_COMPLEX.fullmatch(name) and not other)
                or (name == "rFonts" and not values)
                or (name == "shd" and value != "solid" and values.get("fill", "auto").lower() in ("auto", "ffffff"))
                or (name == "rStyle" and value in self.styles and not self.styles[value].formatted)
                or (value in _OFF and not (name in _SWITCHES and bold))
            )
            if not unseen:
                found.append(f"<{name} {values}>{inner}")
        return "".join(sorted(found))

    def _properties(self, number: int) -> Iterator[tuple[str, dict[str, str], str]]:
        """Each property of a run with its values and its content: attributes, as in DrawingML, and elements."""
        for key, value in self.tokens[number].attributes.items():
            yield key.rpartition("}")[2], {"val": value}, ""
        for child in self.children(number):
            token = self.tokens[child]
            values = {key.rpartition("}")[2]: value for key, value in sorted(token.attributes.items())}
            if token.kind == "start":
                yield token.local, values, self.raw(child) if self.ends[child] > child + 1 else ""

    @cached_property
    def fixed(self) -> set[int]:
        """The runs and paragraphs with a font of fixed width, set directly: code, unless it is nearly all of a part."""
        lengths = {
            number: sum(len(self.text(child)) for child in self.children(number) if self.is_text(child))
            for number, name in enumerate(self.names)
            if name in ("p", "r")
        }
        fixed = {number for number in lengths if _FIXED.search(self._font(number))}
        return fixed if sum(lengths[number] for number in fixed) < _MOST * sum(lengths.values()) else set()

    def _font(self, number: int) -> str:
        return self.value(self.find(number, "rPr", self.font[0]), self.font[1])


class WordMarkup(RunMarkup):
    """WordprocessingML."""

    spaces = _OPEN_XML.format("wordprocessingml")


class DrawingMarkup(RunMarkup):
    """DrawingML, as in slides, charts and diagrams, with the shapes of PresentationML."""

    spaces = _OPEN_XML.format("(?:drawingml|presentationml)")
    renamed: ClassVar = {"fld": "fldSimple", "endParaRPr": "paragraphEnd"}
    preserve = ""  # text has no attributes
    controls: ClassVar = {"\t": "tab", "\n": "br", "\v": "br", "_x000B_": "br"}
    font = ("latin", "typeface")

    def kind(self, around: Sequence[int]) -> str:
        """As in all; placeholders of layouts and masters are not seen on slides."""
        shape = next((number for number in reversed(around) if self.names[number] == "sp"), None)
        role = self.find(shape, "nvSpPr", "nvPr", "ph")
        if role is not None and self.tokens[self.root].local in ("sldLayout", "sldMaster"):
            return ""
        return "title" if "itle" in self.value(role, "type") else super().kind(around)


class SheetMarkup(RunMarkup):
    """SpreadsheetML: the texts of cells, each a paragraph, which needs no runs."""

    spaces = _OPEN_XML.format("spreadsheetml")
    renamed: ClassVar = {"c": "tc", "is": "p", "rPh": "phoneticPr", "si": "p", "sst": "tc"}
    controls: ClassVar = {"\t": "tab", "\n": "br", "_x000D_": "br"}
    font = ("rFont", "val")


def read_styles(markup: RunMarkup) -> dict[str, Style]:
    """The styles of a document. What a style is based on makes it code, a title or an item, too."""
    own: dict[str, tuple[list[str], str]] = {}  # its traits, and the style that it is based on
    for number in (number for number, name in enumerate(markup.names) if name == "style"):
        identity, name, based_on = markup.named(number)
        name = name.lower().removesuffix(" char")
        traits = ["code"] * (name in _CODE) + ["formatted"] * bool(markup.look(markup.find(number, "rPr"), ""))
        traits += ["title"] * name.startswith(("heading", "title", "subtitle")) + ["item"] * name.startswith("list")
        own[identity] = traits, based_on
    styles = {}
    for identity in own:
        found, place = set[str](), identity
        for _ in range(_DEEPEST):
            traits, place = own.get(place, ([], ""))
            found.update(traits)
        kind = next((kind for kind in ("code", "title", "item") if kind in found), "")
        styles[identity] = Style(kind, "formatted" in found)
    return styles
