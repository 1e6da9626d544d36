"""The XML of Word documents: elements, runs, and what styles mean."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from scaleformer.formats.markup import Markup, decode_xml

_WORD = re.compile(  # also in strict documents
    r"\{http://(?:schemas\.openxmlformats\.org/wordprocessingml/2006|purl\.oclc\.org/ooxml/wordprocessingml)/main\}"
)
_UNDERLINED = re.compile(r"<[\w.-]*:?u[\s/>]")
# Of Word (its built-in styles keep these names in every language), LibreOffice and pandoc. "Preformatted Text" and
# "Plain Text" are not code: a plain text file that becomes a Word document has them throughout.
_CODE = (
    *("code", "code block", "inline code", "source code", "source text", "verbatim"),
    *("html code", "html keyboard", "html preformatted", "html sample", "html typewriter", "macro", "macro text"),
)


@dataclass(frozen=True, eq=False)
class Run:
    """Start tag and properties as in the file; formatting: the visible ones."""

    tag: str
    properties: str
    formatting: str

    @cached_property
    def underlined(self) -> bool:
        """Whether its formatting underlines."""
        return _UNDERLINED.search(self.formatting) is not None

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

    def is_formatting(self, number: int) -> bool:
        """Whether a property of a run is formatting, and not its language, or the script for its fonts."""
        token, name = self.tokens[number], self.names[number]
        script = name == "rFonts" and all(key.endswith("}hint") for key in token.attributes)
        return token.kind == "start" and name not in ("lang", "noProof") and not script


def style_kinds(content: bytes, where: str) -> Iterator[tuple[str, str]]:
    """The styles that tell the kind of a block. Code is what has a name of code, and styles based on it."""
    markup = WordMarkup(decode_xml(content, where)[0], where)
    styles = {
        markup.value(number, "styleId"): [markup.value(markup.find(number, child)) for child in ("name", "basedOn")]
        for number, name in enumerate(markup.names)
        if name == "style"
    }
    names = {identity: name.lower().removesuffix(" char") for identity, (name, _) in styles.items()}
    code: dict[str, bool] = {}
    for identity in styles:
        chain: dict[str, bool] = {}  # the style and those that it is based on; a damaged file may have a circle
        place = identity
        while place in styles and place not in code and place not in chain:
            chain[place] = names[place] in _CODE
            place = styles[place][1]
        found = code.get(place, place in chain and any(chain.values()))
        for one, own in reversed(chain.items()):
            code[one] = found = own or found
        if code[identity]:
            yield identity, "code"
        elif names[identity].startswith(("heading", "title", "subtitle", "list")):
            yield identity, "item" if names[identity].startswith("list") else "title"
