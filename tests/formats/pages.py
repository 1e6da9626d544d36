"""Pages of Markdown, HTML and similar formats with all features, and fake translators."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin

from scaleformer.formats.restoring import Change, find_changes
from scaleformer.formats.segments import Segment, split_block
from scaleformer.vocabulary import PLACEHOLDERS

NOUNS = (
    "server",
    "table",
    "garden",
    "letter",
    "window",
    "engine",
    "river",
    "printer",
    "café",
    "señal",
    "Straße",
    "数据",
)
VERBS = ("opens", "reads", "stops", "keeps", "follows", "returns")
INLINE = (
    "`{noun}.{verb}()`", "``a ` b``", "**{noun}**", "*{noun} {verb}*", "***very {noun}***", "__{noun}__", "_{noun}_",
    "[the {noun}](https://example.org/{noun}?a=1&b=2#top \"A title\")", "[{noun} *and* `x`](../{noun}.md)",
    "[{noun}][ref]", "[ref]", "![a {noun}](img/{noun}.png)", "<https://example.org/{noun}>", "https://example.org/a_b",
    "<kbd>Ctrl</kbd>", "<b>{noun}</b>", "%s", "%(name)s", "{name}", "{{ site.title }}", "v2.10.3", "Python 3.12",
    "~~{noun}~~", "&copy;", "AT&T", "5 \\* 3", "snake\\_case", "a < b", "note[^1]", "<br>", "<!-- hidden -->", "`a|b`",
    "me@example.org", "{noun} (see {noun})", "\"{noun}\"", "1,5 kg", "[x]", "a * b", "2 > 1", "C++", "#5",
    "e.g. {noun}",
)  # fmt: skip


def sentence(rng: random.Random) -> str:
    """A sentence with some marks in it."""
    words = ["The", rng.choice(NOUNS), rng.choice(VERBS)]
    for _ in range(rng.randint(0, 4)):
        words += [rng.choice(("with", "and then", "while", "for")), rng.choice(INLINE)]
    words += ["the", rng.choice(NOUNS)]
    text = " ".join(words) + rng.choice((".", "!", "?", "."))
    fill = {"noun": rng.choice(NOUNS), "verb": rng.choice(VERBS)}
    return re.sub(r"\{(noun|verb)\}", lambda found: fill[found[1]], text)


def paragraph(rng: random.Random, width: int = 70, prefix: str = "") -> str:
    """Sentences wrapped at a width, with a prefix on each line but the first."""
    words = " ".join(sentence(rng) for _ in range(rng.randint(1, 4))).split(" ")
    lines, line = [], ""
    for word in words:
        # a line that begins with these would begin another block
        if line and len(line) + len(word) > width and word[:1].isalpha():
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return f"\n{prefix}".join([*lines, line])


def page(seed: int) -> str:
    """A page of Markdown with all features, in a random order."""
    rng = random.Random(seed)
    blocks = [
        f"# {sentence(rng)}",
        f"## {sentence(rng)} ##",
        paragraph(rng),
        paragraph(rng, width=10_000),
        f"> {paragraph(rng, prefix='> ')}\n>\n> > {paragraph(rng, prefix='> > ')}",
        f"- {paragraph(rng, prefix='  ')}\n- {sentence(rng)}\n  1. {paragraph(rng, prefix='     ')}\n"
        f"  2. {sentence(rng)}\n\n     {paragraph(rng, prefix='     ')}\n- [ ] {sentence(rng)}",
        f"| {sentence(rng)} | b \\| c |\n|:---|---:|\n| `x \\| y` and {rng.choice(NOUNS)} | {sentence(rng)} |\n"
        "| | **z** |",
        "```python\n# The code stays.\nprint('no prose')\n```",
        "    indented code stays, too",
        f"Setext {rng.choice(NOUNS)}\nof two lines\n===",
        f"A line that breaks  \n{sentence(rng)}\\\nand once more.",
        f"<div class=\"note\">\n<p title=\"kept\">Inside <b>of {rng.choice(NOUNS)}</b> and <code>code</code>.</p>\n"
        "</div>",
        f"<details>\n<summary>More {rng.choice(NOUNS)}</summary>\n\n{paragraph(rng)}\n\n</details>",
        "---",
        f"[^1]: {sentence(rng)}",
        "<!-- a comment\nof two lines -->",
        f"!!! note \"Title\"\n\n:::{{tip}}\n{sentence(rng)}\n:::",
        f"Last {rng.choice(NOUNS)}, without a full stop",
    ]  # fmt: skip
    rng.shuffle(blocks)
    front = "---\ntitle: Kept as it is\ntags: [a, b]\n---\n\n" if seed % 3 == 0 else ""
    text = front + "\n\n".join(blocks) + "\n\n[ref]: https://example.org/ref 'Ref title'\n" * (seed % 2 or 1)
    return text.replace("\n", "\r\n") if seed % 5 == 4 else text


def structure(text: str) -> list[Any]:
    """The structure of a page of Markdown from markdown-it-py: blocks, marks, links, code."""
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = markdown.use(footnote_plugin, inline=False, move_to_end=False).parse(text)
    found: list[Any] = []
    for token in tokens:
        content = token.content if token.type in ("fence", "code_block") else ""
        found.append((token.type, token.tag, token.markup, content))
        marks = [
            (child.type, child.markup, sorted(child.attrs.items()), child.content if child.type != "image" else "")
            for child in token.children or []
            if child.type not in ("text", "softbreak")
        ]
        # single spans may change places
        found.append(sorted(map(repr, marks)))
    return found


Translate = Callable[[Segment, random.Random], str]


def unchanged(segment: Segment, rng: random.Random) -> str:
    """A translator that changes nothing."""
    return segment.text


def shouted(segment: Segment, rng: random.Random) -> str:
    """The same in capitals."""
    return segment.text.upper()


def nonsense(segment: Segment, rng: random.Random) -> str:
    """Foreign words with the placeholders at random places, like the output of an untrained model."""
    words = [rng.choice(("uno", "dos", "tres", "*cuatro", "[cinco]", "<seis>", "#siete", "&ocho;", "1.", "-", "|"))
             for _ in range(rng.randint(1, 12))]  # fmt: skip
    for placeholder in PLACEHOLDERS[: len(segment.groups)]:
        if rng.random() < 0.8:
            words.insert(rng.randint(0, len(words)), placeholder)
    return rng.choice((" ", "")).join(words)


def translated(file: Any, translate: Translate, seed: int = 1, grain: str = "sentence") -> tuple[bytes, Counter[str]]:
    """The content of a file with all segments translated, and the counts."""
    rng, counts = random.Random(seed), Counter[str]()
    changes: list[Sequence[Change]] = []
    for block in file.blocks:
        segments = split_block(block, "en", grain)
        changes.append(find_changes(segments, [translate(segment, rng) for segment in segments], counts))
    return file.write(changes), counts + file.left
