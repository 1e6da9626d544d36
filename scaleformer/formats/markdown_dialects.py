"""What writers of Markdown use beyond CommonMark, as rules for markdown-it-py.

mdit-py-plugins has footnotes and definition lists. The rules here find what else is not prose: formulas, attributes,
wiki links, emoji, directives, admonitions and tabs, and the expressions and components of MDX. None reads further than
the next place where it could begin, so that the work is linear.
"""

from __future__ import annotations

import re
from typing import Any

from markdown_it.common.html_blocks import block_names
from markdown_it.common.utils import normalizeReference
from markdown_it.rules_block import html_block
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.footnote import footnote_plugin

from scaleformer.formats.html_elements import find_elements

_VALUE = r"(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s\"'{}]+)"
_ATTRIBUTE = rf"(?:(?:[#.][\w:-]+)+|[\w:-]+={_VALUE}|-)"
_ATTRIBUTES = rf"\{{:?[ \t]*{_ATTRIBUTE}(?:[ \t]+{_ATTRIBUTE})*[ \t]*\}}"  # {#id .class key="value"}
_KEPT = re.compile(
    r"(?<![\w$])\$\$(?!\$)(?:\\.|[^\\$]|\$(?!\$))+\$\$(?!\$)"
    # neither $5 and $6 nor $HOME/$USER
    r"|(?P<formula>(?<![\w$])\$(?![\s$])(?:\\.|[^\\$])+(?<!\s)\$(?![\w$]))"
    r"|\\\\\((?:(?!\\\\[()]).)+\\\\\)|\\\\\[(?:(?!\\\\[\[\]]).)+\\\\\]"
    rf"|{_ATTRIBUTES}"
    r"|(?<![\w:]):(?:[+-]1|(?=[\d_+-]*[a-z])[a-z\d_+-]+):(?![\w:`])"  # :smile:
    r"|(?<=[\w)])(?:\^[^\s^\[\]]{1,20}\^|~[^\s~]{1,20}~(?!~))",  # x^2^, H~2~O
    re.DOTALL,
)
_BEGINNING = re.compile(r"\[[ xX/~-]\](?=\s)|\[![A-Za-z][^\[\]\n]*\][+-]?(?=\s|$)")
_AFTER = re.compile(_ATTRIBUTES)
_WORDS = re.compile(r"[A-Za-z]{2,}\s+[A-Za-z]{2,}")  # $5 a month or 60$ is no formula
_TEX = re.compile(r"[\\^_={}]")
_WIKI = re.compile(r"(!?)\[\[([^\[\]|\n]+)(?:\|([^\[\]\n]*))?\]\](?![(\[])")
_SLUG = re.compile(r"\S*[-_/#.]\S*")
_MARKED = re.compile(r"(?<![\w=])==(?![\s=])((?:(?!==).)+)(?<![\s=])==(?![\w=])", re.DOTALL)
# Lines that are marks of blocks. Their titles are prose.
_DIRECTIVE = re.compile(
    r":{3,}(?:[ \t]*(?:\{[^{}]*\}|[\w-]+)(?:\[(?P<label>.*)\])?(?:\{[^{}]*\})?(?:[ \t]+(?P<title>\S.*))?)?"
    r"|::[\w-]+(?:\[(?P<leaf>.*)\])?(?:\{[^{}]*\})?"
    r"|/{3,}(?:[ \t]*[\w-]+(?:[ \t]*\|[ \t]*(?P<block>.+))?)?"
    r"|\*\[[^\[\]]+\]:[ \t]*(?P<long>.*)"  # *[HTML]: HyperText Markup Language
    r"|(?:(?:\{%[^{}]*%\}|\{\{[<%][^{}]*[>%]\}\})[ \t]*)+"  # tags of templates
    rf"|{_ATTRIBUTES}|\{{::?[^{{}}]*\}}|(?i:\[TOC\]|\[\[_?TOC_?\]\])"
)
_INDENTED = re.compile(
    r"(?:!!!|\?\?\?\+?)[ \t]?(?P<types>[\w-]+(?:[ \t]+[\w-]+){0,3})(?:[ \t]+\"(?P<title>.*)\")?"
    r"|===[!+]?[ \t]+\"(?P<tab>.*)\""
)
_FORMULA = re.compile(r"(\$\$)|(\\{1,2}\[)[ \t]*$|\\begin\{([A-Za-z]+\*?)\}")
_DEFINITION = re.compile(
    r"\[[^\^\[\]][^\[\]]*\]:[ \t]*(?:<[^<>]*>|(?=\S*(?:[/#]|\.\w))[^\s<]\S*)"
    r"(?:[ \t]+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?"
)
_MODULE = re.compile(
    r"import[ \t]+(?:[\w*{][^'\"]*[ \t]from[ \t]+)?['\"]|import[ \t]*\{[^}]*$"
    r"|export[ \t]+default\b|export[ \t]+(?:const|let|var|async|function|class)[ \t]+.*[=({]|export[ \t]*[{*]"
)
_BRACES = r"\{[^{}]*\}"
for _ in range(5):
    _BRACES = rf"\{{(?:[^{{}}]|{_BRACES})*\}}"
_COMPONENT = re.compile(rf"{_BRACES}|</?(?:[A-Za-z][\w.-]*(?:\s(?:[^<>{{}}\"']|\"[^\"]*\"|'[^']*'|{_BRACES})*)?)?/?>")
_BOUNDARY = re.compile(rf"</?(?:{'|'.join(block_names)}|br)(?:\s[^<>]*)?/?>", re.IGNORECASE)
_NONE = 0, 0, False
_HTML_ALONE = re.compile(r"<(?:!|(?:script|style|pre|textarea)\b)", re.IGNORECASE)


def add_rules(markdown: Any, mdx: bool) -> None:
    """Add the rules of all dialects to a parser."""
    footnote_plugin(markdown, inline=False, move_to_end=False, always_match_refs=True)
    deflist_plugin(markdown)
    inline, block = markdown.inline.ruler, markdown.block.ruler
    inline.before("escape", "beginning", _beginning)
    inline.before("escape", "kept", _kept)
    inline.before("escape", "html", _html)
    inline.after("image", "enclosed", _enclosed)
    ends_paragraphs = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    block.before("fence", "directive", _directive, ends_paragraphs)
    block.before("fence", "indented", _indented, ends_paragraphs)
    block.before("fence", "formula", _formula, ends_paragraphs)
    block.before("reference", "definition", _definition, {"alt": ["paragraph"]})
    block.before("fence", "module", _module)
    if mdx:  # has no indented code, and components in place of HTML
        inline.before("escape", "component", _component)
        block.at("html_block", _html_block, {"alt": ["paragraph", "reference", "blockquote"]})
        markdown.disable("code")


def _keep(state: Any, silent: bool, stop: int, kind: str = "kept") -> bool:
    if not silent:
        state.push(kind, "", 0).content = state.src[state.pos : stop]
    state.pos = stop
    return True


def _beginning(state: Any, silent: bool) -> bool:
    """The mark of a task, of an alert or a callout, which may have a title."""
    found = None if state.pos else _BEGINNING.match(state.src)
    return found is not None and _keep(state, silent, found.end(), "boundary")


def _kept(state: Any, silent: bool) -> bool:
    found = _KEPT.match(state.src, state.pos, state.posMax)
    if not found or (found["formula"] and _WORDS.search(found[0]) and not _TEX.search(found[0])):
        return False
    return _keep(state, silent, found.end())


def _enclosed(state: Any, silent: bool) -> bool:
    """Prose inside marks: ==marked==, [[Page|label]], ^[note], [text]{.class}. A page without a label is kept."""
    src, start = state.src, state.pos
    if found := _MARKED.match(src, start, state.posMax):
        return _enclose(state, silent, "mark", found.span(1), found.end())
    if found := _WIKI.match(src, start, state.posMax):
        embedded, page, label = found.groups()
        if normalizeReference(page) in state.env.get("references", {}):
            return False
        reversed_ = " " in page and _SLUG.fullmatch(label or "")  # some wikis have the page last
        if embedded or reversed_ or not label or "|" in label:
            return _keep(state, silent, found.end())
        return _enclose(state, silent, "a", found.span(3), found.end())
    note = src.startswith("^[", start)
    if note or src[start] == "[":
        stop = state.md.helpers.parseLinkLabel(state, start + note)
        after = _AFTER.match(src, stop + 1, state.posMax)
        if stop >= 0 and (note or after):
            return _enclose(state, silent, "span", (start + 1 + note, stop), after.end() if after else stop + 1)
    return False


def _enclose(state: Any, silent: bool, tag: str, inner: tuple[int, int], stop: int) -> bool:
    """Tokens for a pair of marks and what is between them."""
    start, end = state.pos, state.posMax
    if not silent:
        for kind, nesting, place in (("open", 1, (start, inner[0])), ("close", -1, (inner[1], stop))):
            token = state.push(f"{tag}_{kind}", tag, nesting)
            token.content, token.meta["place"] = state.src[slice(*place)], place
            if nesting == 1:
                state.pos, state.posMax = inner
                state.md.inline.tokenize(state)
    state.pos, state.posMax = stop, end
    return True


def _html(state: Any, silent: bool) -> bool:
    """An element of HTML that is not translated, as a whole, or a tag that ends a sentence."""
    _, stop, kept = find_elements(state.src).get(state.pos, _NONE) if state.src[state.pos] == "<" else _NONE
    if kept and stop <= state.posMax:
        return _keep(state, silent, stop)
    found = _BOUNDARY.match(state.src, state.pos, state.posMax)
    return found is not None and _keep(state, silent, found.end(), "boundary")


def _component(state: Any, silent: bool) -> bool:
    """An expression or a tag of MDX. A tag with a line of its own ends a sentence."""
    found = _COMPONENT.match(state.src, state.pos, state.posMax)
    if not found:
        return False
    first = not state.pending and (not state.tokens or state.tokens[-1].type in ("softbreak", "boundary"))
    alone = first and state.src[found.end() : found.end() + 1] in ("", "\n")
    kind = "kept" if found[0].startswith("{") else "boundary" if alone else "html_inline"
    return _keep(state, silent, found.end(), kind)


def _line(state: Any, number: int) -> str:
    """A line without its indentation and the marks of blocks around it."""
    line: str = state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]]
    return line.rstrip()


def _push_block(state: Any, kind: str, start: int, stop: int, title: re.Match[str] | None = None) -> None:
    """A token for the mark of a block, and one for its title."""
    state.push(kind, "", 0).map = [start, stop]
    state.line = stop
    if title and title.lastgroup and title[title.lastgroup].strip() and title.lastgroup != "types":
        token = state.push("inline", "", 0)
        token.content, token.map, token.children = title[title.lastgroup].strip(), [start, start + 1], []
        token.meta["after"] = len(title.string) - len(title.string[: title.end(title.lastgroup)].rstrip())


def _directive(state: Any, start: int, end: int, silent: bool) -> bool:
    found = None if state.is_code_block(start) else _DIRECTIVE.fullmatch(_line(state, start))
    if found and not silent:
        _push_block(state, "directive", start, start + 1, found)
    return found is not None


def _indented(state: Any, start: int, end: int, silent: bool) -> bool:
    """An admonition or a tab: `!!! note "Title"`, `??? note`, `=== "Tab"`, and the indented blocks below."""
    found = None if state.is_code_block(start) else _INDENTED.fullmatch(_line(state, start))
    if not found:
        return False
    stop = start + 1
    while stop < end and (state.isEmpty(stop) or state.sCount[stop] >= state.blkIndent + 4):
        stop += 1
    while state.isEmpty(stop - 1):
        stop -= 1
    if stop == start + 1 and " " in (found["types"] or "") and found["title"] is None:
        return False  # ??? no block, but a question
    if silent:
        return True
    _push_block(state, "directive", start, start + 1, found)
    before = state.parentType, state.lineMax, state.level
    state.parentType, state.lineMax, state.level = "admonition", stop, state.level + 1
    state.blkIndent += 4
    state.md.block.tokenize(state, start + 1, stop)
    state.blkIndent -= 4
    state.parentType, state.lineMax, state.level = before
    state.line = stop
    return True


def _formula(state: Any, start: int, end: int, silent: bool) -> bool:
    r"""A formula of several lines: $$ ... $$, \[ ... \], \begin{align} ... \end{align}."""
    found = None if state.is_code_block(start) else _FORMULA.match(line := _line(state, start))
    if not found:
        return False
    close = "$$" if found[1] else "\\]" if found[2] else f"\\end{{{found[3]}}}"
    ends = re.compile(rf".*{re.escape(close)}[ \t]*(?:\([^()]*\)|\{{[^{{}}]*\}})?[.,;]?")
    stop = start
    if not ends.fullmatch(line, found.end()):
        searched = state.env.setdefault("searched", {})  # up to which line nothing closes it
        if start < searched.get(close, 0):
            return False
        stop += 1
        while stop < end and not state.isEmpty(stop) and state.sCount[stop] >= state.blkIndent:
            if ends.fullmatch(_line(state, stop)):
                break
            stop += 1
        else:
            searched[close] = stop
            return False
    elif found[1]:
        return False  # part of a sentence
    if not silent:
        _push_block(state, "formula", start, stop + 1)
    return True


def _module(state: Any, start: int, end: int, silent: bool) -> bool:
    """Imports and exports of MDX, up to a blank line outside of brackets."""
    if silent or state.level or not _MODULE.match(_line(state, start)):
        return False
    stop, opened = start, 0
    while stop < end and (opened > 0 or not state.isEmpty(stop)):
        line = _line(state, stop)
        if opened > 0 and line and state.isEmpty(stop - 1) and not state.sCount[stop] and line[0] not in ")]}":
            break  # prose below a bracket that is never closed
        opened += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        stop += 1
    _push_block(state, "module", start, stop)
    return True


def _definition(state: Any, start: int, end: int, silent: bool) -> bool:
    """Ends a paragraph before the definition of a link, such as that of a footnote; the rule for them does the rest."""
    return silent and bool(_DEFINITION.fullmatch(_line(state, start)))


def _html_block(state: Any, start: int, end: int, silent: bool) -> bool:
    return bool(_HTML_ALONE.match(_line(state, start))) and html_block(state, start, end, silent)
