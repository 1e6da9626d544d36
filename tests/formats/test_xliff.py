"""XLIFF: untranslated units are filled with all their inline elements, the rest stays byte for byte."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from lxml import etree
from translate.storage.xliff import xlifffile
from translate.storage.xliff2 import Xliff2File

from scaleformer.formats.files import prose_changes, read_prose
from scaleformer.formats.xliff import XliffFile
from tests.formats.fake import translate, unchanged
from tests.formats.xliff import INLINE_1, INLINE_2, one, two, unit


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


def test_confidence_and_states_of_unsure_units() -> None:
    told = {0: (31.4, True), 1: (90.0, False)}
    units = unit("One.") + unit("Two.", "<target state='new' state-qualifier='mt-suggestion'/>") + unit("Three.")
    for text, wanted in (
        (one(units), [("needs-review-translation", "0.314"), ("translated", "0.900"), ("translated", None)]),
        (
            two(*(f"<segment><source>{word}.</source></segment>" for word in ("One", "Two", "Three"))),
            [
                ("initial", "scaleformer:confidence-31"),
                ("translated", "scaleformer:confidence-90"),
                ("translated", None),
            ],
        ),
    ):
        file, segments = read_prose(text.encode(), "a.xlf", "xliff", "en", "sentence")
        texts = [segment.text.upper() for some in segments for segment in some]
        root = etree.fromstring(file.write(prose_changes(segments, texts, Counter(), told=told)))
        found = list(root.iter("{*}segment" if "segment" in text else "{*}target"))
        key = "subState" if "segment" in text else "{http://www.w3.org/2005/11/its}mtConfidence"
        assert [(e.get("state"), e.get(key)) for e in found] == wanted


SDL = ' xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0"'


def trados(segments: str, target: str, states: str) -> str:
    inner = f"<seg-source>{segments}</seg-source>{target}<sdl:seg-defs>{states}</sdl:seg-defs>"
    return one(unit("All.", inner)).replace("<xliff", f"<xliff{SDL}")


def test_segments_of_trados_have_states_of_their_own() -> None:
    segments = "".join(
        f'<mrk mtype="seg" mid="{number}">{text}</mrk> '
        for number, text in enumerate(("One.", 'Two <g id="1">big</g>.', "Three.", "Four."), 1)
    )
    target = (
        '<target state="x-t"><mrk mtype="seg" mid="1">Uno.</mrk> <g id="9"><mrk mtype="seg" mid="2"/></g> '
        '<mrk mtype="seg" mid="3"></mrk><mrk mtype="seg" mid="4"/></target>'
    )
    said = (
        '<sdl:seg id="1" conf="ApprovedSignOff" origin="tm"/><sdl:seg id="2" percent="0"><sdl:value key="k"/></sdl:seg>'
    )
    said += '<sdl:seg locked="true" id="3"/>'
    text = trados(segments, target, said)
    file = XliffFile(text.encode(), "a.sdlxliff")
    assert unchanged(file) == text.encode()
    assert file.left == {"translated units": 1, "units not to be translated": 1}
    new = target.replace('mid="2"/>', 'mid="2">TWO <g id="1">BIG</g>.</mrk>').replace(
        'mid="4"/>', 'mid="4">FOUR.</mrk>'
    )
    told = said.replace('percent="0"', 'percent="0" conf="Draft" origin="mt" origin-system="scaleformer"')
    assert filled(text) == text.replace(target, new).replace(said, told)
    dropped: Counter[str] = Counter()
    again = XliffFile(filled(text).encode(), "a.sdlxliff")
    assert [(*row.source, *row.target) for row in again.rows("a", dropped)] == [("One.", "Uno."), ("Four.", "FOUR.")]
    assert dropped == {"fuzzy": 1, "not to be translated": 1}


def test_segments_without_a_target_are_translated_one_by_one() -> None:
    segments = '<mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2">Two.</mrk>'
    text = trados(segments, "", '<sdl:seg id="1"/><sdl:seg id="2"/>')
    file = XliffFile(text.encode(), "a.sdlxliff")
    assert [block.text for block in file.blocks] == ["One.", "Two."]
    target = f'<target state="translated">{segments.replace("One", "ONE").replace("Two", "TWO")}</target>'
    state = ' conf="Draft" origin="mt" origin-system="scaleformer"/>'
    wanted = text.replace("</seg-source>", f"</seg-source>{target}").replace(
        '<sdl:seg id="1"/>', f'<sdl:seg id="1"{state}'
    )
    assert filled(text) == wanted.replace('<sdl:seg id="2"/>', f'<sdl:seg id="2"{state}')
    locked = text.replace('<sdl:seg id="1"', '<sdl:seg locked="true" id="1"')
    assert XliffFile(locked.encode(), "a.sdlxliff").left == {"units not to be translated": 1}


def test_states_of_memoq() -> None:
    units = (
        unit("One.", "<target/>", ' m:status="NotStarted" m:locked=""'),
        unit("Two.", "<target/>", ' m:status="NotStarted" m:locked="locked"'),
        unit("Three.", "<target>Tres.</target>", ' m:status="ManuallyConfirmed"'),
    )
    text = one(*units).replace("<xliff", '<xliff xmlns:m="MQXliff"')
    file = XliffFile(text.encode(), "a.mqxliff")
    assert unchanged(file) == text.encode()
    assert file.left == {"translated units": 1, "units not to be translated": 1}
    wanted = text.replace("NotStarted", "MachineTranslated", 1)
    assert filled(text) == wanted.replace("<target/>", '<target state="translated">ONE.</target>', 1)
    dropped: Counter[str] = Counter()
    again = XliffFile(filled(text).encode(), "a.mqxliff")
    assert [row.target for row in again.rows("a", dropped)] == [["Tres."]]
    assert dropped == {"fuzzy": 1, "not to be translated": 1}


def test_the_confidence_of_a_segment_stands_at_it() -> None:
    segment = '<mrk mtype="seg" mid="1">{}</mrk>'
    text = trados(segment.format("One."), f"<target>{segment.format('')}</target>", "")
    file, segments = read_prose(text.encode(), "a.xlf", "xliff", "en", "sentence")
    root = etree.fromstring(file.write(prose_changes(segments, ["UNO."], Counter(), told={0: (31.4, True)})))
    [found] = root.iterfind(".//{*}target/{*}mrk")
    assert (found.text, found.get("{http://www.w3.org/2005/11/its}mtConfidence"), found.get("state")) == (
        "UNO.",
        "0.314",
        None,
    )
