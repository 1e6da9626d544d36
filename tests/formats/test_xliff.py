"""XLIFF: untranslated units are filled with all their inline elements, the rest stays byte for byte."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from lxml import etree
from translate.storage.xliff import xlifffile
from translate.storage.xliff2 import Xliff2File

from scaleformer.formats.files import read_prose
from scaleformer.formats.xliff import XliffFile
from scaleformer.system.errors import DataError
from tests.formats.fake import jumbler, translate, unchanged

ONE = """<?xml version='1.0' encoding="UTF-8" standalone='no'?>
<!-- a comment --><xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:f="urn:f">
<file original='a.html' source-language="en" target-language="es" datatype="x"><body>{}</body></file></xliff>
"""
TWO = """<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="es">
 <file id="f1"><unit id="u">{}</unit></file>
</xliff>"""
BOMB = '<!DOCTYPE xliff [<!ENTITY e0 "x">' + "".join(f'<!ENTITY e{n} "&e{n - 1};&e{n - 1};">' for n in range(1, 30))
BOMB += "]>"


def one(*units: str) -> str:
    return ONE.format("".join(units))


def two(*segments: str) -> str:
    return TWO.format("".join(segments))


def unit(source: str, target: str = "", attributes: str = "") -> str:
    return f"<trans-unit id='1'{attributes}><source>{source}</source>{target}</trans-unit>"


def filled(text: str) -> str:
    data, _ = translate(XliffFile(text.encode(), "a.xlf"))
    etree.fromstring(data)
    return data.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '<target state="translated">OPEN IT &lt; X &amp; "GO"</target>'),
        ("<target/>", '<target state="translated">OPEN IT &lt; X &amp; "GO"</target>'),
        ("<target xml:lang='es' />", '<target xml:lang=\'es\' state="translated">OPEN IT &lt; X &amp; "GO"</target>'),
        ("<target> </target>", '<target state="translated">OPEN IT &lt; X &amp; "GO"</target>'),
        (
            "<target state-qualifier='fuzzy-match' f:a='>' state = 'new'>Abrir</target><note>n</note>",
            '<target f:a=\'>\' state = "translated">OPEN IT &lt; X &amp; "GO"</target><note>n</note>',
        ),
        (
            "<target state='needs-translation'>x</target>",
            '<target state="translated">OPEN IT &lt; X &amp; "GO"</target>',
        ),
        ("<target>Abrir</target>", None),
        ("<target state='needs-review-translation'>Abrir</target>", None),
        ("<alt-trans><target>x</target></alt-trans>", None),
    ],
)
def test_targets_of_1(before: str, after: str | None) -> None:
    source = 'Open it &lt; x <![CDATA[&]]> "go"'
    if before.startswith("<alt"):
        after = '<target state="translated">OPEN IT &lt; X &amp; "GO"</target>' + before
    found = filled(one(unit(source, before)))
    assert found == one(unit(source, before if after is None else after))


def test_what_is_left() -> None:
    text = one(
        unit("Yes.", "<target>Sí.</target>"),
        unit("No.", "", " translate='no'"),
        "<group translate='no'>" + unit("No.") + unit("Yes.", "", " translate='yes'") + "</group>",
        unit("<x id='1'/> 10"),
        unit("<g/>"),
    )
    file = XliffFile(text.encode(), "a.xlf")
    assert [block.text for block in file.blocks] == ["Yes."]
    assert file.left == {"units not to be translated": 2, "translated units": 1, "units without words": 2}
    text = two("<segment><source>A</source><target>b</target></segment>").replace("<unit", "<unit translate='no'")
    assert XliffFile(text.encode(), "a.xlf").left == {"units not to be translated": 1}


INLINE_1 = (
    'See <g id="1" ctype="bold">the <x id="2"/>big</g> <bpt id="3" rid="9">&lt;b&gt;</bpt>file<ept id="4" rid="9">'
    '&lt;/b&gt;</ept> <bx id="5"/>and<ex id="5"/> <ph id="6">{0}</ph>, <it id="7" pos="open">x</it> '
    '<mrk mtype="term">word</mrk> <mrk mtype="protected">Kept <x id="8"/></mrk> <f:other>raw</f:other> end.'
)
INLINE_2 = (
    'See <pc id="1">the <ph id="2"/>big</pc> <sc id="3"/>file<ec startRef="3"/> <cp hex="0007"/> and '
    '<mrk id="m1" type="term">word</mrk> <sm id="m2" type="x"/>here<em startRef="m2"/> <mrk id="m3" translate="no">Kept'
    "</mrk> end."
)


@pytest.mark.parametrize("version", [1, 2])
def test_inline_elements(version: int) -> None:
    text = one(unit(INLINE_1)) if version == 1 else two(f"<segment><source>{INLINE_2}</source></segment>")
    root = etree.fromstring(filled(text).encode())
    source, target = (next(root.iter(f"{{*}}{name}")) for name in ("source", "target"))
    inside = [
        sorted(e.tag if e.text else etree.tostring(e, with_tail=False).decode().upper() for e in side.iterdescendants())
        for side in (source, target)
    ]
    assert inside[0] == inside[1]
    words = "".join(target.itertext())
    assert "SEE THE" in words
    assert "Kept" in words
    assert words.endswith("END.")
    assert [e.text for e in target.iter("{*}g", "{*}pc")] == ["THE "]
    assert next(e.text for e in target.iter("{*}mrk")) == "WORD"


def test_tags_in_the_text_of_a_unit_are_escaped_again() -> None:
    text = one(unit("Open &lt;b&gt;the&lt;/b&gt; %s &amp;amp; file"))
    data, _ = translate(XliffFile(text.encode(), "a.xlf"), lambda segment: segment.text.upper())
    assert ">OPEN &lt;b&gt;THE&lt;/b&gt; %s &amp;AMP; FILE</target>" in data.decode()


def test_placeholders_and_messages_in_units() -> None:
    text = one(unit("Open %1 of %L2, :name, &lt;0&gt;it&lt;/0&gt;"))
    assert ">OPEN :name OF %L2, %1, &lt;0&gt;IT&lt;/0&gt;</target>" in filled(text)
    message = "{{VAR_PLURAL, plural, =0 {{{}}} other {{<x id='I' equiv-text='{{{{m}}}}'/> {}}} }}"
    text = one(unit(message.format("just now", "minutes ago")))
    assert f">{message.format('JUST NOW', 'MINUTES AGO')}</target>" in filled(text)
    text = one(unit("In {n, plural, one {a minute} other {# minutes}}"), unit("{n, select, other {# of {k}}}"))
    file = XliffFile(text.encode(), "a.xlf")
    assert translate(file, lambda _: "l'⟨1⟩")[0] == text.encode()
    assert file.left == {
        "units with a plural or select inside a sentence": 1,
        "units whose translation would change placeholders": 1,
    }


def test_files_say_the_language_of_their_translation() -> None:
    for whole, attribute in (
        (two("<segment><source>a</source></segment>"), "trgLang"),
        (one(unit("a")), "target-language"),
    ):
        text = whole.replace(f' {attribute}="es"', "")
        file, _ = read_prose(text.encode(), "a.xlf", "xliff", "en", "sentence", "fr")
        assert unchanged(file) == text.encode()
        root = etree.fromstring(translate(file)[0])
        assert [e.get(attribute) for e in root.iter("{*}xliff", "{*}file") if e.get(attribute)] == ["fr"]
        assert not file.left
        same, _ = translate(XliffFile(whole.encode(), "a.xlf", "fr"))
        assert f'{attribute}="es"'.encode() in same
        unknown = XliffFile(text.encode(), "a.xlf")
        assert attribute.encode() not in translate(unknown)[0]
        assert unknown.left.total() == (attribute == "trgLang")


def test_segments_of_2() -> None:
    text = two(
        "\n  <segment id='s' state='initial' subState='x:y'>"
        "\n   <source>One.</source>\n   <target>Uno.</target>\n  </segment>",
        "<ignorable><source> </source></ignorable>",
        "\n  <segment>\n   <source>Two.</source>\n  </segment>",
        "<segment state='final'><source>Three.</source><target>Tres.</target></segment>",
        "<segment><source>Four.</source><target>Cuatro.</target></segment>",
    )
    wanted = two(
        "\n  <segment id='s' state=\"translated\">\n   <source>One.</source>\n   <target>ONE.</target>\n  </segment>",
        "<ignorable><source> </source></ignorable>",
        '\n  <segment state="translated">\n   <source>Two.</source>\n   <target>TWO.</target>\n  </segment>',
        "<segment state='final'><source>Three.</source><target>Tres.</target></segment>",
        "<segment><source>Four.</source><target>Cuatro.</target></segment>",
    )
    assert filled(text) == wanted


def test_segmented_sources_prefixes_and_line_breaks() -> None:
    text = one(unit("A b.", "<seg-source><mrk mid='0' mtype='seg'>A b.</mrk></seg-source>"))
    assert "</seg-source><target state=\"translated\"><mrk mid='0' mtype='seg'>A B.</mrk></target>" in filled(text)
    text = one(unit("A b.", "<target/>")).replace("xmlns=", "xmlns:x=")
    for name in ("xliff", "file", "body", "trans-unit", "source", "target"):
        text = text.replace(f"<{name}", f"<x:{name}").replace(f"</{name}", f"</x:{name}")
    assert '<x:target state="translated">A B.</x:target>' in filled(text)
    assert '</x:source><x:target state="translated">A B.</x:target>' in filled(text.replace("<x:target/>", ""))
    for end in ("\n", "\r\n", "\n\t", "&#10;"):
        found = filled(one(unit(f"one two{end}three four")))
        assert f">ONE TWO{end.replace('&#10;', chr(10))}THREE FOUR</target>" in found


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-16-le", "iso-8859-1", "windows-1252"])
def test_encodings(encoding: str) -> None:
    """Characters that the encoding lacks become references."""
    name = encoding.removesuffix("-sig")
    data = one(unit("Né.", "<target/>")).replace("UTF-8", name).encode(encoding)
    file = XliffFile(data, "a.xlf")
    assert unchanged(file) == data
    root = etree.fromstring(translate(file, lambda _: "É 日")[0])
    assert next(root.iter("{*}target")).text == "É 日"


def test_bytes_stay() -> None:
    for text in (one(unit(INLINE_1), unit("b")), two(f"<segment><source>{INLINE_2}</source></segment>"), "<xliff/>"):
        for end in ("\n", "\r\n", "\r"):
            data = text.replace("\n", end).encode()
            assert unchanged(XliffFile(data, "a.xlf")) == data


def test_what_the_toolkit_writes_is_filled_for_it(tmp_path: Path) -> None:
    texts = ["Plain.", 'A <b> & "c"', "10\u00a0km", "Two\nlines", "é日"]
    for kind in (xlifffile, Xliff2File):
        store = kind()
        for number, text in enumerate(texts):
            added = kind.UnitClass(text)
            added.setid(str(number)) if kind is xlifffile else None
            store.addunit(added)
        data = bytes(store)
        file = XliffFile(data, "a.xlf")
        assert len(file.blocks) == len(texts)
        assert unchanged(file) == data
        again = kind.parsestring(translate(file, lambda segment: segment.text.upper())[0])
        wanted = [text.upper().replace("<B>", "<b>") for text in texts]
        assert [u.target for u in again.units] == wanted
        assert XliffFile(translate(file)[0], "a.xlf").left == {"translated units": len(texts)}


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
    with pytest.raises(DataError, match=message) as caught:
        XliffFile(text.encode() if isinstance(text, str) else text, "a.xlf")
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


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
