"""Spans in a line that are not prose, and how they are masked in a pair of lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaleformer.text.spans import find_spans, mask_pair
from scaleformer.vocabulary import PLACEHOLDERS

# Guillemets enclose the expected spans.
FOUND = [
    "Call «`f(x)`» or «``a`b``».",
    "«<https://x.org/a?b#c>», «<me@x.org>» and «<mailto:me@x.org>».",
    "See «https://docs.python.org/3/a_(b).html?x=1#y», or «http://x.org/a».",
    "(«www.example.org») and «mailto:me@x.org» and «first.last+tag@mail.example.org».",
    'Read «[»the manual«](https://x.org/a_(b) "A title")», «![»a cat«](cat.png)», [not] (this).',
    "«[»all of «`x`»«](a/b.md)» and [one [«[»inner«](x)»",
    "«**»Bold«**», «__»strong«__», «***»both«***», a ** b ** c, 2**3.",
    "snake__case__name, and __open",
    "«*»Even«*» «_»this«_», (*not, 2*3*4, snake_case_name, `x`_ or *.py and *.md, a_ and _b.".replace("`x`", "«`x`»"),
    "«[»A page«][ref]» of «[»pages«][]»«[^note]», but x[i][j], f()[a][b] and [1] [2].",
    "A «:ref:`x`», «:py:meth:`!run`», «:doc:`»the tour« <tour/start>`» and «`»a page« <https://x.org>`_».",
    "Write «<b>»bold«</b>», «<br/>», «<a href=\"x?a>b\" title='y'>»here«</a>», «<input disabled>».",
    "«<!-- a comment -->»«</i>»",
    "If a < b and c > d, or a <b and c> d.",
    "«%s», «%(name)s» of «%1$s», «%5.2f», «%-10d», «%Y»-«%m», 50%d, 100 % sure, 20%.",
    "«{name}», «{0}», «{}», «{user.name!r:>8}», «{{ page.title }}», «{% if a %}»yes«{% endif %}», «${HOME}», {a word}.",
    "«3.12.1», «v2.0», «V1.2rc1», Python «3.12», PostgreSQL «9.6b1», Node.js «18.2», version «2.5», Versión «2.5».",
    "«%1» of «%L2», «%%» of 5%, «%{name}», «#{x.y}», «:name» and «$1» or «$name», «$NAME$».",
    "«$HOME/bin», «%<n>05.2f».",
    "«<0>»here«</0>», «<1/>», «%1»«%2» at «%1%», «#1####», «[_1]», «@user», «%*d», «%'d», «%<PRIu64>».",
    "«{n, number, #.#}», «{0,-5:C}».",
    "It costs $10 or $1.50, C++ has std::vector, :smile: at 10:30, Nutzer:innen, a@b, {a, b} 100%.",
    "«%(first name)s», 20%(about), «#{a + b}», «%s»日«%d»個, 日«$name»的.",
    "Release «1.0», Python>=«3.8», IP «192.168.0.1».",
    "About 3.5 hours, The 2.5 million, 3.5 of it, EUR 3.50, 1.234.567 people, 24.12.2024, item 2.1, x1.2.3.",
    "In «/usr/lib», «~/notes», «./a», «../b/c.txt», «src/main.py», «src/data/», «.github/x.yml».",
    "and/or, he/she/it, km/h, 24/7, 1/2/2024, either / or",
    "A literal «⟨1⟩» and «⟨9⟩», but ⟨10⟩.",
    r"Escaped \`code`, \**text**, \[a](b) and \{name}.",
    "Plain prose, with “quotes”, dashes – and 1,234 numbers; nothing else: at all!",
    "",
]
# Repeated openings without an end: quadratic time would take minutes.
ENDLESS = [
    "[a][",
    "[^a",
    "<https://a",
    "*a ",
    "_a ",
    "`",
    "``a",
    "[a](",
    '[a](b "',
    "](a'",
    "**a",
    "__a ",
    "<a b=",
    "<a b='",
    "<!-- ",
    "{",
    "{{a",
    "{%a ",
    "${a",
    "%(a",
]
ENDLESS += [
    ":a",
    ":a-",
    ":a:`",
    "`a <",
    "a@",
    "a.b@c.",
    "a/",
    "/a",
    "../",
    "1.",
    "1.1.1x",
    "v1.",
    "A+",
    "Ab ",
    "http://",
    "www.",
]
ENDLESS += [
    "%{",
    "#{a",
    "%<a",
    "{a,",
    "{ a, number",
    "$a",
    "$a/",
    "$a$b",
    ":a_",
    "@a",
    "<1",
    "#1#",
    "%1%",
    "[_1",
    "__a",
    "__a_",
]
ENDLESS += ["[", "]", "](", "(", "\\", "a", " ", "%", "-", "⟨1", "<", "a b=c ", "' \"", "<a  ", "/@"]


def marked(text: str) -> str:
    parts, end = [], 0
    for start, stop in find_spans(text):
        parts += [text[end:start], "«", text[start:stop], "»"]
        end = stop
    return "".join([*parts, text[end:]])


@pytest.mark.parametrize("wanted", FOUND)
def test_spans_are_found(wanted: str) -> None:
    assert marked(wanted.replace("«", "").replace("»", "")) == wanted


@pytest.mark.parametrize("part", ENDLESS)
def test_unclosed_beginnings_take_linear_time(part: str) -> None:
    """A pattern that tries every end again for every beginning would be at it for hours."""
    for beginning in ("", "<a ", "`", "[x](", ":a:`"):
        text = beginning + part * 10_000
        assert sum(stop - start for start, stop in find_spans(text)) <= len(text)


@settings(max_examples=300, deadline=None)
@given(text=st.lists(st.sampled_from([*ENDLESS, *"»`)}>*_.", "b", "`_", "%}", "}}", "-->"]), max_size=30).map("".join))
def test_spans_are_ordered_and_do_not_overlap(text: str) -> None:
    spans = find_spans(text)
    flat = [place for span in spans for place in span]
    assert flat == sorted(flat)
    assert all(0 <= start < stop <= len(text) for start, stop in spans)


@pytest.mark.parametrize(
    ("source", "target", "masked"),
    [
        ("Call `f` of `g`.", "`g` tiene `f`.", ("Call ⟨1⟩ of ⟨2⟩.", "⟨2⟩ tiene ⟨1⟩.")),
        ("`a`, `b`, `a`", "`a` y `a`; `b`", ("⟨1⟩, ⟨2⟩, ⟨3⟩", "⟨1⟩ y ⟨3⟩; ⟨2⟩")),
        ("`a` and `a`, `b`", "`a` y `b`", ("`a` and `a`, ⟨1⟩", "`a` y ⟨1⟩")),  # not equally often
        ("**Open** {name}", "**Abrir** {nombre}", ("⟨1⟩Open⟨2⟩ {name}", "⟨1⟩Abrir⟨2⟩ {nombre}")),
        ("⟨1⟩ `a`", "⟨1⟩ `a`", ("⟨1⟩ `a`", "⟨1⟩ `a`")),
        ("`a`", "`a` ⟨3⟩", ("`a`", "`a` ⟨3⟩")),
        ("no span", "ninguno", ("no span", "ninguno")),
        ("See **[`f`](u)**.", "Véase **[`f`](u)**.", ("See ⟨1⟩.", "Véase ⟨1⟩.")),
        (
            "**[the page](u)** `a` *b*",
            "**[la página](u)** `a` *c*",
            ("⟨1⟩the page⟨2⟩ ⟨3⟩ ⟨4⟩b⟨5⟩", "⟨1⟩la página⟨2⟩ ⟨3⟩ ⟨4⟩c⟨5⟩"),
        ),
        ("[`f`](en)", "[`f`](es)", ("⟨1⟩⟨2⟩](en)", "⟨1⟩⟨2⟩](es)")),  # not the same run
        ("`a`", "", ("`a`", "")),
        (
            " ".join(f"{{{n}}}" for n in range(11)),
            " ".join(f"{{{n}}}" for n in reversed(range(11))),
            (" ".join([*PLACEHOLDERS, "{9}", "{10}"]), " ".join(["{10}", "{9}", *reversed(PLACEHOLDERS)])),
        ),
    ],
)
def test_pairs(source: str, target: str, masked: tuple[str, str]) -> None:
    assert mask_pair(source, target) == masked


def test_masked_text_can_be_restored() -> None:
    """On lines of real documents: with the spans in the places of the placeholders, both texts are there again."""
    folder = Path(__file__).parents[2] / "data" / "samples" / "raw"
    lines = [line for path in sorted(folder.rglob("*.md")) for line in path.read_text(encoding="utf-8").splitlines()]
    lines += FOUND
    count = 0
    for line in lines:
        if any(placeholder in line for placeholder in PLACEHOLDERS):
            continue
        source, target = mask_pair(line, f"Uno: {line}")
        assert target == f"Uno: {source}"
        runs = find_spans(line)
        for number in reversed(range(1, len(runs))):  # spans that follow each other have one placeholder
            if runs[number - 1][1] == runs[number][0]:
                runs[number - 1 : number + 1] = [(runs[number - 1][0], runs[number][1])]
        for (start, stop), placeholder in zip(runs, PLACEHOLDERS, strict=False):
            assert placeholder in source
            source = source.replace(placeholder, line[start:stop])
            count += 1
        assert source == line
    assert count > 50
