"""Placeholders of programs, such as `%s`: how they are written, and whether a translation has those of its source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection

#: How a placeholder is written, by its style. Each is a span wherever it stands.
STYLES = {
    "template": r"\{\{[^{}]*\}\}|\{%[^{}]*%\}",
    "named": r"[#$%]\{[^{}]*\}|%<\w{1,60}>[-+ #0]{0,3}\d{0,3}(?:\.\d{1,3})?[A-Za-z]",  # %{x} #{x} ${x} %<x>d
    "braces": r"\{[\w.\[\]]*(?:,\s*-?\d{1,3})?(?:![rsa])?(?::[^{}\s]*)?\}"  # {}, {0}, {0,-5}, {name!r:>8}
    r"|\{\s*\w+\s*,\s*(?:number|date|time|spellout|ordinal|duration)\b[^{}]*\}",
    "printf": r"%%|(?<!\d)%(?:\([^()\n]{1,60}\)|\d{1,3}\$)?[-+#0']{0,3}(?:\*|\d{0,3})(?:\.(?:\*|\d{1,3}))?"
    r"(?:hh?|ll?|[Lqjz])?(?:[sdiufgxXrc@]|[A-Za-z](?![^\W_])|<PRI\w{1,12}>)",
    "numbered": r"%\d{1,2}%(?!\d)|%L?\d{1,2}(?![\d$])|#\d#+|@\d@+|\[_\d{1,2}\]",  # %1 %L1 %1% #1## @1@@ [_1]
    "dollar": r"(?a:(?<![\w$])\$(?:\d(?![.,]?\d)|[A-Za-z_]\w*(?:\$|/[\w./~-]*[\w/])?)(?![\w$]))",  # $1 $x $x/y
    "colon": r"(?a:(?<![\w:/.]):[A-Za-z_]\w*(?![\w:]))",  # :name
    "at": r"(?a:(?<![\w@./])@[A-Za-z_][\w-]*(?![\w/-]))",  # @name
    "tag": r"</?\d{1,3}\s?/?>",  # <0>
    "text": r"\$t\([^()]{1,200}\)|@(?:\.\w+)?:[A-Za-z][\w.-]*\w",  # $t(other.text), @:other.text
}
#: A style of messages alone: in Markdown `__x__` is strong.
OF_MESSAGES = r"(?a:(?<!\w)__[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*__(?!\w))"
#: What `ICU` says between braces, the number of a plural and what is quoted.
ICU = r"#|'[{}#|](?:[^']|'')*(?:'|\Z)"

#: Directives of printf, in every language; `%%`, too.
DIRECTIVE = re.compile(
    r"%(?P<key>\d+\$|\([^()]*\))?(?P<rest>[-+ #0'I]*(?:\*|[1-9]\d*)?(?:\.(?:\*|\d+)?)?(?:hh?|ll?|[Lqjzt])?"
    r"(?:[diouxXeEfFgGaAcCsSpnrm@%]|<PRI\w+>))"
)
_NUMBERED = r"%L?\d{1,2}|%L?n"
# What a flag of gettext, without "-format", says that a program reads; all others name languages with printf.
_FLAGS = {
    **dict.fromkeys(("python-brace", "perl-brace", "csharp", "java", "rust"), r"\{[^{}]*\}"),
    **dict.fromkeys(("qt", "qt-plural", "kde", "kde-kuit", "ycp"), _NUMBERED),
    "boost": rf"%\d+%|{DIRECTIVE.pattern}",
    "ruby": rf"%[-+ #0]*(?:\{{[^{{}}]*\}}|<[^<>]*>)|{DIRECTIVE.pattern}",
    "sh": r"\$\{\w+\}|\$\w+",
    **dict.fromkeys(("lisp", "scheme"), r"~[\d,:@]*[A-Za-z%~&]"),
    "xml": r"<|&\w*;?",
    "icu": rf"{ICU}|\{{[^{{}}]*\}}|[{{}}]",
}
_STYLES = [re.compile(pattern) for pattern in STYLES.values()]
_PATTERNS = {flag: re.compile(pattern) for flag, pattern in _FLAGS.items()}


def keeps_placeholders(source: str, target: str, flags: Collection[str] | None = None) -> bool:
    """Whether a translation has the placeholders of its source, each as often, in any order: those of every style that
    the source has, and all that the flags of gettext say, such as "c-format"; None: no message of a program."""
    styles = _STYLES if flags is None else [*_STYLES, re.compile(OF_MESSAGES)]
    if any((found := _found(style, source)) and found != _found(style, target) for style in styles):
        return False
    exact = [_PATTERNS.get(flag.removesuffix("-format"), DIRECTIVE) for flag in flags or ()]
    return all(_found(pattern, source) == _found(pattern, target) for pattern in exact)


def _found(pattern: re.Pattern[str], text: str) -> Counter[str]:
    return Counter(found[0] for found in pattern.finditer(text))
