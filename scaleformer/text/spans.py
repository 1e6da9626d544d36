"""Finds spans of text that are not prose and stay unchanged: code, links, markup, placeholders, versions, paths.

Every pattern either starts where no other match of it can, or reads no further than the next place where one could. So
the time is linear in the text, whatever its content.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from scaleformer.text.placeholders import ICU, OF_MESSAGES, STYLES
from scaleformer.vocabulary import PLACEHOLDERS

_ROLE = r"(?<![\w:])(?::[A-Za-z][\w+.-]{0,40}){1,3}:`"
_QUOTED = r"\"[^\"<]*\"|'[^'<]*'"
_ATTRIBUTE = rf"\s+(?:[\w:.@-]+\s*=\s*(?:{_QUOTED}|[^\s\"'<>=`]+)|checked|controls|defer|disabled|hidden|open|required)"
_PRE_RELEASE = r"(?:[-.]?(?:alpha|beta|dev|post|rc|a|b)\.?\d+)?(?!\w|\.\d)"
_PART = r"[\w.@+~-]"  # characters of a name in a path
_SPANS = (
    rf"{_ROLE}[^`]+`",  # :ref:`x`
    r"(?<!`)(?P<ticks>`{1,3})(?!`).+?(?<!`)(?P=ticks)(?!`)",  # `x`, ``x``
    r"<(?:(?:https?|ftp|ssh|git|file)://|mailto:)[^\s<>]*>|<[\w.+-]+@[\w-]+(?:\.[\w-]+)+>",
    r"(?<!\w)(?:(?:https?|ftp|ssh|git|file)://|mailto:|www\.)(?:[^\s<>\"`()\[\]{}|]|\([^\s<>\"`()]*\))+(?<![.,;:!?*'])",
    r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",  # a@b.org
    rf"<[A-Za-z][\w:.-]*(?:{_ATTRIBUTE})*\s*/?>|</[A-Za-z][\w:.-]*\s*>|<!--[^<]*?-->",
    *STYLES.values(),
    # 3.12.1, but neither 1.234.567 nor 24.12.2024
    r"(?<![\w.,])(?!(?:\d{1,3}(?:\.\d{3})+|\d\d?\.\d\d?\.\d{4})(?!\w|\.\d))\d+(?:\.\d+){2,}" + _PRE_RELEASE,
    r"(?<![\w.])[vV]\d+(?:\.\d+)+" + _PRE_RELEASE,
    rf"(?<![\w.~/)\]>-])(?:~|\.\.?)?/[A-Za-z_.~](?:(?:{_PART}|/)*[\w/~-])?",  # /usr/lib, ~/x, ./x
    rf"(?<![\w.@+~/-])(?:{_PART}+/)+{_PART}*\.[A-Za-z]\w{{0,7}}(?!\w)",  # src/main.py, but not and/or
    rf"(?<![\w.@+~/-])(?:{_PART}+/){{2,}}(?!\w)",  # src/data/
    r"\[\^[^\[\]\s]{1,80}\](?!\()",  # [^1]
    "|".join(PLACEHOLDERS),
)
# Words that may begin a sentence before a number that is not a version, and currencies.
_NO_NAME = (
    "A|About|Above|After|Almost|An|And|Are|Around|As|At|Before|Below|Between|But|By|For|From|If|In|Is|It|Nearly|Of|On|"
    "Only|Or|Over|Roughly|Some|Than|That|The|These|This|To|Under|Up|With|CHF|EUR|GBP|USD"
)
_VERSION = "(?i:versi[oó]n(?:s|e|i|en|es)?|vers[ãõ](?:o|es)|versie|releases?)"
#: The complete pattern. A change of it invalidates cached masked documents.
PATTERN = "|".join(
    (
        r"(?P<escaped>\\[`*_\[\]<{])",
        # A role or link of reST with a title, which is prose.
        rf"(?P<before>{_ROLE}|`(?=[^`<>]*<[^`<>]*>`_))[^`<>]*[^`<>\s](?P<after>\s*<[^`<>]*>`_{{0,2}})",
        rf"(?P<span>{'|'.join(_SPANS)})",
        # Two numbers are a version only after a name.
        rf"(?<!\w)(?:(?!(?:{_NO_NAME})\b)[A-Z][\w+#.]{{0,30}}[\w+#]|{_VERSION})[\s:=<>~]{{1,4}}(?P<number>\d+\.\d+{_PRE_RELEASE})",
        r"(?P<open>!?\[)",
        rf"(?P<link>\]\((?:<[^<>]*>|(?:[^\s()<>]|\([^\s()<>]*\))*)(?:\s+(?:{_QUOTED}))?\s*\))",
        r"(?P<reference>\]\[[^\[\]]{0,200}\])",
        r"(?P<close>\])",
        r"(?P<mark>(?<!\*)\*{1,3}(?!\*)|(?<!_)_{1,2}(?!_))",
    )
)
_TOKENS = {
    "prose": re.compile(PATTERN, re.DOTALL),
    "message": re.compile(f"(?P<own>{OF_MESSAGES})|{PATTERN}", re.DOTALL),
    "icu": re.compile(f"(?P<own>{ICU}|{OF_MESSAGES})|{PATTERN}", re.DOTALL),
}
_QUOTATION = re.compile(
    '\u201c[^\u201c\u201d]*\u201d|\u201e[^\u201c-\u201e]*[\u201c\u201d]|\u00ab[^\u00ab\u00bb]*\u00bb|"[^"]*"'
)
Style = Literal["prose", "message", "icu"]

Place = tuple[int, int]  # start, stop


def find_spans(text: str, style: Style = "prose") -> list[Place]:
    """(start, stop) of every span that is not prose, in order, without overlaps; in linear time.

    Inline code, URLs, e-mail addresses, the two ends of a Markdown link, footnote marks, pairs of `*`, `_`, `**` or
    `__`, reST roles (if titled, only their ends), tags, placeholders (of `STYLES`, a literal ⟨1⟩ to ⟨9⟩), versions (two
    numbers only after a name or the word version) and paths with slashes. style: whether the text is a "message" of a
    program, which has placeholders like `__name__`, too, or one of "icu", which has `#`.
    """
    spans: list[Place] = []
    brackets: list[Place] = []
    marks: dict[str, Place] = {}  # open marks
    for match in _TOKENS[style].finditer(text):
        kind = match.lastgroup
        assert kind is not None
        place = match.span(kind)
        if kind == "after":
            spans += [match.span("before"), place]
        elif kind in ("span", "number", "own"):
            spans.append(place)
        elif kind == "open":
            brackets.append(place)
        elif kind in ("link", "reference", "close") and brackets:
            opening = brackets.pop()
            of_word = re.match(r"[\w)\]]", text[max(opening[0] - 1, 0) : opening[0]])  # x[i][j]
            spans += [opening, place] if kind == "link" or (kind == "reference" and not of_word) else []
        elif kind == "mark":
            mark = match.group()
            before, after = text[max(place[0] - 1, 0) : place[0]], text[place[1] : place[1] + 1]
            if mark in marks and _holds(mark, before, after):
                spans += [marks.pop(mark), place]
            elif _holds(mark, after, before):
                marks[mark] = place
    return sorted(spans)


def _holds(mark: str, inside: str, outside: str) -> bool:
    """Whether a mark may stand between these characters, "" at an end of the text."""
    within = mark in ("*", "_", "__") and (outside.isalnum() or outside in ("_", "`"))  # 2*3, snake_case, `name`_
    return bool(inside.strip()) and not within


def apart(text: str) -> list[Place]:
    """The spans of a text (`find_spans`), and its quotations in double marks."""
    return find_spans(text) + [match.span() for match in _QUOTATION.finditer(text)]


def span_runs(text: str) -> list[list[Place]]:
    """The spans of a text (`find_spans`), those that follow each other together."""
    runs: list[list[Place]] = []
    for place in find_spans(text):
        if not runs or runs[-1][-1][1] < place[0]:
            runs.append([])
        runs[-1].append(place)
    return runs


def around(run: Sequence[Place]) -> Place:
    """The place of a whole run."""
    return run[0][0], run[-1][1]


def mask(text: str, named: Iterable[tuple[Place, str]]) -> str:
    """The text with each of these places, in order, replaced by its placeholder."""
    parts, end = [], 0
    for (start, stop), placeholder in named:
        parts += [text[end:start], placeholder]
        end = stop
    return "".join([*parts, text[end:]])


def mask_pair(source: str, target: str) -> tuple[str, str]:
    """Replace spans that occur equally often in both texts by placeholders, numbered in source order.

    The n-th occurrence of a span gets the same placeholder in source and target. Spans that follow each other get one
    together where they do so equally often in both texts, as in the files that are translated. At most nine are masked.
    If either text contains a literal placeholder, both are returned unchanged.
    """
    if any(placeholder in text for text in (source, target) for placeholder in PLACEHOLDERS):
        return source, target
    both = [(text, span_runs(text)) for text in (source, target)]
    joined = _equally_often(*([text[slice(*around(run))] for run in runs] for text, runs in both))
    ours, theirs = (_numbered(text, runs, joined) for text, runs in both)
    common = _equally_often(*([span for span, _ in side] for side in (ours, theirs)))
    names = dict(zip((key for key in ours if key[0] in common), PLACEHOLDERS, strict=False))
    named = ([(place, names[key]) for key, place in side.items() if key in names] for side in (ours, theirs))
    return mask(source, next(named)), mask(target, next(named))


def _equally_often(ours: Iterable[str], theirs: Iterable[str]) -> set[str]:
    counts = Counter(ours), Counter(theirs)
    return {text for text, count in counts[0].items() if counts[1][text] == count}


def _numbered(text: str, runs: Sequence[list[Place]], joined: set[str]) -> dict[tuple[str, int], Place]:
    """The spans of a text, of runs that are `joined` only one, by their texts and the number of equal ones before."""
    seen: Counter[str] = Counter()
    found = {}
    for run in runs:
        for place in [around(run)] if text[slice(*around(run))] in joined else run:
            span = text[slice(*place)]
            found[span, seen[span]] = place
            seen[span] += 1
    return found
