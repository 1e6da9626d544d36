"""TMX and XLIFF: what becomes a segment, what is left out and counted, what is refused."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest
from translate.storage.tmx import tmxfile
from translate.storage.xliff import xlifffile
from translate.storage.xliff2 import Xliff2File

from scaleformer.formats.bitexts import Bitext, read_bitext
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document
from tests.formats.faults import check_fault

EXACT = ("a\u00a0b\u202fc\u3000", "<b>&amp;</b> 'q' \"r\"", "日本語 \U0001f469\u200d\U0001f467 e\u0301")
TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="{}"/>
<body>{}</body></tmx>"""
BOMB = "<!DOCTYPE {} [" + "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12)) + '<!ENTITY e0 "x">]>'


def tu(**texts: str) -> str:
    return "<tu>" + "".join(f'<tuv xml:lang="{key}"><seg>{text}</seg></tuv>' for key, text in texts.items()) + "</tu>\n"


def xliff1(*units: str, original: str = "a.html") -> str:
    return f'<file original="{original}" source-language="en" target-language="es"><body>{"".join(units)}</body></file>'


def unit1(source: str, target: str = "", attributes: str = "", more: str = "") -> str:
    return f"<trans-unit id='1' {more}><source>{source}</source><target {attributes}>{target}</target></trans-unit>\n"


def one(*files: str) -> str:
    return f'<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{"".join(files)}</xliff>'


def two(*units: str, name: str = "f1", version: str = "2.0") -> str:
    head = f'<xliff version="{version}" xmlns="urn:oasis:names:tc:xliff:document:{version}" srcLang="en" trgLang="es">'
    return f'{head}<file id="{name}">{"".join(units)}</file></xliff>'


def read(
    tmp_path: Path, format: str, text: str | bytes, languages: tuple[str | None, str | None] = (None, None)
) -> tuple[list[Document], dict[str, int]]:
    path = tmp_path / f"a.{format}"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    dropped: Counter[str] = Counter()
    return list(read_bitext(Bitext(format, str(path), languages=languages), dropped)), dict(dropped)


def test_units_of_a_memory(tmp_path: Path) -> None:
    units = tu(es="uno", EN="one"), tu(en="no\n   break", es="10\u00a0km&#160;"), tu(en="x"), tu(en="x", es=" ")
    found = read(tmp_path, "tmx", TMX.format("en", "".join(units)))
    wanted = Document("a", ("one", "no break"), ("uno", "10\u00a0km\u00a0"))
    assert found == ([wanted], {"without a text in both languages": 2})


def test_languages_of_a_memory(tmp_path: Path) -> None:
    text = TMX.format("*all*", tu(**{"fr": "un", "es_MX": "uno", "en-GB": "one", "en-US": "One"}))
    assert read(tmp_path, "tmx", text, ("en", "es"))[0] == [Document("a", ("one",), ("uno",))]
    assert read(tmp_path, "tmx", text, ("en-us", "fr"))[0] == [Document("a", ("One",), ("un",))]
    with pytest.raises(DataError, match=r"a\.tmx:4: no srclang names the source language: set source_language="):
        read(tmp_path, "tmx", text)
    with pytest.raises(
        DataError, match=r"a\.tmx:4: texts in fr, es-mx, en-gb, en-us: choose one with target_language="
    ):
        read(tmp_path, "tmx", text, ("en", None))
    text = TMX.format("en", tu(en="x", es="y").replace("</tu>", '<tuv xml:lang="ES"><seg>z</seg></tuv></tu>'))
    assert read(tmp_path, "tmx", text) == ([Document("a", ("x",), ("y",))], {"a second text in a language": 1})


def test_codes_of_a_memory_are_text(tmp_path: Path) -> None:
    seg = '<bpt i="1">&lt;b&gt;</bpt>a<ept i="1">&lt;/b&gt;</ept> <hi>b</hi>'
    assert read(tmp_path, "tmx", TMX.format("en", tu(en=seg, es="c")))[0][0].source == ("<b>a</b> b",)


def test_units_of_xliff_1(tmp_path: Path) -> None:
    first = xliff1(
        unit1("one", "uno"),
        unit1("Save\n  <x id='1' equiv-text='{n}'/> <g id='2'>files</g><x id='3'/>", "Guardar {n} ficheros"),
        unit1("a", "b", "state='needs-review-translation'"),
        unit1("a", "b", "state='final' state-qualifier='fuzzy-match'"),
        unit1("a", "b", "state='final'", "approved='no'"),
        unit1("a"),
        unit1("a", "b", more="translate='no'"),
        "<trans-unit id='9'><source>no target</source></trans-unit>",
        "<group>" + unit1("c", "d", more="approved='yes'") + "</group>",
        "<trans-unit id='8'><source>e</source><target>f</target><alt-trans><target>g</target></alt-trans></trans-unit>",
    )
    documents, dropped = read(tmp_path, "xliff", one(first, xliff1(unit1("h", "i"), original="b.html")))
    sources = ("one", "Save {n} files", "a", "c", "e")
    assert documents == [
        Document("a/a.html", sources, ("uno", "Guardar {n} ficheros", "b", "d", "f")),
        Document("a/b.html", ("h",), ("i",)),
    ]
    assert dropped == {"fuzzy": 2, "untranslated": 2, "not to be translated": 1}


def test_codes_of_xliff_2(tmp_path: Path) -> None:
    unit = """<unit id='1'><originalData><data id='d1'>%s</data></originalData><segment>
        <source><ph id='0' dataRef='d1' equiv='name'/> <ph id='2' disp='{{ n }}'/><ph id='3'/></source>
        <target><ph id='2' disp='{{ n }}'/> <ph id='0' dataRef='d1'/></target></segment></unit>"""
    assert read(tmp_path, "xliff", two(unit))[0] == [Document("a/f1", ("%s {{ n }}",), ("{{ n }} %s",))]
    with pytest.raises(DataError, match=r"a\.xliff:1: <cp> stands for a control character"):
        read(tmp_path, "xliff", one(xliff1(unit1("<cp hex='001A'/>", "b"))))


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_units_of_xliff_2(tmp_path: Path, version: str) -> None:
    units = (
        "<unit id='1'><segment><source>A <ph id='0' equiv='{n}'/>.</source><target>B {n}.</target></segment><ignorable>"
        "<source> </source></ignorable><segment state='final'><source><pc id='1'>C</pc></source><target>D</target>"
        "</segment></unit>",
        "<unit id='2'><segment state='initial'><source>a</source><target>b</target></segment></unit>",
        "<unit id='3'><segment><source>a</source></segment></unit>",
        "<unit id='4' translate='no'><segment><source>a</source><target>b</target></segment></unit>",
    )
    documents, dropped = read(tmp_path, "xliff", two(*units, version=version))
    assert documents == [Document("a/f1", ("A {n}.", "C"), ("B {n}.", "D"))]
    assert dropped == {"fuzzy": 1, "untranslated": 1, "not to be translated": 1}


def test_files_written_by_the_toolkit_are_read(tmp_path: Path) -> None:
    memory = tmxfile(sourcelanguage="en", targetlanguage="es")
    for number, text in enumerate(EXACT):
        memory.addtranslation(f"{text}{number}", "en", text, "es")
    memory.savefile(str(tmp_path / "m.tmx"))
    for name, kind in (("v1", xlifffile), ("v2", Xliff2File)):
        store = kind()
        for number, text in enumerate((*EXACT, "draft")):
            unit = kind.UnitClass(f"{text}{number}")
            unit.setid(str(number)) if name == "v1" else None
            store.addunit(unit)
            unit.target = text
            if text == "draft":
                unit.markfuzzy()
        store.savefile(str(tmp_path / f"{name}.xliff"))
    wanted = (tuple(f"{text}{number}" for number, text in enumerate(EXACT)), EXACT)
    dropped: Counter[str] = Counter()
    (found,) = read_bitext(Bitext("tmx", str(tmp_path)), dropped)
    assert (found.source, found.target) == wanted
    documents = list(read_bitext(Bitext("xliff", str(tmp_path)), dropped))
    assert [d.id.split("/")[0] for d in documents] == ["v1", "v2"]
    assert [(d.source, d.target) for d in documents] == [wanted, wanted]
    assert dropped == {"fuzzy": 2}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "iso-8859-1"])
def test_encodings_and_compression(tmp_path: Path, encoding: str) -> None:
    text = TMX.format("en", tu(en="é", es="ñ")).replace('"1.0"?', f'"1.0" encoding="{encoding.removesuffix("-sig")}"?')
    assert read(tmp_path, "tmx", gzip.compress(text.encode(encoding)))[0] == [Document("a", ("é",), ("ñ",))]


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        pytest.param("tmx", TMX.format("en", tu(en="a", es="b"))[:-30], r"a\.tmx:\d+: malformed XML", id="truncated"),
        pytest.param("tmx", b"", r"a\.tmx:1: malformed XML .no element found", id="empty"),
        pytest.param("tmx", "words", r"a\.tmx:1: malformed XML .syntax error", id="words"),
        pytest.param("tmx", "<a><b/></a>", r"a\.tmx:1: <a>, wanted <tmx>", id="another root"),
        pytest.param("tmx", one(), r"a\.tmx: XLIFF, wanted a translation memory", id="another format"),
        pytest.param("xliff", "<xliff>" * 5000, r"a\.xliff:1: more than 256 nested elements", id="deep"),
        pytest.param(
            "xliff", BOMB.format("xliff") + one(xliff1(unit1("&e11;", "b"))), "declares the entity 'e1'", id="entities"
        ),
        pytest.param(
            "xliff", BOMB.format("xliff") + "<xliff a='&e11;'/>", "declares the entity 'e1'", id="in an attribute"
        ),
        pytest.param(
            "tmx",
            "<!DOCTYPE tmx [<!ENTITY e SYSTEM '/etc/passwd'>]><tmx><body>" + tu(en="&e;", es="b") + "</body></tmx>",
            "declares the entity 'e'",
            id="from outside",
        ),
        pytest.param(
            "tmx",
            "<!DOCTYPE tmx [<!ENTITY % e SYSTEM '/etc/passwd'>%e;]><tmx/>",
            "declares the entity 'e'",
            id="parameter",
        ),
        pytest.param(
            "tmx", TMX.format("en", tu(en="a&nbsp;b", es="c")), r"a\.tmx:4: the entity &nbsp;", id="undefined"
        ),
        pytest.param("tmx", TMX.format("en", "é").encode("latin-1"), r"a\.tmx:4: .*not UTF-8", id="encoding"),
        pytest.param("tmx", "<?xml version='1.0' encoding='no'?><tmx/>", r"malformed XML .*encoding", id="no encoding"),
        pytest.param(
            "tmx", TMX.format("en", "<tu><tuv xml:lang='en'/></tu>"), r":4: a <tuv> without <seg>", id="no seg"
        ),
        pytest.param(
            "tmx", TMX.format("en", tu(en="a").replace("xml:lang", "x")), "without xml:lang", id="no language"
        ),
        pytest.param("xliff", one(xliff1("<trans-unit/>")), r"a\.xliff:1: a unit without <source>", id="no source"),
        pytest.param("tmx", gzip.compress(b"<tmx>")[:-5], r"a\.tmx: the compressed file is truncated", id="cut gzip"),
    ],
)
def test_faults(tmp_path: Path, format: str, text: str | bytes, message: str) -> None:
    check_fault(lambda: read(tmp_path, format, text), message, str(tmp_path / f"a.{format}"))


def test_a_decompression_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaleformer.formats.lines._UNPACKED", 1 << 20)
    for format, text in (
        ("tmx", f"<tmx><header srclang='en'/>{'<tu/>' * 1_000_000}"),
        ("po", "#\n" * 3_000_000),
        ("csv", "source,target\n" * 500_000),
    ):
        with pytest.raises(DataError, match=r"bytes unpack to more than .*: not a text file"):
            read(tmp_path, format, gzip.compress(text.encode()))


def test_a_large_memory_is_read_as_a_stream(tmp_path: Path) -> None:
    import resource

    units = "".join(tu(en=f"word {number} " * 20, es=f"palabra {number}") for number in range(60_000))
    (tmp_path / "a.tmx").write_text(TMX.format("en", units), encoding="utf-8")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    bitext = Bitext("tmx", str(tmp_path / "a.tmx"), separate=True)
    assert sum(1 for _ in read_bitext(bitext, Counter())) == 60_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60_000  # KiB; a tree of it has 150,000
