"""gettext catalogues: untranslated messages are filled, the rest stays as it is, format placeholders still work."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from translate.storage.pypo import pofile

from scaleformer.formats.files import prose_changes, read_prose
from scaleformer.formats.po import PoFile
from scaleformer.formats.segments import Segment
from scaleformer.system.errors import DataError
from tests.formats.fake import shout, translate, unchanged

SAMPLES = Path(__file__).parents[2] / "data" / "samples" / "po"
HEADER = """# Comment
msgid ""
msgstr ""
"Language: es\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=3; plural=n==1 ? 0 : n==2 ? 1 : 2;\\n"

"""
FILE = (
    HEADER
    + """#: a.c:1
#, c-format
msgid "Open %s now.\\n"
msgstr ""

#, fuzzy
#| msgid "Old"
msgid "New"
msgstr "Viejo"

msgid ""
"A long message that someone has "
"wrapped."
msgstr "Un mensaje."

msgctxt "menu"
msgid "One \\"file\\" \\\\ tab\\there"
msgstr ""

#, python-format
msgid "%(n)d file of {total}"
msgid_plural "%(n)d files of {total}"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

msgid "%d"
msgstr ""

#~ msgid "Gone"
#~ msgstr "Ido"
"""
)


def read(text: str) -> PoFile:
    return PoFile(text.encode(), "a.po")


def filled(text: str, translation=shout) -> str:
    file = read(HEADER + text)
    return translate(file, translation)[0].decode().removeprefix(HEADER)


def checked(data: bytes, tmp_path: Path) -> None:
    """gettext itself accepts the catalogue."""
    if shutil.which("msgfmt"):
        (tmp_path / "checked.po").write_bytes(data)
        command = ["msgfmt", "--check-format", "-o", str(tmp_path / "a.mo"), str(tmp_path / "checked.po")]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert not found.returncode, found.stderr


def test_what_is_filled(tmp_path: Path) -> None:
    file = read(FILE)
    assert [block.text for block in file.blocks] == [
        "Open ￼ now.",
        'One "file" \\ tab here',
        "￼ file of ￼",
        "￼ files of ￼",
    ]
    assert file.left == {"fuzzy units": 1, "translated units": 1, "units without words": 1, "obsolete units": 1}
    data, counts = translate(file)
    checked(data, tmp_path)
    wanted = FILE
    for old, new in (
        ('now.\\n"\nmsgstr ""', 'now.\\n"\nmsgstr "OPEN %s NOW.\\n"'),
        ('here"\nmsgstr ""', 'here"\nmsgstr "ONE \\"FILE\\" \\\\ TAB HERE"'),
        ('msgstr[0] ""', 'msgstr[0] "{total} FILE OF %(n)d"'),
        ('msgstr[1] ""', 'msgstr[1] "{total} FILES OF %(n)d"'),
        ('msgstr[2] ""', 'msgstr[2] "{total} FILES OF %(n)d"'),
    ):
        wanted = wanted.replace(old, new)
    assert data.decode() == wanted
    assert not counts
    units = [unit for unit in pofile.parsestring(data).units if not unit.isheader() and not unit.isobsolete()]
    assert [unit.istranslated() for unit in units] == [True, False, True, True, True, False]


def test_bytes_stay() -> None:
    texts = [FILE, FILE.rstrip("\n"), FILE.replace("\n", "\r\n"), "\ufeff" + FILE, "", "\ufeff", "\n", "# c\n"]
    contents = [text.encode() for text in texts] + [path.read_bytes() for path in SAMPLES.rglob("*.po")]
    contents.append(FILE.replace("UTF-8", "ISO-8859-1").replace("New", "Né").encode("iso-8859-1"))
    for content in contents:
        assert unchanged(PoFile(content, "a.po")) == content


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_they_did(end: str) -> None:
    text = (FILE.removesuffix('\n#~ msgid "Gone"\n#~ msgstr "Ido"\n') + 'msgid "last"\nmsgstr ""').replace("\n", end)
    data = translate(read(text))[0].decode()
    assert data.endswith(f'msgid "last"{end}msgstr "LAST"')
    assert data.count(end) == text.count(end)


def test_forms_of_languages() -> None:
    """One form serves every number; an existing form stays."""
    one = 'msgid "file"\nmsgid_plural "files"\nmsgstr[0] "{}"\n'
    assert filled(one.format("")) == one.format("FILES")
    some = 'msgid "file"\nmsgid_plural "files"\nmsgstr[0] "{}"\nmsgstr[1] "{}"\n'
    assert filled(some.format("fichero", "")) == some.format("fichero", "FILES")
    assert filled(some.format("", "ficheros")) == some.format("FILE", "ficheros")


def test_lines_and_paragraphs() -> None:
    text = 'msgid ""\n"\\n"\n"Usage of it\\n"\n"and more\\n"\n"\\n"\n"Second.\\n"\nmsgstr ""\n'
    wanted = text.replace('msgstr ""\n', 'msgstr ""\n"\\n"\n"USAGE OF IT\\n"\n"AND MORE\\n"\n"\\n"\n"SECOND.\\n"\n')
    assert filled(text) == wanted


def test_long_lines_are_wrapped_where_the_file_has_none() -> None:
    short, long = " ".join(["word"] * 10), " ".join(["WORD"] * 30)
    text = f'msgid "{short}"\nmsgstr ""\n'
    found = filled(text, lambda segment: long).splitlines()
    assert found[1] == 'msgstr ""'
    assert max(map(len, found)) <= 79
    assert "".join(line.strip('"') for line in found[2:]) == long
    text += f'\nmsgid "{"wide " * 30}"\nmsgstr "x"\n'
    assert f'msgstr "{long}"\n' in filled(text, lambda segment: long)


def test_placeholders_of_programs(tmp_path: Path) -> None:
    """Placeholders without a name get numbers if they change places, or the message stays untranslated."""
    text = '#, c-format\nmsgid "Copy %s to %s in %d%%."\nmsgstr ""\n'
    assert filled(text).splitlines()[-1] == 'msgstr "COPY %3$d%% TO %2$s IN %1$s."'
    checked((HEADER + filled(text)).encode(), tmp_path)
    assert filled(text, lambda s: s.text.lower()).splitlines()[-1] == 'msgstr "copy %s to %s in %d%%."'
    assert filled('msgid "Copy %s to %s."\nmsgstr ""\n').endswith('msgstr "COPY %s TO %s."\n')
    for untouched, reason in (
        (text.replace("c-format", "python-format"), "moves placeholders without names"),
        (text.replace("%d%%", "%*d"), "loses placeholders|moves placeholders"),
    ):
        file = read(HEADER + untouched)
        assert translate(file)[0].decode() == HEADER + untouched
        assert [key for key in file.left if any(part in key for part in reason.split("|"))]
    assert filled('#, c-format\nmsgid "At %\'d now."\nmsgstr ""\n').endswith('msgstr "AT %\'d NOW."\n')


@pytest.mark.parametrize(
    ("flag", "source", "target"),
    [
        ("c", "%<PRIu64> of %*d%%", None),
        ("kde", "Copy %1 to %2.", "COPY %2 TO %1."),
        ("qt", "Page %L1 of %n", "PAGE %n OF %L1"),
        ("ruby", "%{name} has %<n>d of #{x}", "#{x} HAS %<n>d OF %{name}"),
        ("php", "%1$s of %2$s", "%2$s OF %1$s"),
        ("javascript", "%s of %s", "%2$s OF %1$s"),
        ("python-brace", "{name!r:>8} of {0}", "{0} OF {name!r:>8}"),
        ("python-brace", "{} of {}", None),  # they would swap their values
        ("perl-brace", "{a} of {b}", "{b} OF {a}"),
        ("csharp", "{0:N2} of {1,5}", "{1,5} OF {0:N2}"),
        ("boost", "%1% of %2%", "%2% OF %1%"),
        ("sh", "$a of ${b}", "${b} OF $a"),
        ("", ":name of $1 by __user__", "__user__ OF $1 BY :name"),
        ("", "<0>One</0> of @user", "<0>ONE</0> OF @user"),
    ],
)
def test_placeholders_of_languages(flag: str, source: str, target: str | None) -> None:
    text = f'#, {flag}-format\nmsgid "{source}"\nmsgstr ' if flag else f'msgid "{source}"\nmsgstr '
    assert filled(f'{text}""\n') == f'{text}"{target or ""}"\n'


@pytest.mark.parametrize(
    ("flag", "source", "translation"),
    [
        ("c", "Done of %d", "100% ⟨1⟩"),  # %\u0020% is a directive
        ("c", "Done", "100% de"),
        ("python-brace", "Done", "{x}"),
        ("kde", "%1 done", "%1 ⟨1⟩"),
        ("ruby", "Done", "%{x}"),
    ],
)
def test_a_message_with_other_placeholders_stays_and_is_counted(flag: str, source: str, translation: str) -> None:
    file = read(HEADER + f'#, {flag}-format\nmsgid "{source}"\nmsgstr ""\n')
    assert translate(file, lambda _: translation)[0].decode() == unchanged(file).decode()
    assert file.left == Counter({"units whose translation would change placeholders": 1})


ICU = "{n, plural, offset:1 =0 {no file} one {# file} other {{who, select, male {his # files} other {all # of {k}}}}}"


def test_soft_hyphens_stay_out_of_the_text() -> None:
    file = read(HEADER + 'msgid "A key\u00adboard %s"\nmsgstr ""\n')
    assert [block.text for block in file.blocks] == ["A keyboard ￼"]
    assert translate(file)[0].decode().endswith('msgstr "A KEYBOARD %s"\n')


def test_messages_of_icu() -> None:
    text = f'msgid "{ICU}"\nmsgstr ""\n'
    assert [block.text for block in read(HEADER + text).blocks] == ["no file", "￼ file", "his ￼ files", "all ￼ of ￼"]
    wanted = (
        "{n, plural, offset:1 =0 {NO FILE} one {# FILE} other {{who, select, male {HIS # FILES} other {ALL {k} OF #}}}}"
    )
    assert "".join(line.strip('"') for line in filled(text).partition("msgstr ")[2].splitlines()) == wanted
    for source, translation, reason in (
        ("Delete {n, plural, one {it} other {# files}}?", "x", "units with a plural or select inside a sentence"),
        ("{n, plural, one {it} other {# files}", "x", "units with a plural or select inside a sentence"),
        (ICU, "l'⟨1⟩", "units whose translation would change placeholders"),  # quotes what follows
        (ICU, "⟨1⟩ ⟨2⟩ }", "units whose translation would change placeholders"),
    ):
        file = read(HEADER + f'msgid "{source}"\nmsgstr ""\n')
        assert translate(file, lambda _, translation=translation: translation)[0].decode() == unchanged(file).decode()
        assert file.left == Counter({reason: 1})


def test_encodings() -> None:
    data = (HEADER.replace("UTF-8", "ISO-8859-1") + 'msgid "Né"\nmsgstr ""\n').encode("iso-8859-1")
    assert translate(PoFile(data, "a.po"))[0].endswith(b'msgstr "N\xc9"\n')

    def japanese(segment: Segment) -> str:
        return "日"

    with pytest.raises(DataError, match=r"a\.po:9: the translation has '日', which ISO-8859-1 lacks: convert"):
        translate(PoFile(data, "a.po"), japanese)


def test_controls_are_escaped() -> None:
    text = 'msgid "\\033[1mBold\\a\\r"\nmsgstr ""\n'
    assert (
        filled(text, lambda segment: segment.text.upper())
        == 'msgid "\\033[1mBold\\a\\r"\nmsgstr "\\033[1mBOLD\\a\\r"\n'
    )
    assert filled('msgid "a"\nmsgstr ""\n', lambda _: "x\x00\n\u2028y").endswith('msgstr "x y"\n')


def test_confidence_stands_in_a_comment_and_unsure_messages_are_fuzzy(tmp_path: Path) -> None:
    text = (
        HEADER
        + """# mine
#: a.c:1
#, c-format
msgid "Open %s now."
msgstr ""

#| msgid "Old"
msgctxt "menu"
msgid "One file"
msgid_plural "Files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

msgid "Sure"
msgstr ""

msgid "Given"
msgstr ""
"""
    )
    file, segments = read_prose(text.encode(), "a.po", "po", "en", "sentence")
    texts = [segment.text.upper() for some in segments for segment in some]
    told = {0: (31.4, True), 1: (90.0, False), 2: (20.0, True), 3: (80.0, False)}
    data = file.write(prose_changes(segments, texts, Counter(), told=told))
    found = data.decode().removeprefix(HEADER)
    assert found.startswith("# mine\n# confidence: 31\n#: a.c:1\n#, fuzzy, c-format\nmsgid")
    assert '\n\n# confidence: 20\n#, fuzzy\n#| msgid "Old"\nmsgctxt "menu"\n' in found
    assert '\n\n# confidence: 80\nmsgid "Sure"\nmsgstr "SURE"\n\nmsgid "Given"\nmsgstr "GIVEN"\n' in found
    checked(data, tmp_path)
    assert [unit.isfuzzy() for unit in pofile.parsestring(data).units[1:]] == [True, True, False, False]


def test_a_template_gets_the_name_of_its_encoding() -> None:
    template = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=CHARSET\\n"\n\nmsgid "cat"\nmsgstr ""\n'
    wanted = template.replace("CHARSET", "UTF-8").replace('"cat"\nmsgstr ""', '"cat"\nmsgstr "gató"')
    assert translate(read(template), lambda segment: "gató")[0].decode() == wanted
    assert read(template).write([[]]) == template.encode()


def test_a_comment_before_the_first_message_comes_after_the_mark_of_utf_8() -> None:
    content = '\ufeffmsgid "cat"\nmsgstr ""\n'.encode()
    file, segments = read_prose(content, "a.po", "po", "en", "sentence")
    data = file.write(prose_changes(segments, ["CAT"], Counter(), told={0: (31.4, True)}))
    assert data.decode() == '\ufeff# confidence: 31\n#, fuzzy\nmsgid "cat"\nmsgstr "CAT"\n'
    assert unchanged(file) == content
    assert [block.text for block in PoFile(data, "a.po", written=True).blocks] == ["CAT"]
