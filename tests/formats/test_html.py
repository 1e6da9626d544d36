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
    found = re.findall(
        r"<(?:pre|script|style|textarea|code|p translate)\b.*?</[^>]*>|<!--.*?-->|<[^>]+>", text, re.DOTALL
    )
    return [re.sub('alt="[^"]*"', "alt", tag) for tag in found]


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
        "al",
        "Two ⟨1⟩ three",
        "Loose text",
        "after break",
        "deep",
        "Cell a",
        "Use ⟨1⟩ and ⟨2⟩ in ⟨3⟩",
        "Unclosed ⟨1⟩bold",
        "and ⟨1⟩ stray ends",
        "⟨1⟩Press me⟨2⟩",
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
        ("item", "a"),
        ("item", "t"),
        ("paragraph", "more &unknown; <img>`X Y` <a>here</a>. End."),
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


@pytest.mark.parametrize("tag", ["p", "li", "dt", "dd", "option", "td", "th"])
def test_what_is_not_translated_ends_where_the_next_one_begins(tag: str) -> None:
    around = {"li": "ul", "dt": "dl", "dd": "dl", "option": "select", "td": "table><tr", "th": "table><tr"}.get(
        tag, "div"
    )
    assert segments(f'<{around}><{tag} class="notranslate">Name<{tag}>Next<{tag} translate=NO>Nor<{tag}>Last') == [
        "Next",
        "Last",
    ]


def test_many_paragraphs_without_end_tags() -> None:
    assert len(segments("<p>One" * 5000)) == 5000


PHRASING = (
    *("a", "abbr", "b", "bdi", "bdo", "button", "cite", "data", "del", "dfn", "em", "font", "i", "ins", "label", "map"),
    *("mark", "meter", "nobr", "output", "picture", "progress", "q", "s", "slot", "small", "span", "strong", "sub"),
    *("sup", "time", "u"),
)


@pytest.mark.parametrize("tag", PHRASING)
def test_what_stands_inside_a_sentence(tag: str) -> None:
    assert segments(f"<p>See <{tag}>this one</{tag}> now.") == ["See ⟨1⟩this one⟨2⟩ now."]


@pytest.mark.parametrize(
    "markup",
    [
        *("<!-- x -->", "<!---->", "<?php a->b ?>", "<?xml:namespace prefix=o />", "<![CDATA[x]]>", "<link rel=a>"),
        *("<script>no()</script>", "<style>p {}</style>", "<template><p>x</template>", "<meta itemprop=a content=b>"),
        *(
            "<code>x</code>",
            "<textarea>x</textarea>",
            "<svg><text>x</text></svg>",
            "<iframe>x</iframe>",
            "<kbd>x</kbd>",
        ),
        *("<object>x</object>", "<input>", "<embed src=a>", "<img src=a>", "<area>", "<bdi/>"),
    ],
)
def test_what_is_left_inside_a_sentence(markup: str) -> None:
    page = f"{markup}<p>See {markup} now.<p>End."
    assert segments(page) == ["See ⟨1⟩ now.", "End."]
    assert translated(HtmlFile(page.encode(), "a.html"), shouted)[0].decode() == f"{markup}<p>SEE {markup} NOW.<p>END."


def test_what_cannot_be_seen_stays_outside_a_segment() -> None:
    page = "<p><!-- a -->One <!-- b -->two.<!-- c --> <script>d</script>Three.<!-- e --></p>"
    assert segments(page) == ["One ⟨1⟩two.", "Three."]
    assert shown(HtmlFile(page.encode(), "a.html")) == [("paragraph", "One two. Three.")]
    found, _ = translated(HtmlFile(page.encode(), "a.html"), shouted)
    assert found.decode() == "<p><!-- a -->ONE <!-- b -->TWO.<!-- c --> <script>d</script>THREE.<!-- e --></p>"


def test_elements_with_texts_of_their_own_inside_a_sentence() -> None:
    page = "<p>Have <select><option>no<option>one <b>child</b></select> or <video src=a>No video.</video> too.</p>"
    assert segments(page) == ["no", "one ⟨1⟩child⟨2⟩", "No video.", "Have ⟨1⟩ or ⟨2⟩ too."]
    found, _ = translated(HtmlFile(page.encode(), "a.html"), shouted)
    assert found.decode() == (
        "<p>HAVE <select><option>NO<option>ONE <b>CHILD</b></select> OR <video src=a>NO VIDEO.</video> TOO.</p>"
    )


def test_buttons_side_by_side_are_no_sentence() -> None:
    assert segments(
        "<p>Press <button>Save</button> or <button>Drop</button>: <button>Help</button> <label>Name</label>"
    ) == [
        "Press ⟨1⟩Save⟨2⟩ or ⟨3⟩Drop⟨4⟩: ⟨5⟩Help⟨6⟩",
        "Name",
    ]


ATTRIBUTES = """<html lang="en-GB"><meta name=description content="About us"><meta name=author content="Ann">
<style title="Plain"></style><p title='Say "hi" &amp; go'>See <img alt="A &quot;big&quot; cat" src=a title=cat> or.</p>
<p><a href="a b" title="Two words. Two sentences.">here <input placeholder="Your name"></a>.</p>
<p translate=no title="No">x</p><input type=submit value=Send><input type=text value="Ann">
<textarea placeholder="Your words">x</textarea><span lang=fr xml:lang="en">oui</span></html>"""


def test_attributes_that_are_prose() -> None:
    assert segments(ATTRIBUTES) == [
        "About us", 'Say "hi" & go', 'A "big" cat', "cat", "See ⟨1⟩ or.", "Two words.", "Two sentences.",
        "Your name", "⟨1⟩here ⟨2⟩.", "Send", "Your words", "⟨1⟩ ⟨2⟩oui⟨3⟩",
    ]  # fmt: skip
    found, _ = translated(HtmlFile(ATTRIBUTES.encode(), "a.html", "es"), lambda segment, _: f"<\"'{segment.text}")
    lines = found.decode().split("\n")
    quotes = "&lt;&quot;&#x27;"
    assert lines[0] == (
        f'<html lang="es"><meta name=description content="{quotes}About us"><meta name=author content="Ann">'
    )
    assert lines[1] == (
        f"<style title=\"Plain\"></style><p title='{quotes}Say &quot;hi&quot; &amp; go'>&lt;\"'See "
        f'<img alt="{quotes}A &quot;big&quot; cat" src=a title="{quotes}cat"> or.</p>'
    )
    assert lines[2] == (
        f'<p>&lt;"\'<a href="a b" title="{quotes}Two words. {quotes}Two sentences.">here '
        f'<input placeholder="{quotes}Your name"></a>.</p>'
    )
    assert lines[3:] == [
        f'<p translate=no title="No">x</p>&lt;"\'<input type=submit value="{quotes}Send"><input type=text value="Ann">',
        f'<textarea placeholder="{quotes}Your words">x</textarea><span lang=fr xml:lang="es">oui</span></html>',
    ]
    assert translated(HtmlFile(ATTRIBUTES.encode(), "a.html", "es"), unchanged)[0] == ATTRIBUTES.encode()


def test_only_the_language_of_the_page_becomes_that_of_the_translation() -> None:
    page = '<html lang=en xml:lang="en"><p lang="de">Wort</p><p lang=EN-us>Word</p><p lang=en translate=no>x</p>'
    found, _ = translated(HtmlFile(page.encode(), "a.html", "pt-BR"), shouted)
    assert found.decode() == (
        '<html lang="pt-BR" xml:lang="pt-BR"><p lang="de">WORT</p><p lang="pt-BR">WORD</p><p lang=en translate=no>x</p>'
    )
    assert b'lang=en xml:lang="en"' in translated(HtmlFile(page.encode(), "a.html"), shouted)[0]


def test_readings_are_no_text() -> None:
    """With and without end tags; the base is text and begins or ends a segment with its whole ruby."""
    page = "<p><ruby>東<rp>(</rp><rt>a</rt><rp>)</rp>京<rt>b</ruby> city. So <ruby><rb>x<rb>y<rt>c<rt>d</ruby></p>"
    page += "<p>Its <b>end</b>"
    assert segments(page) == ["東京 city.", "So xy", "Its ⟨1⟩end⟨2⟩"]
    assert shown(HtmlFile(page.encode(), "a.html"))[0] == ("paragraph", "東京 city. So xy")
    found, counts = translated(HtmlFile(page.encode(), "a.html"), shouted)
    assert found.decode() == "<p>東京 CITY. SO XY</p><p>ITS <b>END</b>"
    assert counts == {"readings over characters (ruby) left out": 4}
    assert translated(HtmlFile(page.encode(), "a.html"), unchanged) == (page.encode(), {})


def test_where_words_may_break_is_no_text() -> None:
    page = "<p>Donau&shy;dampf\u00adschiff<wbr>fahrt &shy; ends</p>"
    assert segments(page) == ["Donaudampfschifffahrt ends"]
    assert translated(HtmlFile(page.encode(), "a.html"), shouted)[0] == b"<p>DONAUDAMPFSCHIFFFAHRT ENDS</p>"
    assert translated(HtmlFile(page.encode(), "a.html"), unchanged)[0] == page.encode()


def test_initials_belong_to_their_word() -> None:
    page = (
        '<p><span class="cap"><b>O</b></span>nce here. <b>T</b>wo.</p><p><big>“A</big>nd so.</p><p><b>x</b>y <i>Z</i>ed'
    )
    assert segments(page) == ["Once here.", "⟨1⟩T⟨2⟩wo.", "“And so.", "⟨1⟩x⟨2⟩y ⟨3⟩Z⟨4⟩ed"]
    given = iter(("érase aquí.", "⟨1⟩D⟨2⟩os.", "<y así.", "⟨1⟩x⟨2⟩y ⟨3⟩Z⟨4⟩ed"))
    found, counts = translated(HtmlFile(page.encode(), "a.html"), lambda *_: next(given))
    assert found.decode() == (
        '<p><span class="cap"><b>é</b></span>rase aquí. <b>D</b>os.</p><p>&lt;y así.</p><p><b>x</b>y <i>Z</i>ed'
    )
    assert counts == {"initials that lost their form": 1}


def test_references_and_literal_ampersands() -> None:
    assert segments("<p>AT&T &amp; R&D &copy &#65;&#x42; &unknown; a&b=c") == ["AT&T & R&D © AB ⟨1⟩ a&b=c"]


def test_xhtml() -> None:
    """Any element may be empty, and namespaces and CDATA are no prose."""
    page = '<?xml version="1.0"?><html xmlns:x="u"><head><title/><script src="a"/></head><body><a id="b"/>One<i/> two'
    page += "<p/>three"
    assert segments(page) == ["⟨1⟩One⟨2⟩ two", "three"]


@pytest.mark.parametrize("end", ["---", "..."])
def test_what_a_page_says_about_itself_stays(end: str) -> None:
    front = f"---\nlayout: default\ntitle: The cat\n{end}\n"
    assert segments(f"{front}<h1>The dog</h1>") == ["The dog"]
    assert segments("<p>A rule</p>\n---\nlayout: text\n---\n") == ["A rule", "--- layout: text ---"]
