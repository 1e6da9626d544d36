"""What is no catalogue, what is an odd one, and damaged ones: refused in one line, or read at once."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from scaleformer.formats.po import PoFile
from scaleformer.system.errors import DataError
from tests.formats.fake import translate, unchanged
from tests.formats.faults import check_fault
from tests.formats.test_po import FILE, read


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param('msgid "a\nmsgstr ""\n', r"a\.po:1: .*wanted a comment, or msgid", id="unclosed"),
        pytest.param('msgid "a"\nmsgid_plural "b"\n', r"a\.po:1: .* is incomplete", id="plural without forms"),
        pytest.param('msgid "a"\nmsgid_plural "b"\nmsgstr ""\n', r"a\.po:1: .* is incomplete", id="plural, one msgstr"),
        pytest.param('msgid "a"\nmsgstr[0] ""\n', r"a\.po:1: .* is incomplete", id="forms without plural"),
        pytest.param('msgid "a"\n', r"a\.po:1: .* is incomplete", id="truncated"),
        pytest.param('msgid "a"\nmsgid "b"\nmsgstr ""\n', r"a\.po:1: .* is incomplete", id="two msgids"),
        pytest.param('msgstr ""\n', r"a\.po:1: .* is incomplete", id="no msgid"),
        pytest.param('"a"\n', r"a\.po:1: .* is incomplete", id="stray text"),
        pytest.param("words\n", r"a\.po:1: 'words': wanted a comment", id="no catalogue"),
        pytest.param('msgid "a\\q"\nmsgstr ""\n', r"a\.po:1: unknown escape", id="escape"),
        pytest.param(
            'msgid "\\377"\nmsgstr ""\n',
            r"a\.po:1: the .* escapes of this message are not valid UTF-8",
            id="half a character",
        ),
        pytest.param('msgid "a\0b"\nmsgstr ""\n', r"a\.po:1: a null character", id="null"),
        pytest.param('msgid ""\nmsgstr "charset=punycode\\n"\n', r"a\.po: unknown charset='punycode'", id="charset"),
        pytest.param('msgid ""\nmsgstr "charset=idna\\n"\n', r"a\.po: unknown charset='idna'", id="slow charset"),
        pytest.param(b'msgid "\xe9"\nmsgstr ""\n', r"a\.po:1: not UTF-8 .byte 8", id="latin-1"),
        pytest.param(FILE.encode("utf-16-le"), r"a\.po:1: ", id="utf-16 without mark"),
        pytest.param(FILE.encode("utf-16"), r"a\.po:1: not UTF-8", id="utf-16"),
        pytest.param(b"\xde\x12\x04\x95\0\0\0\0", r"a\.po:1: not UTF-8", id="a compiled catalogue"),
        pytest.param("x" * 5_000_000, r"a\.po:1: 'x{59}", id="a long word"),
        pytest.param('msgid "' + "\\" * 5_000_001 + '"', r"a\.po:1: 'msgid ", id="backslashes"),
        pytest.param('"' * 1_000_000, r"a\.po:1: ", id="quotation marks"),
        pytest.param('msgid ""\n' * 100_000, r"a\.po:1: .* is incomplete", id="many msgids"),
    ],
)
def test_faults(text: str | bytes, message: str) -> None:
    check_fault(lambda: PoFile(text.encode() if isinstance(text, str) else text, "a.po"), message)


@pytest.mark.parametrize(
    "text",
    [
        'msgid "a"\nmsgstr ""\n' * 2,  # twice the same
        'msgid "a"\nmsgstr ""\n# c\n' * 20_000,
        'msgid ""\nmsgstr ""\n' + '"x"\n' * 100_000,
        f'msgid "{"a " * 50_000}"\nmsgstr ""\n',
        f'#, c-format\nmsgid "{"%s a " * 2_000}"\nmsgstr ""\n',
        f'msgid "a"\nmsgid_plural "b"\n{"".join(f"msgstr[{n}] {chr(34) * 2}{chr(10)}" for n in range(2_000))}',
    ],
    ids=["twice", "many", "a long header", "a long text", "many placeholders", "many forms"],
)
def test_what_is_odd_is_read_quickly(text: str) -> None:
    file = read(text)
    assert unchanged(file) == text.encode()
    translate(file)


def test_no_damage_is_another_error() -> None:
    random = Random(1)
    for _ in range(300):
        begin, length = random.randrange(len(FILE)), random.randrange(1, 30)
        with suppress(DataError):
            translate(read(FILE[:begin] + FILE[begin + length :]))
