"""Markdown: CommonMark with tables, strikethrough and its dialects. markdown-it-py finds the prose and its position.

Code, formulas, links, images (except their alternative text), HTML, attributes, notes' marks, front matter and block
marks stay as they are. A translation that would change the structure of its block is tried with its marks escaped, then
dropped.
"""

from __future__ import annotations

import importlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from scaleformer.formats.blocks import CODE, Block
from scaleformer.formats.html import FRONT_MATTER, html_blocks, html_edits
from scaleformer.formats.html_elements import find_elements
from scaleformer.formats.markdown_inline import Inline
from scaleformer.formats.restoring import Change
from scaleformer.formats.splicing import BEGIN, END, Edit, decode, placed, render, splice
from scaleformer.system.errors import DataError

_DEEPEST = 255  # levels; a list takes two
_FORMS = {"heading_open": "heading", "th_open": "cell", "td_open": "cell", "directive": "title"}
_UNREAD = {"html_block": "html", "fence": "code", "code_block": "code", "formula": "code", "module": "code"}
_KINDS = {"heading": "title", "underlined": "title", "title": "title", "cell": "cell"}
_LINE_END = re.compile(r"\r\n?|\n")
_TAG = re.compile(r"<[A-Za-z]")
_escape = partial(re.compile(r"[\\`*_\[\]<>~|$^{]|&(?=#?\w+;)|==|:(?=[\w+-]+:)").sub, r"\\\g<0>")
# what would turn the next characters into others
_escape_least = partial(re.compile(r"\\(?=[!-/:-@\[-`{-~]|$)|&(?=#?\w+;)").sub, r"\\\g<0>")
_BLOCK_MARK = re.compile(r"^(\d*)([-+#=:.)>~!?/])")
# Prose in blocks of code, as in MyST; and what looks like a mark, but of none of the dialects that are read.
_DIRECTIVE = re.compile(
    r"\{(?:admonition|attention|card|caution|danger|dropdown|error|figure|glossary|hint|important|margin|note|seealso"
    r"|sidebar|tab-item|tip|todo|topic|warning)\}"
)
_UNKNOWN = re.compile(r"(?=([!?:%+@/=$&;])\1)(\1+)[ \t]*[^\W\d_]|(\.\.) [\w-]+::")


class MarkdownFile:
    """The blocks of a Markdown file. Raises DataError if it is not text or is nested too deeply for the parser; left
    counts what stays as it is, or could be read wrongly, by reason."""

    def __init__(self, content: bytes, name: str) -> None:
        self.content, _ = decode(content, name)
        self.left: Counter[str] = Counter()
        self._holes = list(self._find(name))
        self.blocks = [block for block, _ in self._holes]

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The file with the changes of each block."""
        html = [place for place, (_, hole) in enumerate(self._holes) if hole is None]
        edits = html_edits(self.content, [self.blocks[i] for i in html], [changes[i] for i in html], self.left)
        inside: dict[Inline, list[tuple[list[Edit], bool]]] = defaultdict(list)
        for (block, hole), some in zip(self._holes, changes, strict=True):
            if hole is not None:
                inside[hole] += [(_ways(block, hole, change), change.given) for change in some]
        for inline, ways in inside.items():
            chosen = self._parser.choose(inline.content, inline.form, ways)
            edits += [inline.raw(edit, self.content) for edit in chosen]
            if lost := len(ways) - len(chosen):
                self.left["segments left as they are, since their translation would change the structure"] += lost
        return splice(self.content, edits).encode()

    def _find(self, name: str) -> Iterator[tuple[Block, Inline | None]]:
        front = FRONT_MATTER.match(self.content)
        skipped = front.end() if front else 0
        # Its lines become empty, so that later lines keep their numbers.
        text = "\n" * len(_LINE_END.findall(self.content[:skipped])) + re.sub(r"\A\ufeff", " ", self.content[skipped:])
        lines = [0, *(found.end() for found in _LINE_END.finditer(self.content))]
        lines += [len(self.content)] if lines[-1] < len(self.content) or len(lines) == 1 else []
        self._parser = _Parser(name, mdx=name.lower().endswith(".mdx"))
        tokens = self._parser.blocks(text, name)
        if not self._parser.mdx and any(token.type == "module" for token, *_ in tokens):
            self._parser = _Parser(name, mdx=True)
            tokens = self._parser.blocks(text, name)
        row = cursor = kept = 0  # kept: where an element ends that is not translated
        for token, form, kind in tokens:
            first, last = (lines[min(line, len(lines) - 1)] for line in token.map)
            if form == "code":
                if _DIRECTIVE.match(token.info):
                    self.left["directives in blocks of code, such as {note}, left as they are"] += 1
                yield CODE, None
            elif form == "html":
                first = max(first, kept)
                elements = find_elements(self.content)
                tags = (tag.start() for tag in _TAG.finditer(self.content, first, last))
                kept = max([kept, *(elements[tag][1] for tag in tags if elements.get(tag, (0, 0, False))[2])])
                yield from ((block, None) for block in html_blocks(self.content, name, first, last))
            elif first < kept:
                continue
            elif token.content.strip() and token.map[0] < len(lines) - 1:
                if form != "cell" or token.map[0] != row:
                    row, cursor = token.map[0], lines[token.map[0]]
                inline = Inline(token, form, self.content, lines, cursor)
                cursor = inline.places[-1]
                if inline.children[0].type == "text" and (mark := _UNKNOWN.match(inline.content)):
                    self.left[f"blocks that begin with the unknown mark {mark[2] or mark[3]}, read as prose"] += 1
                for block in inline.blocks(kind):
                    yield block, inline


def _ways(block: Block, inline: Inline, change: Change) -> list[Edit]:
    """A change as an edit of a heading, paragraph or cell, with fewer and with more characters escaped."""
    ways = []
    for escape in (_escape,) if inline.leads else (_escape_least, _escape):
        text = render(block, change, inline.line_end, escape, letters=True)
        if (inline.form != "cell" or inline.leads) and change.start == 0 and escape is _escape:
            text = _BLOCK_MARK.sub(r"\1\\\2", text)
        ways.append((*block.origin(change.start, change.stop), text))
    return ways


class _Parser:
    """A parser of CommonMark, tables and dialects. Raises DataError if a package is missing."""

    def __init__(self, name: str, mdx: bool) -> None:
        try:
            markdown = importlib.import_module("markdown_it")
            dialects = importlib.import_module("scaleformer.formats.markdown_dialects")
        except ImportError:
            message = f"{name}: reading Markdown needs another package: pip install 'scaleformer[documents]'"
            raise DataError(message) from None
        self.mdx = mdx
        self._markdown = markdown.MarkdownIt("commonmark", {"maxNesting": _DEEPEST}).enable(["table", "strikethrough"])
        self._markdown.core.ruler.disable("text_join")  # this rule loses the positions of literal marks
        dialects.add_rules(self._markdown, mdx)
        ruler, depth = self._markdown.inline.ruler, [0]
        for rule, function in zip(self._markdown.get_active_rules()["inline"], ruler.getRules(""), strict=True):
            ruler.at(rule, _placed(rule, function, depth))
        self._env: dict[str, Any] = {}

    def blocks(self, text: str, name: str) -> list[tuple[Any, str, str]]:
        """Tokens of blocks with content, their form (heading | underlined | title | paragraph | cell | html | code),
        and their kind as in `Block`. Raises DataError if they are nested too deeply."""
        tokens = None
        with suppress(RecursionError):
            tokens = self._markdown.parse(text, self._env)
        if tokens is None or any(token.level >= _DEEPEST - 1 for token in tokens):  # the parser drops deeper levels
            raise DataError(f"{name}: quotations, lists or brackets {_DEEPEST // 2} deep or more: nest them less")
        return list(self._named(tokens))

    def _named(self, tokens: Sequence[Any]) -> Iterator[tuple[Any, str, str]]:
        items, form = 0, "paragraph"
        for token in tokens:
            items += token.nesting * (token.tag in ("li", "dt", "dd"))
            if token.type in _UNREAD:
                yield token, _UNREAD[token.type], ""
            elif token.type == "inline":
                yield token, form, _KINDS.get(form, "item" if items else "paragraph")
            form = "underlined" if token.markup in ("=", "-") else _FORMS.get(token.type, "paragraph")

    def choose(self, content: str, form: str, edits: Sequence[tuple[Sequence[Edit], bool]]) -> list[Edit]:
        """The edits with which the structure of a block (its form as in `blocks`) stays the same: of each the first of
        its ways to write it with which it does, if there is one. All are tried at once, halves only if that fails.
        With an edit that is given (True) it may change as in the last of its ways."""
        chosen: list[Edit] = []
        wanted = self._structure(content, form) if edits else None
        for one in (ways for ways, given in edits if given):
            wanted = self._structure(splice(content, [*chosen, one[-1]]), form)
            chosen.append(next(way for way in one if wanted == self._structure(splice(content, [*chosen, way]), form)))
        waiting = [[ways for ways, given in edits if not given]]
        while waiting:
            some = waiting.pop()
            ways = list(zip(*some, strict=True))
            for tried in ways[: len(ways) if len(some) == 1 else 1]:
                if wanted is not None and wanted == self._structure(splice(content, [*chosen, *tried]), form):
                    chosen += tried
                    break
            else:
                half = len(some) // 2
                waiting += [some[half:], some[:half]] if half else []
        return chosen

    def _structure(self, text: str, form: str) -> list[str] | None:
        """What must stay; None if it is nested too deeply."""
        inline = form in ("heading", "title", "cell")
        read: Callable[..., Any] = self._markdown.parseInline if inline else self._markdown.parse
        shapes: list[str] = []
        with suppress(RecursionError):
            for token in read(
                f"{text}\n---" if form == "underlined" else text, {"references": self._env.get("references", {})}
            ):
                broken = form in ("heading", "title") and "\n" in token.content
                shapes.append(f"{token.type} {token.tag} {broken}")
                # the target language may order them differently
                shapes += sorted(
                    repr(
                        (child.type, child.markup, sorted(child.attrs.items()), child.content * (child.type != "image"))
                    )
                    for child in token.children or []
                    if child.type not in ("text", "text_special", "softbreak")
                )
            return shapes
        return None


def _placed(rule: str, function: Callable[[Any, bool], bool], depth: list[int]) -> Callable[[Any, bool], bool]:
    """The rule, extended to record in its tokens their positions in the text. depth: how many rules are in each other,
    of which Python's own limit, which others may change, would allow any number."""

    def placed(state: Any, silent: bool) -> bool:
        first, start = len(state.tokens), state.pos
        if depth[0] > _DEEPEST // 2:
            raise RecursionError
        depth[0] += 1
        try:
            done = function(state, silent)
        finally:
            depth[0] -= 1
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


class NotebookFile:
    """The blocks of the Markdown cells of a notebook of Jupyter. Raises DataError if it is none, as `MarkdownFile`."""

    def __init__(self, content: bytes, name: str) -> None:
        self._content, _ = decode(content, name)
        try:
            self._data, self._escaped = json.loads(self._content), "\\u" in self._content and content.isascii()
            self._cells = [cell for cell in self._data["cells"] if cell["cell_type"] == "markdown"]
            texts = ["".join(cell["source"]).encode() for cell in self._cells]
        except (LookupError, RecursionError, TypeError, ValueError):
            raise DataError(f"{name}: not a sound notebook: wanted JSON with cells, as of nbformat 4") from None
        self._pages = [MarkdownFile(text, name) for text in texts]
        self.blocks = [block for page in self._pages for block in page.blocks]
        self.left = sum((page.left for page in self._pages), Counter[str]())

    def write(self, changes: Sequence[Sequence[Change]]) -> bytes:
        """The notebook with the changes of each block; code, outputs and metadata stay."""
        rest, dumps = iter(changes), []
        pairs = [(p.content, p.write([next(rest) for _ in p.blocks]).decode()) for p in self._pages]
        for texts in ([old if old == new else f"{BEGIN}{old}{END}" for old, new in pairs], [new for _, new in pairs]):
            for cell, text in zip(self._cells, texts, strict=True):
                cell["source"] = text if isinstance(cell["source"], str) else text.splitlines(keepends=True)
            dumps.append(json.dumps(self._data, indent=1, ensure_ascii=self._escaped))
        self.left = sum((page.left for page in self._pages), Counter[str]())
        return placed(self._content, dumps[0], dumps[1], self.left).encode()
