"""Format placeholders in a translated message: all are kept, and each keeps its value."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set

from scaleformer.formats.blocks import MARK, Block, Span
from scaleformer.formats.restoring import Change
from scaleformer.formats.splicing import Edit, break_again, splice
from scaleformer.text.placeholders import DIRECTIVE

_UNNAMED = re.compile(r"\{(?:[!:][^{}]*)?\}")  # {}, {:>8}
_LANGUAGES = ("c", "objc", "php", "perl", "sh", "boost", "ruby", "javascript")
_NUMBERED = frozenset(f"{language}-format" for language in _LANGUAGES)
REFUSED = "units whose translation would change placeholders"


def translated(
    source: str, blocks: Sequence[Block], changes: Sequence[Sequence[Change]], formats: Set[str], left: Counter[str]
) -> str | None:
    """A message with the changes of its blocks; None, and counted in `left`, if the program could not fill in its
    placeholders.

    formats  its flags, such as "c-format"; none: a text without placeholders
    """
    written: dict[int, str] | None = {}
    if formats and _moved(blocks, changes):
        written = _numbered(source, blocks, formats)
    if refused(changes):
        left[REFUSED] += 1
    elif written is None:
        left["units whose translation moves placeholders without names"] += 1
    else:
        return _spliced(source, blocks, changes, written)
    return None


def refused(changes: Iterable[Sequence[Change]]) -> bool:
    """Whether a message must stay as it is, since a translation of its blocks lacks placeholders."""
    return any(change.refused for some in changes for change in some)


def _moved(blocks: Sequence[Block], changes: Sequence[Sequence[Change]]) -> bool:
    """Whether placeholders without a name or number change places and would thus swap values."""
    before = [id(span) for block in blocks for span in block.spans if _is_filled_in_order(span)]
    after = [
        id(span)
        for block, some in zip(blocks, changes, strict=True)
        for span in _spans_after(block, some)
        if _is_filled_in_order(span)
    ]
    return before != after


def _numbered(source: str, blocks: Sequence[Block], formats: Set[str]) -> dict[int, str] | None:
    """For each span (by `id`) of a message its numbered form, `%2$s` for the second `%s`; None if the programming
    language has none, or another part of the message has placeholders, too."""
    spans = {id(span): str(span.content) for block in blocks for span in block.spans}
    found = _directives(source)
    inside = sum(len(_directives(text)) for text in spans.values())
    if not formats & _NUMBERED or inside != len(found) or any(m["key"] or "*" in m[0] for m in found):
        return None
    number = 0

    def put(match: re.Match[str]) -> str:
        nonlocal number
        if match["rest"].endswith("%"):
            return match[0]
        number += 1
        return f"%{number}${match['rest']}"

    return {key: DIRECTIVE.sub(put, text) for key, text in spans.items()}


def _is_filled_in_order(span: Span) -> bool:
    text = str(span.content)
    return _UNNAMED.search(text) is not None or any(not match["key"] for match in _directives(text))


def _directives(text: str) -> list[re.Match[str]]:
    """Those that are filled in: neither %% nor Boost's %1%."""
    return [match for match in DIRECTIVE.finditer(text) if not match["rest"].endswith("%")]


def _spans_after(block: Block, changes: Sequence[Change]) -> Iterator[Span]:
    """The spans of a block in their order after its changes."""
    spans = iter(block.spans)
    place = 0
    for change in [*changes, Change(len(block.text), len(block.text), ())]:
        for _ in range(block.text.count(MARK, place, change.start)):
            yield next(spans)
        for _ in range(block.text.count(MARK, change.start, change.stop)):
            next(spans)
        yield from (part for part in change.parts if isinstance(part, Span))
        place = change.stop


def _spliced(source: str, blocks: Sequence[Block], changes: Sequence[Sequence[Change]], written: dict[int, str]) -> str:
    """A message with its changes; written: the new text of spans, by their `id`."""
    edits: list[Edit] = []
    for block, some in zip(blocks, changes, strict=True):
        changed = set()
        for change in some:
            parts = break_again(block, change, lambda start, stop: source[start:stop])
            texts = [written.get(id(p), str(p.content)) if isinstance(p, Span) else p for p in parts]
            edits.append((*block.origin(change.start, change.stop), "".join(texts)))
            changed |= set(range(change.start, change.stop))
        marks = (place for place, character in enumerate(block.text) if character == MARK)
        for place, span in zip(marks, block.spans, strict=True):
            if id(span) in written and place not in changed:
                edits.append((*block.origins[place], written[id(span)]))
    return splice(source, edits)
