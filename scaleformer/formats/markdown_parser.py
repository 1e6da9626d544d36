"""markdown-it-py with the positions of all inline elements that are not prose."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scaleformer.formats.blocks import DEEPEST
from scaleformer.formats.splicing import Edit, splice
from scaleformer.system.errors import DataError


@dataclass(frozen=True)
class Piece:
    """An inline element that is not prose; kind: open | close | lone | break | character; content: the character, or
    the replacement text if it differs from the file."""

    start: int
    stop: int
    kind: str
    pair: int | None = None
    content: str = ""


class MarkdownParser:
    """markdown-it-py with the positions of inline elements."""

    def __init__(self, name: str) -> None:
        try:
            markdown = importlib.import_module("markdown_it")
        except ImportError:
            message = f"{name}: reading Markdown needs another package: pip install 'scaleformer[documents]'"
            raise DataError(message) from None
        self._markdown = markdown.MarkdownIt("commonmark", {"maxNesting": DEEPEST}).enable(["table", "strikethrough"])
        self._markdown.core.ruler.disable("text_join")  # this rule loses the positions of literal marks
        ruler = self._markdown.inline.ruler
        for rule, function in zip(self._markdown.get_active_rules()["inline"], ruler.getRules(""), strict=True):
            ruler.at(rule, _placed(rule, function))
        self._env: dict[str, Any] = {}

    def blocks(self, text: str, name: str) -> Iterator[tuple[Any, str]]:
        """Tokens of blocks with content, and their kind: heading | underlined | paragraph | cell | html."""
        tokens = self._markdown.parse(text, self._env)
        if any(token.level >= DEEPEST - 1 for token in tokens):  # the parser drops deeper levels
            raise DataError(f"{name}: quotations or lists {DEEPEST // 2} deep or more: nest them less")
        for before, token in zip([None, *tokens], tokens, strict=False):
            if token.type == "html_block":
                yield token, "html"
            elif token.type == "inline":
                kinds = {"heading_open": "heading", "th_open": "cell", "td_open": "cell"}
                kind = kinds.get(before.type, "paragraph") if before else "paragraph"
                yield token, "underlined" if before and before.markup in ("=", "-") and kind == "heading" else kind

    def pieces(self, content: str, token: Any) -> list[Piece]:
        """All inline elements of a token that are not prose, in order."""
        shift = _shifts(token.content, content)
        found: list[Piece] = []
        opened: list[tuple[int, int]] = []  # numbers, and where their content begins
        tags: list[tuple[str, int]] = []
        for number, child in enumerate(token.children):
            if "place" not in child.meta or child.type in ("text", "softbreak"):
                continue
            start, stop = child.meta["place"]
            start -= child.type == "strong_open"  # a double mark has two tokens, one of them emptied
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
                # its text is its name, which must not change
                name = f"][{' '.join(content[first:start].split())}]" if short else ""
                found.append(Piece(start, stop, "close", pair, name))
            else:
                found.append(Piece(start, stop, "break" if child.type == "hardbreak" else "lone"))
        return found

    def is_alike(self, content: str, kind: str, edits: Sequence[Edit]) -> bool:
        """Whether the edits leave the structure of a block unchanged (kinds as in `blocks`)."""
        cell = kind == "cell"
        texts = [content, splice(content, edits)]
        if cell and re.search(r"(?<!\\)\|", texts[1]):
            return False
        return len({self._structure(text.replace(r"\|", "|") if cell else text, kind) for text in texts}) == 1

    def _structure(self, text: str, kind: str) -> str:
        inline = kind in ("heading", "cell")
        read: Callable[..., Any] = self._markdown.parseInline if inline else self._markdown.parse
        tokens = read(f"{text}\n---" if kind == "underlined" else text, dict(self._env))
        shapes: list[tuple[Any, ...]] = []
        for token in tokens:
            shapes.append((token.type, token.tag, "\n" in token.content and kind == "heading"))
            # the target language may order them differently
            marks = [
                (child.type, child.markup, sorted(child.attrs.items()), child.content if child.type != "image" else "")
                for child in token.children or []
                if child.type not in ("text", "text_special", "softbreak")
            ]
            shapes += sorted(marks, key=repr)
        return repr(shapes)


def _shifts(shown: str, written: str) -> list[int]:
    """Map positions in the parsed text to the file, where `|` in a cell has a backslash."""
    if shown == written:
        return list(range(len(shown) + 1))
    shifts = [0]
    for character in shown:
        shifts.append(shifts[-1] + (2 if character == "|" else 1))
    return shifts


def _marked(image: Any) -> bool:
    return any(child.type not in ("text", "softbreak") for child in image.children or [])


def _tag(written: str, start: int, stop: int, number: int, open_tags: list[tuple[str, int]]) -> Piece:
    """An HTML tag within prose; open_tags: names and numbers of tags not yet closed."""
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
    """The rule, extended to record in its tokens their positions in the text."""

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
