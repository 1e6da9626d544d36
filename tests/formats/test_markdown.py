"""Markdown round trips: byte for byte if nothing is translated, with the same structure if everything is."""

from __future__ import annotations

import re
import sys

import pytest

from scaleformer.formats.markdown import MarkdownFile
from scaleformer.formats.segments import split_block
from scaleformer.system.errors import DataError
from tests.formats.fake import shown
from tests.formats.pages import nonsense, page, shouted, structure, translated, unchanged

PAGES = range(30)


def segments(text: str) -> list[str]:
    return [
        s.text for block in MarkdownFile(text.encode(), "page.md").blocks for s in split_block(block, "en", "sentence")
    ]


@pytest.mark.parametrize("seed", PAGES)
def test_a_page_that_is_not_changed_is_the_same_bytes(seed: int) -> None:
    content = page(seed).encode()
    found, counts = translated(MarkdownFile(content, "page.md"), unchanged)
    assert found == content
    assert not counts


@pytest.mark.parametrize("seed", PAGES)
def test_capitals_change_nothing_but_letters(seed: int) -> None:
    """The structure is the same, and so is the text except for capitals and line breaks."""
    text = page(seed)
    found, counts = translated(MarkdownFile(text.encode(), "page.md"), shouted)
    assert structure(found.decode()) == structure(text)
    assert not counts

    def letters(written: str) -> str:
        named = written.upper().replace("[REF][REF]", "[REF]")  # a link whose text was its name
        return re.sub(r"[\s>\\]+|&COPY;|©", "", named)

    assert letters(found.decode()) == letters(text)


@pytest.mark.parametrize("seed", PAGES)
def test_nonsense_leaves_the_structure(seed: int) -> None:
    text = page(seed)
    found, counts = translated(MarkdownFile(text.encode(), "page.md"), nonsense, seed)
    assert structure(found.decode()) == structure(text)
    assert found != text.encode()
    assert counts["segments left as they are, since their translation would change the structure"] <= 8  # of some 40


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("# Head *x* with `code` #", ["Head ⟨1⟩x⟨2⟩ with ⟨3⟩"]),
        ("**All of it.** Then [more](u).", ["All of it.", "Then ⟨1⟩more⟨2⟩."]),
        ("> one\n> two. Three\n> four", ["one two.", "Three four"]),
        ("a  \nb\\\nc", ["a", "b", "c"]),
        ("| a | b\\|c |\n|---|---|\n| `x\\|y` z | |", ["a", "b|c", "⟨1⟩ z"]),
        ("Use %s, {name} and https://a.b/c_d in v1.2.3.", ["Use ⟨1⟩, ⟨2⟩ and ⟨3⟩ in ⟨4⟩."]),
        ("![the picture](a.png) **[both](u)**", ["⟨1⟩the picture⟨2⟩ ⟨3⟩both⟨4⟩"]),
        ("[^1]: A note[^2] here.", ["A note⟨1⟩ here."]),
        ("---\ntitle: x\n---\nText", ["Text"]),
        ("---\n\nText\n\n---\n", ["Text"]),
        ("```\ncode\n```\n\n    code\n\n`only code`\n\n123 456", []),
        ("a &amp; b \\* c snake\\_case &lt;x&gt;", ["a & b * c snake_case ⟨1⟩"]),
        ("<p>In <i>tags</i>.</p>\n\nText <kbd>K</kbd>", ["In ⟨1⟩tags⟨2⟩.", "Text ⟨1⟩"]),
        ("\ufeff# Title", ["Title"]),
        ("# A\ufefftitle", ["A\ufefftitle"]),
    ],
)
def test_what_a_model_reads_of_markdown(text: str, wanted: list[str]) -> None:
    assert segments(text) == wanted
    assert segments(text.replace("\n", "\r\n")) == wanted


KINDS = """# A *title*

A paragraph of
two lines.

- one
  - two

> quoted

| a | b |
|---|---|
| c \\| d | `e\\|f` it |

```
code
```

<div>raw <b class="x">text</b></div>
"""


def test_kinds_and_texts_to_train_on() -> None:
    file = MarkdownFile(KINDS.encode(), "page.md")
    assert shown(file) == [
        ("title", "A *title*"),
        ("paragraph", "A paragraph of two lines."),
        ("item", "one"),
        ("item", "two"),
        ("paragraph", "quoted"),
        ("cell", "a"),
        ("cell", "b"),
        ("cell", "c | d"),
        ("cell", "`e|f` it"),
        ("paragraph", "raw <b>text</b>"),
    ]
    assert [block.kind for block in file.blocks].count("code") == 1
    text = "See [it](u), [name], [the\nname][] &amp; snake\\_case.\n\n[name]: u\n[the name]: v\n"
    assert shown(MarkdownFile(text.encode(), "page.md")) == [
        ("paragraph", "See [it](u), [name], [the name][] & snake_case.")
    ]


def test_comments_details_and_front_matter() -> None:
    text = "<!-- a comment -->\n\n<details>\n<summary>More</summary>\n\ninside\n\n</details>\n\nend\n"
    for written in (text, f"---\ntitle: A page\n---\n{text}"):
        assert segments(written) == ["More", "inside", "end"]


def test_nothing_deeply_nested_is_lost() -> None:
    """The parser drops what is nested too deeply: such files are read completely or refused."""
    for depth in (20, 126, 252, 2520):
        content = "".join("  " * level + "- w\n" for level in range(depth)).encode()
        if depth <= 126:
            assert len(MarkdownFile(content, "a.md").blocks) == depth
        else:
            with pytest.raises(DataError, match=r"a\.md: quotations, lists or brackets"):
                MarkdownFile(content, "a.md")


def test_markdown_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    with pytest.raises(DataError, match=r"a.md: reading Markdown needs another package: pip install 'scaleformer\[doc"):
        MarkdownFile(b"x", "a.md")


def test_more_spans_than_placeholders_are_several_segments() -> None:
    text = " ".join(f"word `code{n}`" for n in range(20)) + " end."
    found = segments(text)
    assert len(found) == 3
    assert [s.count("⟨") for s in found] == [9, 9, 2]
    assert translated(MarkdownFile(text.encode(), "page.md"), shouted)[0].decode() == text.replace(
        "word", "WORD"
    ).replace("end", "END")


def test_marks_that_a_translation_brings_are_escaped_where_they_would_mean_something() -> None:
    file = MarkdownFile(b"Plain text here.\n\n- item\n\n| a | b |\n|---|---|\n| c | d |\n", "page.md")
    found, counts = translated(
        file, lambda segment, rng: {"Plain text here.": "# uno *dos* a*b", "c": "x|y"}.get(segment.text, segment.text)
    )
    assert found.decode() == "\\# uno \\*dos\\* a\\*b\n\n- item\n\n| a | b |\n|---|---|\n| x\\|y | d |\n"
    assert not counts


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("See [the\nname][], 'a'.\n\n[the name]: u\n", "SEE [THE\nNAME][the name], 'A'.\n\n[the name]: u\n"),
        ("- [name][]\n\n[name]: u\n", "- [NAME][name]\n\n[name]: u\n"),
        ("- **[name]**\n\n[name]: u\n", "- **[NAME][name]**\n\n[name]: u\n"),
        ("> Run `a\n> b` here.\n", "> RUN `a\n> b` HERE.\n"),
        ("- Run `a\n      b` here.\n", "- RUN `a\n      b` HERE.\n"),
        ('A "\\\\" and \\* or &amp;lt; it.\n', 'A "\\\\" AND * OR \\&LT; IT.\n'),
        ("one\n---\n", "ONE\n---\n"),
    ],
)
def test_what_is_written_in_capitals(text: str, wanted: str) -> None:
    found, counts = translated(MarkdownFile(text.encode(), "page.md"), shouted)
    assert (found.decode(), structure(found.decode())) == (wanted, structure(text))
    assert not counts


@pytest.mark.parametrize(
    ("text", "translation", "wanted"),
    [
        ("one\n---\n", "uno |", "one\n---\n"),  # else a table, even with a backslash
        ("a | b\n--|--\none | c\n", "1. uno", "a | b\n--|--\n1\\. uno | c\n"),  # else a list after it
        ("| a | b |\n|---|---|\n| one | c |\n", "1. uno", "| a | b |\n|---|---|\n| 1. uno | c |\n"),
    ],
)
def test_translations_that_would_begin_another_block(text: str, translation: str, wanted: str) -> None:
    found, counts = translated(
        MarkdownFile(text.encode(), "page.md"), lambda segment, rng: segment.text.replace("one", translation)
    )
    assert found.decode() == wanted
    assert counts.total() == (wanted == text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb \xff", "page.md:2: not UTF-8"),
        (b"a\n\n\0", "page.md:3: a null character"),
        (b">" * 300 + b" a", "deep"),
        (b"[" * 100_000, "deep"),
    ],
)
def test_what_is_no_markdown_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        MarkdownFile(content, "page.md")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Open C:\\temp\\new folder.", "Open C:\\temp\\new folder."),
        ("\\newpage comes", "\\newpage comes"),
        ("not \\*bold\\*", "not ⟨1⟩bold⟨2⟩"),
    ],
)
def test_a_backslash_that_escapes_nothing_is_text(text: str, wanted: str) -> None:
    assert segments(text) == [wanted]
    assert translated(MarkdownFile(text.encode(), "page.md"), unchanged)[0] == text.encode()
