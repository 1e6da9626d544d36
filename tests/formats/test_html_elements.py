"""Which elements are open: against html5lib, the parser of the standard, on pages that leave out end tags."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import html5lib
import pytest

from scaleformer.formats.html import HtmlFile
from scaleformer.formats.segments import split_block

KINDS = {
    **dict.fromkeys(("h1", "h2", "title", "caption"), "title"),
    **dict.fromkeys(("li", "dt", "dd", "option"), "item"),
    **dict.fromkeys(("td", "th"), "cell"),
}


def translated(page: str) -> dict[str, str]:
    """The words of a page that are translated, with the kinds of their blocks."""
    found = {}
    for block in HtmlFile(page.encode(), "a.html").blocks:
        for segment in split_block(block, "en", "paragraph"):
            found.update(dict.fromkeys(re.findall(r"w\d+", segment.text), block.kind))
    return found


def standard(page: str) -> dict[str, str]:
    """The same from the tree of html5lib."""
    found: dict[str, str] = {}

    def visit(node: object, kind: str, kept: bool) -> None:
        tag = str(node.tag)  # type: ignore[attr-defined]
        kind = KINDS.get(tag, kind)
        kept = kept or node.get("class") == "notranslate" or tag in ("rt", "rp")  # type: ignore[attr-defined]
        for text, shut in ((node.text, kept), *((child, None) for child in node)):  # type: ignore
            if shut is None:
                visit(text, kind, kept)
                for word in re.findall(r"w\d+", text.tail or "") if not kept else ():
                    found[word] = kind
            else:
                for word in re.findall(r"w\d+", text or "") if not kept else ():
                    found[word] = kind

    visit(html5lib.parse(page, namespaceHTMLElements=False), "paragraph", False)
    return found


class Writer:
    """Writes pages that leave out the end tags that may be left out, and mark some elements as not to be translated."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.words = 0

    def element(self, tag: str, *content: str, optional: bool = False) -> str:
        mark = self.random.choice((' class="notranslate"', " class=notranslate")) if self.random.random() < 0.15 else ""
        left_out = optional and self.random.random() < 0.7
        return f"<{tag}{mark}>{''.join(content)}" + ("" if left_out else f"</{tag}>")

    def some(self, make: Callable[[], str], most: int = 3) -> str:
        return "".join(make() for _ in range(self.random.randint(1, most)))

    def text(self, depth: int = 2) -> str:
        self.words += 1
        word = f" w{self.words} "
        inner = self.text(depth - 1) if depth else ""
        return self.random.choice((
            word, word, f"{word}<!-- x --->", f"{word}<br>",
            word + self.element(self.random.choice(("b", "span", "em")), inner),
            word + self.element("ruby", f"b{word}", self.element("rp", "(", optional=True),
                                self.element("rt", inner, optional=True), self.element("rp", ")", optional=True)),
        ))  # fmt: skip

    def paragraph(self) -> str:
        return self.element("p", self.text(), optional=True)

    def item(self, depth: int, tag: str = "li") -> str:
        return self.element(tag, self.flow(depth), optional=True)

    def cell(self, depth: int) -> str:
        return self.element(self.random.choice(("td", "th")), self.flow(depth), optional=True)

    def row(self, depth: int) -> str:
        return self.element("tr", self.some(lambda: self.cell(depth)), optional=True)

    def options(self) -> str:
        option = lambda: self.element("option", self.text(0), optional=True)  # noqa: E731
        return self.random.choice((option, lambda: self.element("optgroup", self.some(option), optional=True)))()

    def flow(self, depth: int) -> str:
        if not depth:
            return self.random.choice((self.text, self.paragraph))()
        below = depth - 1
        return self.some(lambda: self.random.choice((
            self.text, self.paragraph, self.paragraph,
            lambda: self.element(self.random.choice(("ul", "ol")), self.some(lambda: self.item(below))),
            lambda: self.element("dl", self.some(lambda: self.item(below, self.random.choice(("dt", "dd"))))),
            lambda: self.element(self.random.choice(("div", "section", "h1", "h2", "blockquote")), self.flow(below)),
            lambda: self.element("select", self.some(self.options)),
            lambda: self.element("button", self.text(), self.paragraph()),
            lambda: self.element(
                "table", self.element("caption", self.text(), optional=True),
                self.random.choice(("", "<colgroup><col>", "<colgroup><col></colgroup>")),
                self.some(lambda: self.element(self.random.choice(("thead", "tbody", "tfoot")),
                                               self.some(lambda: self.row(below)), optional=True)),
            ),
        ))())  # fmt: skip


@pytest.mark.parametrize("seed", range(300))
def test_what_is_translated_and_its_kind_against_the_standard(seed: int) -> None:
    writer = Writer(seed)
    page = f"<!doctype html>{'<head><title>w0</title>' * (seed % 2)}{writer.flow(3)}"
    assert translated(page) == standard(page)
