"""Strings of programs: texts change, every other byte stays; what the writer of a format changes beyond is counted."""

from __future__ import annotations

import pytest

from scaleformer.formats.files import read_prose
from scaleformer.formats.splicing import ANEW
from scaleformer.formats.strings import StringsFile
from scaleformer.system.errors import DataError
from tests.formats.fake import translate, unchanged

# A file of each format, and what is written in other places than its texts in capitals.
FILES: dict[str, tuple[str, dict[str, str]]] = {
    "properties": (
        "# Top\r\n\r\ngreet = hello, {0}, it''s you!\r\n! Other\nlong:one \\\n   two\nunit=caf\\u00e9\n\nnone=\n\n",
        {"hello": "HELLO", "it''s you": "IT''S YOU", "one \\\n   two": "ONE TWO", "caf\\u00e9": "CAF\\u00C9"},
    ),
    "strings": (
        '/* "Note" */\n"a"="hello %1$@";\n\n\n// x\n"b" =  "say \\"hi\\"\\n%d";',
        {"hello": "HELLO", "say": "SAY", '"hi': '"HI'},
    ),
    "android": (
        '<?xml version="1.0" encoding="utf-8"?>\n<!-- Top --><resources xmlns:x="urn:x">\n  <string name="a">hello '
        '<x:g id="n">%1$s</x:g>, it\\\'s <b>you</b></string>\n  <string name="k" translatable="false">no</string>\n\n  '
        '<string name="c"><![CDATA[<b>bold</b> move]]></string>\n\t<plurals name="p">\n   <item quantity="few">%d file'
        '</item>\n  </plurals>\n<string-array name="r"><item>one &amp; two</item><item>@string/a</item></string-array>'
        '\n  <string name="e" /><color name="y">white</color></resources>\n',
        {"hello": "HELLO", "it\\'s": "IT\\'S", ">you": ">YOU", ">bold": ">BOLD", " move": " MOVE", "d file": "d FILE",
         ">one &amp; two": ">ONE &amp; TWO"},
    ),
    "resx": (
        '<?xml version="1.0" encoding="utf-8"?>\n<root>\n  <!-- a "note" -->\n  <resheader name="resmimetype">\n    '
        '<value>text/microsoft-resx</value>\n  </resheader>\n  <data name="b" xml:space="preserve">\n    <value>hello '
        '{0} &amp; "you"</value>\n    <comment>a greeting</comment>\n  </data>\n  <data name="a.Size" type="System.'
        'Drawing.Size" xml:space="preserve">\n    <value>wide</value>\n  </data>\n  <data name="&gt;&gt;a.Name" xml:'
        'space="preserve">\n    <value>kept</value>\n  </data>\n  <data name="a" xml:space="preserve">\n    <value>one'
        "\ntwo</value>\n  </data>\n</root>\n",
        {"hello": "HELLO", "you": "YOU", "one\ntwo": "ONE\nTWO"},
    ),
    "arb": (
        '{"@@locale": "en",\n "greet": "hello {name}",\n  "@greet": {"description": "a greeting", "placeholders": {}},'
        '\n"n": "{n, plural, one {# file} other {# files}}"}',
        {"hello": "HELLO", "# files": "# FILES", "# file}": "# FILE}", '"en"': '"de"'},
    ),
    "json": (
        '\ufeff{\n   "a": "hello {{name}}", "b": {"c": "", "d": "caf\\u00e9\\n\\"x\\"", "z": null,\n"l": ["well-known, '
        'one", "two"], "a.b": "dot"}}',
        {"hello": "HELLO", "caf\\u00e9": "CAF\\u00c9", '"x\\"': '"X\\"', "well-known, one": "WELL-KNOWN, ONE",
         "two": "TWO", '"dot': '"DOT'},
    ),
    "webextension": (
        '{"a": {"message": "hello $NAME$", "description": "a name", "placeholders": {"n": {"content": "$1"}}}}\n',
        {"hello": "HELLO"},
    ),
    "yaml": (
        "# Top\nen: # English\n  a: hello %{name}   # tail\n  q: \"one: yes\"\n  s: 'single'\n  block: |\n    line "
        "one\n    line two\n  list:\n    - well-known\n    - two\n  n: 3\n  flag: true\n  none:\n  sym: :key\n  "
        "base: &x word\n  ref: *x\n  far: "
        + "far " * 40 + "away\n",
        {"hello": "HELLO", "one: yes": "ONE: YES", "single": "SINGLE", "line one": "LINE ONE", "line two": "LINE TWO",
         "well-known": "WELL-KNOWN", "- two": "- TWO", "&x word": "WORD", "*x": "WORD",
         "far " * 40 + "away": "FAR " * 40 + "AWAY", "\nen:": "\nde:"},
    ),
    "qt": (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE TS>\n<TS version="2.1">\n<context>\n    <name>Main</name>\n'
        '<message>\n<location filename="a.cpp" line="1"/>\n  <source>open &quot;%1&quot;</source>\n    <translation '
        'type="unfinished"></translation>\n</message>\n<message numerus="yes"><source>%n file(s)</source><translation '
        'type="unfinished">\n <numerusform></numerusform>\n <numerusform></numerusform></translation></message>\n'
        "<message><source>done</source><translation>hecho</translation></message>\n</context>\n</TS>\n",
        {'"unfinished"></': '"unfinished">OPEN &quot;%1&quot;</', "<numerusform></": "<numerusform>%n FILE(S)</"},
    ),
}  # fmt: skip


def read(name: str, content: str, **options: object) -> StringsFile:
    format = "json" if name == "webextension" else name
    return StringsFile(content.encode(), f"a.{format}", format, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FILES)
def test_texts_change_and_nothing_else(name: str) -> None:
    content, changes = FILES[name]
    file = read(name, content, language="de")
    assert unchanged(file) == content.encode()
    expected = content
    for old, new in changes.items():
        assert old in expected
        expected = expected.replace(old, new)
    assert translate(file)[0].decode() == expected
    assert ANEW not in file.left


def test_the_translations_of_qt_are_read_again() -> None:
    content = translate(read("qt", FILES["qt"][0]))[0].decode()
    assert [block.text for block in read("qt", content).blocks] == []
    written = read("qt", content, written=True)
    assert [block.text for block in written.blocks] == ['OPEN "\ufffc"', "\ufffc FILE(S)", "hecho"]
    assert translate(written, lambda segment: segment.text.lower())[0].decode().count("%n file(s)</numerusform>") == 2


def test_placeholders_without_names_are_numbered_or_the_text_stays() -> None:
    file = read("strings", '"a" = "put %@ into %d";\n"b" = "{} of {}";\n')
    assert translate(file)[0] == b'"a" = "PUT %2$d INTO %1$@";\n"b" = "{} of {}";\n'
    assert file.left == {"units whose translation moves placeholders without names": 1}
    markup = '<resources><string name="a">a <b>big</b> cat</string></resources>'
    file = read("android", markup)
    assert translate(file, lambda segment: f"{segment.text} & <")[0].decode() == markup


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("json", '{"a": "x", "u": "\\u00a9 \u00a9", "b": "y"}'),
        ("android", "<resources><string name='a'>x</string></resources>"),
    ],
)
def test_a_file_that_is_written_anew_is_counted(name: str, content: str) -> None:
    file = read(name, content)
    result = translate(file)[0].decode()
    assert file.left[ANEW] == 1
    assert result != content
    lines = read(name, content.replace(",", ",\r\n").replace("><", ">\r\n<"))
    assert "\r\n" in (result := translate(lines)[0].decode())
    assert result.count("\n") == result.count("\r\n")
    assert [block.text for block in read(name, result).blocks] == [block.text.upper() for block in file.blocks]


HOSTILE = {
    "array": ("json", '["a", "b"]', "wanted an object"),
    "settings": ("json", '{"name": "app", "files": [1]}', r"files.0 is 1, not a text"),
    "deep json": ("json", '{"a":' * 100_000, "cannot be read as"),
    "deep yaml": ("yaml", "{a: " * 100_000, "cannot be read as"),
    "aliases": ("yaml", "a: &a [" + "[], " * 300 + "]\nb: [" + "*a, " * 300 + "]\n", "cannot be read as YAML"),
    "no yaml": ("yaml", "a: [", "cannot be read as YAML"),
    "no xml": ("android", "<resources><string>", "cannot be read as strings of Android"),
    "old ts": ("qt", '<TS version="1.1"></TS>', "cannot be read as a Qt translation"),
    "binary": ("properties", "a=\0", "null character"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_table_of_texts_is_refused_in_one_line(case: str) -> None:
    name, content, message = HOSTILE[case]
    with pytest.raises(DataError, match=message) as caught:
        read(name, content)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_without_the_toolkit_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "translate.storage.factory", None)
    with pytest.raises(DataError, match=r"a.arb: cannot be read as ARB: pip install 'scaleformer.strings.'"):
        read("arb", "{}")


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ("en:\n  a: cat\n", "de:\n  a: CAT\n"),
        ('# Top\r\n---\r\n"en-GB": # x\r\n  a: cat\r\n\r\n', '# Top\r\n---\r\n"de": # x\r\n  a: CAT\r\n\r\n'),
        ("app:\n  a: cat\n", "app:\n  a: CAT\n"),
        ("ui:\n  a: cat\n", "ui:\n  a: CAT\n"),
        ("no:\n  a: cat\nyes:\n  b: dog\n", "no:\n  a: CAT\nyes:\n  b: DOG\n"),
    ],
)
def test_only_the_language_of_yaml_is_renamed(content: str, wanted: str) -> None:
    assert translate(read("yaml", content, language="de"))[0].decode() == wanted


def test_characters_of_two_escapes() -> None:
    file = read("properties", "a=Hello \\uD83D\\uDE00 world\nb=dog\n")
    assert [block.text for block in file.blocks] == ["Hello 😀 world", "dog"]
    assert translate(file)[0] == b"a=HELLO \\uD83D\\uDE00 WORLD\nb=DOG\n"
    assert translate(file, lambda segment: "perro 😀")[0].endswith(b"b=perro \\uD83D\\uDE00\n")
    for name, content in (
        ("android", '<resources><string name="a">cat \\uD83D\\uDE00</string></resources>'),
        ("strings", '"a" = "cat \\UD83D\\UDE00";'),
        ("json", '{"a": "cat \\ud83d\\ude00"}'),
    ):
        assert [block.text for block in read(name, content).blocks] == ["cat 😀"]


@pytest.mark.parametrize(
    ("format", "content"), [("json", '{"a": "half \\ud83d of it"}'), ("properties", "a=half \\uD83D of it\n")]
)
def test_half_a_character_is_refused(format: str, content: str) -> None:
    with pytest.raises(DataError, match=r"^a\.x: half a character .* in 'half .* of it': correct its escape$"):
        read_prose(content.encode(), "a.x", format, "en", "sentence")
