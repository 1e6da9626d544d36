"""What Markdown has beyond CommonMark: marks are no prose, blocks are not joined, and nothing else changes."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from scaleformer.formats.files import read_prose
from scaleformer.formats.markdown import MarkdownFile
from scaleformer.formats.segments import split_block
from tests.formats.pages import shouted, translated, unchanged

MDX = """import Tabs from '@theme/Tabs';
import {
  Item,
} from './items';

export const sizes = {
  small: 'for one',

  large: 'for all',
};

# Title {props.name}

<Tabs items={['a > b', "c"]}>
<Item value="a" onClick={() => go({ to: 'b' })}>

Text <Badge text="x" /> here {rows.map((row) => <b>{row.name}</b>)} too.

    Indented text.

</Item>
</Tabs>

{/* no text */}

<Note>Inline text.</Note>

```js
import code from 'stays'
```
"""

PAGE = """Use $x + y$, :smile: and [[Page]].

See <code>a  b</code>, ==this==, [[Page|that]], {#id} and H~2~O.

> [!NOTE]
> By <i translate="no">Acme `Inc`</i>, [it]{.x}[^1].

[^1]: A note.
"""


def segments(text: str, name: str = "page.md") -> list[str]:
    blocks = MarkdownFile(text.encode(), name).blocks
    return [segment.text for block in blocks for segment in split_block(block, "en", "sentence")]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # alerts, callouts, admonitions, directives, tabs
        ("> [!NOTE]\n> Read it.", ["Read it."]),
        ("> [!tip]- A *title*\n> Text below\n> it.", ["A ⟨1⟩title⟨2⟩", "Text below it."]),
        (":::warning\nMind it.\n:::", ["Mind it."]),
        ("A\n::: tip The *title*\nText\n\nMore\n:::\nEnd", ["A", "The ⟨1⟩title⟨2⟩", "Text", "More", "End"]),
        (":::info[Its [link](u)]{.x}\nText\n:::", ["Its ⟨1⟩link⟨2⟩", "Text"]),
        (":::: {.columns}\n::: {.column width=50%}\nLeft\n:::\n::::", ["Left"]),
        ("!!! note\n    One.\n\n    Two.\n\n\n    Three.\n\nEnd.", ["One.", "Two.", "Three.", "End."]),
        ('??? warning inline end "Its title"\n    - Text', ["Its title", "Text"]),
        ('=== "A"\n\n    Text\n\n    ```\n    code\n    ```\n=== "Other"\n\n    More', ["A", "Text", "Other", "More"]),
        ("/// details | Some title\nText\n///", ["Some title", "Text"]),
        ("{% tabs %}\nText\n{{< note >}}\nMore\n{{< /note >}}\n[TOC]", ["Text", "More"]),
        # tasks
        ("- [ ] Do it\n- [x] Done\n  1. [X] Sub", ["Do it", "Done", "Sub"]),
        ("- [y] No task", ["[y] No task"]),
        # formulas
        ("So $x + y$ is $5 and $6, $$a^2$$ more.", ["So ⟨1⟩ is ⟨2⟩ and ⟨3⟩, ⟨4⟩ more."]),
        ("It is\n$$\nx\n- y\n= z\n$$\nas said.", ["It is", "as said."]),
        ("$$x$$ where $\\text{if it is}$ and \\\\(z\\\\)", ["⟨1⟩ where ⟨2⟩ and ⟨3⟩"]),
        ("\\begin{align}\nx &= y \\\\\nz\n\\end{align}\n\n\\[\nx = y\n\\]", []),
        ("$5 a month or 60$, $HOME/$USER", ["⟨1⟩ a month or 60$, ⟨2⟩/⟨3⟩"]),
        ("$$\nnever closed", ["$$ never closed"]),
        # attributes
        ('# A head {#its-id .x key="a b"}', ["A head ⟨1⟩"]),
        ("A ![pic](b.png){width=50%} and\n[link](u){target=_blank}.\n{: .wide }", ["A ⟨1⟩pic⟨2⟩ and ⟨3⟩link⟨4⟩."]),
        ("Some [small *text*]{.smallcaps} here", ["Some ⟨1⟩small ⟨2⟩text⟨3⟩ here"]),
        # wiki links, emoji, definitions, abbreviations, marked text
        ("See [[Page|the label]], [[Other Page]] and ![[a.png|300]]", ["See ⟨1⟩the label⟨2⟩, ⟨3⟩ and ⟨4⟩"]),
        ("See [[How to|How-To]] and x[[1]].\n\n[1]: u", ["See ⟨1⟩ and x[⟨2⟩1⟨3⟩]."]),
        ("Good :smile: at 10:30:15, std::x::y, :+1:", ["Good ⟨1⟩ at 10:30:15, std::x::y, ⟨2⟩"]),
        ("Term\n: Its *sense*\n\n    More\n\nB\n: One\n: Two", ["Term", "Its ⟨1⟩sense⟨2⟩", "More", "B", "One", "Two"]),
        ("*[HTML]: A long name\n*[W3C]: Another", ["A long name", "Another"]),
        ("A ==marked word==, a == b == c", ["A ⟨1⟩marked word⟨2⟩, a == b == c"]),
        ("H~2~O and x^2^ are", ["H⟨1⟩O and x⟨2⟩ are"]),
        # notes
        ("[^1]: First.\n[^2]: Second.\n[a]: u/v 'Not'\n\nIt[^1] is [a].", ["First.", "Second.", "It⟨1⟩ is ⟨2⟩a⟨3⟩."]),
        ("[^n]: A note\n    goes on.\n\n    Its second part.\n\nText", ["A note goes on.", "Its second part.", "Text"]),
        ("A word^[with a note] here", ["A word⟨1⟩with a note⟨2⟩ here"]),
        ("[Note]: this is prose", ["[Note]: this is prose"]),
        # HTML
        ("Edit <code>config.yaml</code>, <kbd>Ctrl <b>C</b></kbd>, <samp>x</samp>", ["Edit ⟨1⟩, ⟨2⟩, ⟨3⟩"]),
        ('By <span translate="no">Acme *Inc*</span>, <i class="notranslate">X</i> <!-- x --> y', ["By ⟨1⟩, ⟨2⟩ ⟨3⟩ y"]),
        ("A <kbd> that never ends", ["A ⟨1⟩ that never ends"]),
        ("One<br>Two | <p>three</p>", ["One", "Two |", "three"]),
        ('<div translate="no">\n\nKept *text*\n\n- x\n\n</div>\n<p>Read.</p>\n\nThis.', ["Read.", "This."]),
        # soft hyphens, images
        ("A sepa\u00adrated Wör&shy;ter.", ["A separated Wörter."]),
        ("![A picture] (b c.png) is it.", ["![A picture] (b c.png) is it."]),
    ],
)  # fmt: skip
def test_what_a_model_reads(text: str, wanted: list[str]) -> None:
    """Joined to sentences as wanted; in capitals nothing but these letters changes."""
    for end in ("\n", "\r\n"):
        written = text.replace("\n", end)
        assert segments(written) == wanted
        file = MarkdownFile(written.encode(), "page.md")
        assert translated(file, unchanged)[0] == written.encode()
        found, counts = translated(file, shouted)
        assert not counts
        assert len(found.decode()) >= len(written) - written.count("\u00ad") - 5 * written.count("&shy;")
        assert MarkdownFile(found, "page.md").blocks != [] or not wanted


def test_mdx() -> None:
    """Its own suffix is not needed: the imports tell. In other files braces are prose."""
    wanted = ["Title ⟨1⟩", "Text ⟨1⟩ here ⟨2⟩ too.", "Indented text.", "Inline text."]
    assert segments(MDX) == segments(MDX, "page.mdx") == wanted
    found, counts = translated(MarkdownFile(MDX.encode(), "page.md"), shouted)
    expected = MDX
    for text in ("Title", "Text ", " here ", " too", "Indented text", "Inline text"):
        expected = expected.replace(text, text.upper())
    assert (found.decode(), counts.total()) == (expected, 0)
    text = "Text {a b} here.\n\n    code\n\n```js\nimport x from 'y'\n```\n"
    assert segments(text) == ["Text {a b} here."]
    assert segments(text, "page.mdx") == ["Text ⟨1⟩ here.", "code"]


def test_what_trains() -> None:
    """What is masked in translation is masked in training, too (`tests/translation/files/test_documents.py`)."""
    _, blocks = read_prose(PAGE.encode(), "page.md", "markdown", "en", "sentence")
    assert [segment.unmasked for block in blocks for segment in block] == [
        "Use `$x + y$`, `:smile:` and `[[Page]]`.",
        "See `a b`, <mark>this</mark>, <a>that</a>, `{#id}` and H`~2~`O.",
        "By `Acme 'Inc'`, <span>it</span>[^1].",
        "A note.",
    ]


def test_what_is_not_known_is_told() -> None:
    text = "+++ x\ny\n\n??? what is that\n\n.. note:: Text\n\n```{warning}\nText\n```\n\n```{code}\nx\n```\n\n== x ==\n"
    file = MarkdownFile(text.encode(), "page.md")
    assert file.left == {
        "blocks that begin with the unknown mark +++, read as prose": 1,
        "blocks that begin with the unknown mark ???, read as prose": 1,
        "blocks that begin with the unknown mark .., read as prose": 1,
        "blocks that begin with the unknown mark ==, read as prose": 1,
        "directives in blocks of code, such as {note}, left as they are": 1,
    }


@pytest.mark.parametrize(
    ("translation", "wanted"),
    [
        ("Uno ==dos== [[tres]]", "Uno \\==dos\\== \\[\\[tres\\]\\]\n"),
        ("!!! uno", "\\!!! uno\n"),
        (":::uno", "\\:::uno\n"),
        ("a :uno: $b$ {#c}", "a \\:uno: \\$b\\$ \\{#c}\n"),
        ("import 'x'", "One two.\n"),  # cannot be escaped
    ],
)
def test_marks_that_a_translation_brings(translation: str, wanted: str) -> None:
    found, counts = translated(MarkdownFile(b"One two.\n", "page.md"), lambda segment, rng: translation)
    assert found.decode() == wanted
    assert counts.total() == (wanted == "One two.\n")


def test_a_paragraph_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before and after its translation, whatever the number of its sentences; halves of it only where one is wrong."""
    parse, calls = MarkdownIt.parse, []
    monkeypatch.setattr(MarkdownIt, "parse", lambda self, text, env=None: calls.append(text) or parse(self, text, env))
    for sentences, wrong in ((8, 1), (64, 6)):
        text = "".join(f"This is *number* {n}. " for n in range(sentences))
        file = MarkdownFile(text.encode(), "page.md")
        calls.clear()
        found, counts = translated(file, shouted)
        assert (found.decode(), counts.total(), len(calls)) == (text.upper(), 0, 2)
        calls.clear()
        found, counts = translated(
            file, lambda segment, rng: "==⟨1⟩x⟨2⟩==." if "7." in segment.text[-2:] else segment.text.upper()
        )
        assert found.decode().count("\\==*x*\\==") == wrong
        assert len(calls) <= 2 + 2 * wrong * sentences.bit_length()
