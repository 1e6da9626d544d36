"""gettext files: what becomes a segment, what is left out and counted, what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from translate.storage.pypo import pofile

from scaleformer.formats.bitexts import Bitext, read_bitext, read_rows
from scaleformer.formats.rows import Row
from scaleformer.system.errors import DataError

SAMPLES = Path(__file__).parents[2] / "data" / "samples" / "po"
HEADER = 'msgid ""\nmsgstr ""\n"Language: es\\n"\n\n'


def rows(path: Path, name: str, dropped: Counter[str]) -> list[Row]:
    return list(read_rows(path, name, Bitext("po", str(path)), dropped))


def read(tmp_path: Path, text: str) -> tuple[list[tuple[str, str]], dict[str, int]]:
    path = tmp_path / "a.po"
    path.write_text(text, encoding="utf-8")
    dropped: Counter[str] = Counter()
    return [(*row.source, *row.target) for row in rows(path, "a", dropped)], dict(dropped)  # type: ignore[misc]


def test_tree() -> None:
    dropped: Counter[str] = Counter()
    documents = list(read_bitext(Bitext("po", str(SAMPLES)), dropped))
    assert [d.id for d in documents] == ["garden", "kitchen/bread", "tea"]
    assert dropped == {"fuzzy": 1, "untranslated": 1, "plural forms": 1, "obsolete": 1}
    assert documents[2].source == ("Boil fresh water.", 'Pour it over the "leaves".')
    assert documents[2].target == ("Hierva agua fresca.", "Viértala sobre las «hojas».")


def test_one_file_and_files_without_translations(tmp_path: Path) -> None:
    assert [d.id for d in read_bitext(Bitext("po", str(SAMPLES / "tea.po")), Counter())] == ["tea"]
    (tmp_path / "a.po").write_text(HEADER + 'msgid "x"\nmsgstr ""\n')
    dropped: Counter[str] = Counter()
    assert list(read_bitext(Bitext("po", str(tmp_path)), dropped)) == []
    assert dropped == {"untranslated": 1, "files without a translated message": 1}


def test_escapes_and_white_space(tmp_path: Path) -> None:
    text = 'msgid "a\\tb\\n"\n"  c\\\\n \\"q\\" \\x41\\102"\nmsgstr "é\\ny"\n'
    assert read(tmp_path, text) == ([('a b c\\n "q" AB', "é y")], {})


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u3000"])
def test_no_break_spaces_stay(tmp_path: Path, space: str) -> None:
    text = f"{space}10{space}{space}km{space}"
    assert read(tmp_path, f'  msgid  "{text} \\n"\n\tmsgstr "{text}"\n') == ([(text, text)], {})


def test_numbered_escapes_are_bytes_of_the_encoding(tmp_path: Path) -> None:
    assert read(tmp_path, 'msgid "caf\\303\\251"\nmsgstr "\\xe6\\x97\\xa5"\n') == ([("café", "日")], {})


def test_entries_without_blank_lines_between(tmp_path: Path) -> None:
    text = 'msgid "a"\nmsgstr "x"\n# note\n#. extracted\n#: file:3\nmsgid "b"\nmsgstr "y"\n'
    text += 'msgctxt "c"\nmsgid "b"\nmsgstr "z"'
    assert read(tmp_path, text) == ([("a", "x"), ("b", "y"), ("b", "z")], {})


def test_fuzzy_with_other_flags_and_previous_texts(tmp_path: Path) -> None:
    text = '#, c-format, fuzzy\n#| msgid "old"\nmsgid "a"\nmsgstr "x"\n\n#, c-format\nmsgid "b"\nmsgstr "y"\n'
    assert read(tmp_path, HEADER + text) == ([("b", "y")], {"fuzzy": 1})


def test_the_encoding_that_the_header_names(tmp_path: Path) -> None:
    text = (
        HEADER.replace("Language: es", "Content-Type: text/plain; charset=ISO-8859-15")
        + 'msgid "a"\nmsgstr "5\u00a0€\\351"\n'
    )
    (tmp_path / "a.po").write_bytes(text.encode("iso-8859-15"))
    found = rows(tmp_path / "a.po", "a", Counter())
    assert [row.target for row in found] == [["5\u00a0€é"]]
    (tmp_path / "a.po").write_bytes(text.replace("ISO-8859-15", "UTF-8").encode("iso-8859-15"))
    with pytest.raises(DataError, match=r"a\.po:6: not UTF-8 .byte 10 of the line.: convert it to UTF-8"):
        rows(tmp_path / "a.po", "a", Counter())


def test_a_message_about_encodings_is_not_a_header(tmp_path: Path) -> None:
    text = '# charset=x\nmsgid "charset=iso-8859-1 é"\nmsgstr "charset=x ñ"\n'
    assert read(tmp_path, text) == ([("charset=iso-8859-1 é", "charset=x ñ")], {})


def test_a_comment_of_old_catalogues_is_counted(tmp_path: Path) -> None:
    text = 'msgid "_: verb\\n"\n"see"\nmsgstr "ver"\n\nmsgid "see "\n"_: x y"\nmsgstr "ver"\n'
    assert read(tmp_path, text) == ([("see _: x y", "ver")], {"with a comment in the message": 1})


def test_paragraphs_are_segments_if_the_translation_has_as_many(tmp_path: Path) -> None:
    text = 'msgid "\\na\\nb\\n \\n\\nc\\n"\nmsgstr "x\\n\\ny"\n\nmsgid "a\\n\\nb"\nmsgstr "x y"\n'
    assert read(tmp_path, text) == ([("a b", "c", "x", "y"), ("a b", "x y")], {})


def test_files_written_by_the_toolkit_are_read(tmp_path: Path) -> None:
    texts = ["a", "10\u00a0km", 'C:\\new "x"', "x" * 200, "日本語 " * 40 + "…", "\u202fy\u3000"]
    store = pofile()
    for number, text in enumerate(texts):
        unit = store.addsourceunit(f"{text} {number}")
        unit.target = text
    store.findunit("a 0").markfuzzy()
    store.findunit("10\u00a0km 1").makeobsolete()
    store.savefile(str(tmp_path / "b.po"))
    dropped: Counter[str] = Counter()
    found = rows(tmp_path / "b.po", "b", dropped)
    wanted = [(f"{text} {number}", text.strip(" ")) for number, text in enumerate(texts)][2:]
    assert [(*row.source, *row.target) for row in found] == wanted
    assert dropped == {"fuzzy": 1, "obsolete": 1}


def test_obsolete(tmp_path: Path) -> None:
    text = '#~ msgid "a"\n#~ "b"\n#~ msgstr "x"\n\n#, fuzzy\n#~| msgid "q"\n#~ msgid "c"\n#~ msgstr "y"\n'
    assert read(tmp_path, HEADER + text) == ([], {"obsolete": 2})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            'msgid "a"\nmsgstr "x\n', r"a\.po:2: .*wanted a comment, or msgid, msgstr .* and a .text", id="no end"
        ),
        pytest.param('msgid "a"\nmsgid "b"\nmsgstr "x"\n', r"a\.po:1: .* is incomplete", id="two msgids"),
        pytest.param(
            '# c\nmsgid "a"\n# d\nmsgid "b"\nmsgstr "x"\n', r"a\.po:2: .* is incomplete", id="two with comments"
        ),
        pytest.param('msgstr "x"\n', r"a\.po:1: .* is incomplete: wanted msgid and msgstr", id="no msgid"),
        pytest.param('msgid "a"\n', r"a\.po:1: .* is incomplete", id="no msgstr"),
        pytest.param('msgid "a"\nmsgstr "x"\n\nmsgctxt "c"\n', r"a\.po:4: .* is incomplete", id="truncated"),
        pytest.param('"a"\n', r"a\.po:1: .* is incomplete", id="stray text"),
        pytest.param('msgid "a"\nmsgstr "x"\n\nhello\n', r"a\.po:4: 'hello': wanted a comment", id="stray word"),
        pytest.param('msgid "a" b\nmsgstr "x"\n', r"a\.po:1: .*wanted a comment", id="more behind the text"),
        pytest.param("#~ hello\n", r"a\.po:1: '#~ hello': wanted", id="stray word in what is obsolete"),
        pytest.param('msgid "a\\qb"\nmsgstr "x"\n', r"a\.po:1: unknown escape \\q", id="escape"),
        pytest.param('msgid "a\\777"\nmsgstr "x"\n', r"a\.po:1: unknown escape \\777", id="no byte"),
        pytest.param(
            'msgid "a"\nmsgstr "\\303"\n',
            r"a\.po:2: the .* escapes of this message are not valid UTF-8",
            id="half a character",
        ),
        pytest.param('msgid "a"b"\nmsgstr "x"\n', r"a\.po:1: .*wanted a comment", id="inner quote"),
        pytest.param(
            'msgid "a"\nmsgid_plural "b"\nmsgstr "x"\n', r"a\.po:1: .* is incomplete", id="plural without number"
        ),
        pytest.param('msgid "a"\nmsgstr[0] "x"\n', r"a\.po:1: .* is incomplete", id="number without plural"),
        pytest.param('msgid "a"\n# c\nmsgstr "x"\n', r"a\.po:1: .* is incomplete", id="comment inside"),
        pytest.param('msgid ""\nmsgstr "charset=punycode"\n', r"a\.po: unknown charset='punycode'", id="charset"),
    ],
)
def test_faults(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, text)


def test_no_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no \.po or \.pot files below this folder"):
        list(read_bitext(Bitext("po", str(tmp_path)), Counter()))
    with pytest.raises(DataError, match="no such file or folder"):
        list(read_bitext(Bitext("po", str(tmp_path / "none")), Counter()))
