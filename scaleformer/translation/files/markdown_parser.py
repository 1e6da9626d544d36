"""markdown-it-py with the places of all that is no prose in a line of prose."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scaleformer.data.align.blocks import DEEPEST
from scaleformer.data.errors import DataError
from scaleformer.translation.files.splicing import Edit, splice


@dataclass(frozen=True)
class Piece:
    """What stands in a line of prose and is none; kind: open | close | lone | break | character; content: of a
    character, or what is written where it is not what stands there."""

    start: int
    stop: int
    kind: str
    pair: int | None = None
    content: str = ""


class MarkdownParser:
    """markdown-it-py with the places of what it finds within a line of prose."""

    def __init__(self, name: str) -> None:
        try:
            markdown = importlib.import_module("markdown_it")
        except ImportError:
            message = f"{name}: reading Markdown needs another package: pip install 'scaleformer[documents]'"
            raise DataError(message) from None
        self._markdown = markdown.MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable(["table", "strikethrough"])
        self._markdown.core.ruler.disable("text_join")  # which loses the places of marks that mean nothing
        ruler = self._markdown.inline.ruler
        for rule, function in zip(self._markdown.get_active_rules()["inline"], ruler.getRules(""), strict=True):
            ruler.at(rule, _placed(rule, function))
        self._env: dict[str, Any] = {}

    def blocks(self, text: str, name: str) -> Iterator[tuple[Any, str]]:
        """Tokens of blocks with content, and what they are: heading | paragraph | cell | html."""
        tokens = self._markdown.parse(text, self._env)
        if any(token.level >= DEEPEST - 1 for token in tokens):  # what is deeper the parser leaves out
            raise DataError(f"{name}: quotations or lists {DEEPEST // 2} deep or more: nest them less")
        for before, token in zip([None, *tokens], tokens, strict=False):
            if token.type == "html_block":
                yield token, "html"
            elif token.type == "inline":
                kinds = {"heading_open": "heading", "th_open": "cell", "td_open": "cell"}
                kind = kinds.get(before.type, "paragraph") if before else "paragraph"
                yield token, "paragraph" if before and before.markup in ("=", "-") and kind == "heading" else kind

    def pieces(self, content: str, token: Any) -> list[Piece]:
        """All in a token that is no prose, in order."""
        shift = _shifts(token.content, content)
        found: list[Piece] = []
        opened: list[tuple[int, int]] = []  # numbers, and where what they enclose begins
        tags: list[tuple[str, int]] = []
        for number, child in enumerate(token.children):
            if "place" not in child.meta or child.type in ("text", "softbreak"):
                continue
            start, stop = child.meta["place"]
            start -= child.type == "strong_open"  # each of two marks is a token, of which one is made empty
            stop += child.type == "strong_close"
            start, stop = shift[start], shift[stop]
            if child.markup == "autolink":
                found += [Piece(start, stop, "lone")] if child.nesting == 1 else []
            elif child.type == "text_special" and len(child.content) == 1:
                found.append(Piece(start, stop, "character", content=child.content))
            elif child.type == "image" and content.startswith(child.content, start + 2) and not _marked(child):
                end = start + 2 + len(child.content)
                found += [Piece(start, start + 2, "open", number), Piece(end, stop, "close", number)]
            elif child.type == "html_inline":
                found.append(_tag(child.content, start, stop, number, tags))
            elif child.nesting == 1:
                opened.append((number, stop))
                found.append(Piece(start, stop, "open", number))
            elif child.nesting == -1:
                pair, first = opened.pop()
                short = child.type == "link_close" and content[start:stop] in ("]", "][]")
                # its text is its name, which stays
                name = f"][{content[first:start]}]" if short else ""
                found.append(Piece(start, stop, "close", pair, name))
            else:
                found.append(Piece(start, stop, "break" if child.type == "hardbreak" else "lone"))
        return found

    def is_alike(self, content: str, kind: str, edits: Sequence[Edit]) -> bool:
        """Whether the content of a block (of `blocks`' kinds) has the same structure with edits as without."""
        cell = kind == "cell"
        texts = [content, splice(content, edits)]
        if cell and re.search(r"(?<!\\)\|", texts[1]):
            return False
        return len({self._structure(text.replace(r"\|", "|") if cell else text, kind) for text in texts}) == 1

    def _structure(self, text: str, kind: str) -> str:
        read: Callable[..., Any] = self._markdown.parse if kind == "paragraph" else self._markdown.parseInline
        tokens = read(text, dict(self._env))
        shapes: list[tuple[Any, ...]] = []
        for token in tokens:
            shapes.append((token.type, token.tag, "\n" in token.content and kind == "heading"))
            # their order may be another one in the target language
            marks = [
                (child.type, child.markup, sorted(child.attrs.items()), child.content if child.type != "image" else "")
                for child in token.children or []
                if child.type not in ("text", "text_special", "softbreak")
            ]
            shapes += sorted(marks, key=repr)
        return repr(shapes)


def _shifts(shown: str, written: str) -> list[int]:
    """Where each place of what the parser has is in what is written: a cell's `|` has a backslash there."""
    if shown == written:
        return list(range(len(shown) + 1))
    shifts = [0]
    for character in shown:
        shifts.append(shifts[-1] + (2 if character == "|" else 1))
    return shifts


def _marked(image: Any) -> bool:
    return any(child.type not in ("text", "softbreak") for child in image.children or [])


def _tag(written: str, start: int, stop: int, number: int, open_tags: list[tuple[str, int]]) -> Piece:
    """A tag of HTML among prose; open_tags: names and numbers of those without an end so far."""
    tag = re.match(r"<(/?)([A-Za-z][\w-]*)", written)
    if tag is None or written.endswith("/>"):
        return Piece(start, stop, "lone")
    if not tag[1]:
        open_tags.append((tag[2], number))
        return Piece(start, stop, "open", number)
    while open_tags and tag[2] in [name for name, _ in open_tags]:
        name, pair = open_tags.pop()
        if name == tag[2]:
            return Piece(start, stop, "close", pair)
    return Piece(start, stop, "lone")


def _placed(rule: str, function: Callable[[Any, bool], bool]) -> Callable[[Any, bool], bool]:
    """The rule, which notes in the tokens that it makes where they stand in the text."""

    def placed(state: Any, silent: bool) -> bool:
        first, start = len(state.tokens), state.pos
        done = function(state, silent)
        if done and not silent and rule in ("emphasis", "strikethrough"):
            end = state.pos
            for token in reversed(state.tokens[first:]):
                if end > start:
                    token.meta = {"place": (end - len(token.content), end)}
                    end -= len(token.content)
        elif done and not silent:
            for token in state.tokens[first:]:
                if "place" not in token.meta and token.type != "text":
                    token.meta = {"place": (start, state.pos)}
                    if rule == "link":
                        label = state.md.helpers.parseLinkLabel(state, start, True)
                        token.meta = {"place": (start, start + 1) if token.nesting == 1 else (label, state.pos)}
        return done

    return placed
