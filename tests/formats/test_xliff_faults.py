"""Damaged, hostile or odd XLIFF and placeholders in any order: a one-line error, or every element once."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random

import pytest
from lxml import etree

from scaleformer.formats.xliff import XliffFile
from scaleformer.system.errors import DataError
from tests.formats.fake import jumbler, translate, unchanged
from tests.formats.faults import check_fault
from tests.formats.word import BOMB
from tests.formats.xliff import INLINE_1, INLINE_2, one, two, unit


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", r"a\.xlf:1: malformed XML .no element found", id="empty"),
        pytest.param("words", r"a\.xlf:1: malformed XML .syntax error", id="words"),
        pytest.param(one(unit("a"))[:-30], r"a\.xlf:3: malformed XML .unclosed", id="cut short"),
        pytest.param(one(unit("a"))[:200], r"a\.xlf:3: malformed XML", id="cut in a tag"),
        pytest.param("<tmx/>", r"a\.xlf:1: <tmx>, wanted <xliff>", id="another root"),
        pytest.param(BOMB + "<xliff>&e29;</xliff>", r"a\.xlf: declares the entity 'e0'", id="billion laughs"),
        pytest.param(BOMB + "<xliff a='&e29;'/>", r"a\.xlf: declares the entity 'e0'", id="in an attribute"),
        pytest.param(
            "<!DOCTYPE xliff [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><xliff>&e;</xliff>",
            "declares the entity 'e'",
            id="from outside",
        ),
        pytest.param("<!DOCTYPE x [<!ENTITY % e SYSTEM 'http://x/'>%e;]><xliff/>", "declares the entity 'e'", id="%"),
        pytest.param(one(unit("a&nbsp;b")), r"a\.xlf:3: malformed XML .undefined entity", id="undefined"),
        pytest.param(
            "<!DOCTYPE xliff SYSTEM 'x.dtd'><xliff>&nbsp;</xliff>", r"a\.xlf:1: the entity &nbsp; is not", id="of a DTD"
        ),
        pytest.param("<xliff>" * 100_000, r"a\.xlf:1: more than 256 nested elements", id="deep"),
        pytest.param(one(unit("<g>" * 300 + "x" + "</g>" * 300)), r"a\.xlf:3: more than 256", id="deep inside"),
        pytest.param(one("<trans-unit id='1'/>"), r"a\.xlf:3: a unit without <source>", id="no source"),
        pytest.param(two("<segment/>"), r"a\.xlf:2: a unit without <source>", id="no source in 2"),
        pytest.param(one(unit("é")).encode("latin-1"), r"a\.xlf:3: malformed XML .not UTF-8", id="latin-1"),
        pytest.param(one(unit("a\0b")), r"a\.xlf:3: malformed XML .*invalid token", id="null"),
        pytest.param(one(unit("a\x0bb")), r"a\.xlf:3: malformed XML .*invalid token", id="control"),
        pytest.param(one(unit("&#0;")), r"a\.xlf:3: malformed XML .*invalid character number", id="null reference"),
        pytest.param(one(unit("&#xD800;")), r"a\.xlf:3: malformed XML .*invalid character", id="half a character"),
        pytest.param(one(unit("a")).replace("UTF-8", "punycode"), r"a\.xlf: .*unknown encoding='punycode'", id="code"),
        pytest.param(one(unit("a")).replace("UTF-8", "no"), r"a\.xlf: malformed XML .*unknown encoding='no'", id="no"),
        pytest.param(one(unit("<z:g>a</z:g>")), r"a\.xlf:3: malformed XML .unbound prefix", id="prefix"),
        pytest.param(one(unit("<g a='1' a='2'/>")), r"a\.xlf:3: malformed XML .duplicate attribute", id="attribute"),
        pytest.param(one(unit("<g><x></g></x>")), r"a\.xlf:3: malformed XML .mismatched tag", id="crossed"),
        pytest.param("<xliff/><xliff/>", r"a\.xlf:1: malformed XML .junk after", id="two roots"),
        pytest.param("PK\3\4" + "\0" * 100, r"a\.xlf:1: malformed XML", id="a zip"),
    ],
)
def test_faults(text: str | bytes, message: str) -> None:
    check_fault(lambda: XliffFile(text.encode() if isinstance(text, str) else text, "a.xlf"), message)


@pytest.mark.parametrize(
    "text",
    [
        one(unit("a <x/> " * 2_000)),
        one(unit("a", f"<target a='{'x' * 10_000_000}'/>")),
        one(unit("word " * 200_000)),
        one(*(unit(f"text {n}") for n in range(20_000))),
        one(unit("a" + "<g id='1'/>" * 20_000)),
        one(unit("<bx id='1'/>a<ex id='2'/><ex id='2'/><ept/><bpt/> b")),
        one("<trans-unit><source>a</source><source>b</source><target/><target/></trans-unit>"),
        one("<!--" + "-" * 0 + "x" * 5_000_000 + "-->", unit("<?pi x?>a<!-- b -->c")),
    ],
    ids=[
        "many tags",
        "a huge attribute",
        "a long text",
        "many units",
        "many neighbours",
        "odd pairs",
        "twice",
        "comment",
    ],
)
def test_what_is_odd_is_read_quickly(text: str) -> None:
    file = XliffFile(text.encode(), "a.xlf")
    assert unchanged(file) == text.encode()
    etree.fromstring(translate(file)[0], etree.XMLParser(huge_tree=True))


def test_whatever_a_model_makes_of_the_placeholders() -> None:
    """Every element is there once, and every letter."""
    random = Random(3)

    def made(depth: int = 0) -> str:
        number = random.randrange(4)
        inner = "".join(made(depth + 1) for _ in range(random.randrange(3))) if depth < 4 else ""
        words = "".join(random.choices(("word ", "x", " ", "End. ", "%s ", "&amp; ", "&lt;b&gt;", "\n"), k=3))
        kinds = (words, f"<g id='{number}'>{inner}</g>", f"<mrk>{inner}</mrk>", "<x/>", f"<bx id='{number}'/>",
                 f"<ex id='{number}'/>", f"<bpt rid='{number}'>y</bpt>", f"<ept rid='{number}'>y</ept>")  # fmt: skip
        return random.choices(kinds, (8, *[1] * (len(kinds) - 1)))[0]

    def held(element: etree._Element) -> tuple[Counter[object], list[str]]:
        tags = Counter((e.tag, *e.attrib.items()) for e in element.iterdescendants())
        return tags, sorted("".join("".join(element.itertext()).upper().split()))

    for _ in range(500):
        text = one(unit("a" + "".join(made() for _ in range(6)), "<target/>"))
        root = etree.fromstring(translate(XliffFile(text.encode(), "a.xlf"), jumbler(random))[0])
        source, target = next(root.iter("{*}source")), next(root.iter("{*}target"))
        assert held(source) == held(target)


@pytest.mark.parametrize(
    "text", [one(unit(INLINE_1), unit("b")), two(f"<segment><source>{INLINE_2}</source></segment>")]
)
def test_no_damage_is_another_error(text: str) -> None:
    random = Random(3)
    for _ in range(300):
        begin, length = random.randrange(len(text)), random.randrange(1, 30)
        with suppress(DataError):
            translate(XliffFile((text[:begin] + text[begin + length :]).encode(), "a.xlf"))


def test_segments_that_do_not_belong_together_are_left_in_one_piece() -> None:
    """Others of the target, twice the same, one in the other, states of none: never lost and never twice."""
    one_, two_ = (f'<mrk mtype="seg" mid="1">{word}.</mrk>' for word in ("One", "Two"))
    nested = f'<mrk mtype="seg" mid="1">Before {two_} after.</mrk>'
    states = '<sdl:seg-defs><sdl:seg/><sdl:seg id="1" locked="no"/><sdl:seg id="1"/></sdl:seg-defs>'
    for segments in (one_, one_ + two_, nested, nested * 3):
        for target in ("", "<target/>", "<target><mrk mtype='seg' mid='2'/></target>", f"<target>{nested}</target>"):
            text = one(unit("All.", f"<seg-source>{segments}</seg-source>{target}{states}"))
            text = text.replace("<xliff", '<xliff xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0"')
            file = XliffFile(text.encode(), "a.sdlxliff")
            assert unchanged(file) == text.encode()
            root = etree.fromstring(translate(file)[0])
            [found] = ("".join(element.itertext()) for element in root.iter("{*}target"))
            source = "".join(etree.fromstring(f"<a>{segments}</a>").itertext())
            assert found == (source.upper() if file.blocks else "Before Two. after.")
