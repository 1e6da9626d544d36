"""HTML round trips: byte for byte if nothing is translated, with the same tags if everything is."""

from __future__ import annotations

import re

import pytest

from scaleformer.formats.html import HtmlFile
from scaleformer.formats.segments import split_block
from scaleformer.system.errors import DataError
from tests.formats.fake import shown
from tests.formats.pages import nonsense, shouted, translated, unchanged

PAGE = """<!DOCTYPE html>
<html lang="en"><head><title>My &amp; page</title><style>p{a:b}</style>
<script>if (a < b && c) { document.write("<p>no prose</p>") }</script></head>
<body><h1 class="x">Big <em>Title</em></h1>
<p>Hello <b>bold <i>world</i></b>, see <a href="https://a.b/c?d&amp;e">the   page</a> and <code>x &lt; 1</code>.
Second sentence goes
  on here with caf&eacute;&nbsp;and 5 &lt; 6. <strong>Whole sentence.</strong> </p>
<ul><li>One<li>Two <img src=a.png alt="al"> three</ul><pre>code here</pre><p translate="no">No no</p>
<p class="notranslate">Nor <b>this</b></p><!-- comment text --><div>Loose text <br> after break<p>deep</div>
<table><tr><td>Cell a</td><td>Use %s and {name} in v1.2.3</td></tr></table>
<p>Unclosed <b>bold <p>and </i> stray ends</p><textarea>kept</textarea><button>Press me</button></body></html>
"""


def segments(text: str) -> list[str]:
    return [s.text for block in HtmlFile(text.encode(), "a.html").blocks for s in split_block(block, "en", "sentence")]


def tags(text: str) -> list[str]:
    """Tags, comments and their untranslated content, in order."""
    return re.findall(
        r"<(?:pre|script|style|textarea|code|p translate)\b.*?</[^>]*>|<!--.*?-->|<[^>]+>", text, re.DOTALL
    )


def test_a_page_that_is_not_changed_is_the_same_bytes() -> None:
    for content in (PAGE.encode(), PAGE.replace("\n", "\r\n").encode(), "\ufeff<p>Text</p>".encode()):
        assert translated(HtmlFile(content, "a.html"), unchanged) == (content, {})


def test_what_a_model_reads_of_html() -> None:
    assert segments(PAGE) == [
        "My & page",
        "Big ⟨1⟩Title⟨2⟩",
        "Hello ⟨1⟩bold ⟨2⟩world⟨3⟩, see ⟨4⟩the page⟨5⟩ and ⟨6⟩.",
        "Second sentence goes on here with café\xa0and 5 < 6.",
        "Whole sentence.",
        "One",
        "Two ⟨1⟩ three",
        "Loose text",
        "after break",
        "deep",
        "Cell a",
        "Use ⟨1⟩ and ⟨2⟩ in ⟨3⟩",
        "Unclosed ⟨1⟩bold",
        "and ⟨1⟩ stray ends",
        "Press me",
    ]


KINDS = """<!DOCTYPE html><html><head><title>T</title><style>p {}</style></head><body><h1>A <em>title</em></h1>
<p>Some <code>x = &lt;1</code>,<br>more &unknown; <img alt="a"><span translate="no">X <b>Y</b></span>
<a href="u" title="t">here</a>.<script>no()</script> End.</p><ul><li>one<ul><li>two</li></ul>again</li></ul>
<table><tr><td>a</td><td><p>b</p></td></tr></table><!-- no --><pre>code
  here</pre>tail</body></html>"""


def test_kinds_and_texts_to_train_on() -> None:
    """Tags have no attributes there, and what stays as it is looks like code."""
    file = HtmlFile(KINDS.encode(), "a.html")
    assert shown(file) == [
        ("title", "T"),
        ("title", "A <em>title</em>"),
        ("paragraph", "Some `x = <1`,"),
        ("paragraph", "more &unknown; <img>`X Y` <a>here</a>."),
        ("paragraph", "End."),
        ("item", "one"),
        ("item", "two"),
        ("item", "again"),
        ("cell", "a"),
        ("cell", "b"),
        ("paragraph", "tail"),
    ]
    assert [block.kind for block in file.blocks].count("code") == 1
    assert [HtmlFile(content, "a.html").blocks for content in (b"  ", b"<!-- no -->")] == [[], []]


def test_capitals_change_nothing_but_prose() -> None:
    found, counts = translated(HtmlFile(PAGE.encode(), "a.html"), shouted)
    text = found.decode()
    assert tags(text) == tags(PAGE)
    assert not counts
    for line in (
        "<title>MY &amp; PAGE</title>",
        "SECOND SENTENCE GOES\n  ON HERE WITH CAFÉ\xa0AND 5 &lt; 6.",
        "{name}",
    ):
        assert line in text


@pytest.mark.parametrize("seed", range(20))
def test_nonsense_keeps_every_tag_and_the_nesting(seed: int) -> None:
    found, _ = translated(HtmlFile(PAGE.encode(), "a.html"), nonsense, seed)
    text = found.decode()
    assert sorted(tags(text)) == sorted(tags(PAGE))
    assert len(re.findall(r"%s|\{name\}|v1\.2\.3", text)) == 3
    inline = re.compile(r"</?(?:em|b|i|a|strong|img|code)\b")
    blocks = [[tag for tag in tags(page) if not inline.match(tag)] for page in (text, PAGE)]
    assert blocks[0] == blocks[1]


def test_what_looks_like_a_tag_in_a_translation_is_text() -> None:
    found, _ = translated(HtmlFile(b"<p>One</p>", "a.html"), lambda segment, rng: "<b> & </p>")
    assert found == b"<p>&lt;b&gt; &amp; &lt;/p&gt;</p>"


def test_another_encoding_that_the_page_names() -> None:
    content = '<meta charset="iso-8859-1"><p>café</p>'.encode("latin-1")
    assert translated(HtmlFile(content, "a.html"), unchanged)[0] == content
    found, _ = translated(HtmlFile(content, "a.html"), lambda segment, rng: "señal 数")
    assert found == '<meta charset="iso-8859-1"><p>señal &#25968;</p>'.encode("latin-1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<p>caf\xe9", r"a\.html:1: not UTF-8: convert"),
        (b'\n<meta charset="klingon"><p>caf\xe9', r"a\.html:2: not UTF-8 nor klingon, as it says"),
        (b"<p>a\0b", r"a\.html:1: a null character"),
        (b"<div>" * 5000 + b"text", r"a\.html:1: more than 2,000 nested elements"),
    ],
)
def test_what_is_no_page_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        HtmlFile(content, "a.html")


@pytest.mark.parametrize(
    "content", [b"", b"<", b"<p", b"</", b"&", b"&#;", b"<!--", b"<![CDATA[x", b"<p " + b"a=1 " * 20000, b"<" * 50000]
)
def test_pieces_of_pages_come_back(content: bytes) -> None:
    assert translated(HtmlFile(content, "a.html"), unchanged)[0] == content
