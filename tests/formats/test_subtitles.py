"""Subtitles: numbers, times and line counts stay, and errors name the line."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaleformer.formats.subtitles import SrtFile, VttFile
from scaleformer.system.errors import DataError
from tests.formats.fake import translate, unchanged
from tests.formats.faults import check_fault

FILE = """1
00:00:01,000 --> 00:00:02,500
Hello there,
my old friend.

2
00:00:03,000 --> 00:00:04,000  X1:10 X2:20 Y1:5 Y2:6
{\\an8}<i>Who</i> is <b>there</b>?


3
00:00:05.1 --> 00:00:06.1
- Not me. Nor
- you & I < 3?

4
00:00:07,000 --> 00:00:08,000
♪ ♪

5
00:00:09,000 --> 00:00:10,000
"""


WEB = """WEBVTT - A talk

STYLE
::cue { color: white }

NOTE This is no cue
and is not translated.

intro
00:01.000 --> 00:02.500 align:start
<v Ann>Tom &amp; I <c.loud>say</c>
<00:02.000>hello &lt; all.

1:00:00.000 --> 1:00:01.000
&lrm;It ends&nbsp;so.
"""


def read(text: str) -> SrtFile:
    return SrtFile(text.encode(), "a.srt")


def test_cues() -> None:
    file = read(FILE)
    texts = ["Hello there, my old friend.", "￼￼Who￼ is ￼there￼?", "- Not me. Nor - you & I < 3?"]
    assert [block.text for block in file.blocks] == texts
    assert file.left == {"cues without words": 2}


def test_translated() -> None:
    text, counts = translate(read(FILE))
    wanted = FILE.replace("Hello there,\nmy old friend.", "HELLO THERE,\nMY OLD FRIEND.").replace("Who", "WHO")
    wanted = wanted.replace("is <b>there", "IS <b>THERE").replace("Not me. Nor\n- you", "NOT ME. NOR\n- YOU")
    assert text.decode() == wanted
    assert not counts


def test_web_cues() -> None:
    for text in (WEB, WEB.replace("\n", "\r\n"), "\ufeff" + WEB, WEB.rstrip("\n")):
        file = VttFile(text.encode(), "a.vtt")
        assert [block.text for block in file.blocks] == [
            "￼Tom & I ￼say￼ ￼hello < all.",
            "\u200eIt ends\xa0so.",
        ]
        assert unchanged(file) == text.encode()
    translated, counts = translate(VttFile(WEB.encode(), "a.vtt"), lambda segment: segment.text.upper())
    assert not counts
    wanted = WEB.replace("Tom &amp; I", "TOM &amp; I").replace("say", "SAY").replace("hello &lt; all", "HELLO &lt; ALL")
    assert translated.decode() == wanted.replace("&lrm;It ends&nbsp;so", "\u200eIT ENDS\xa0SO")


def test_web_faults() -> None:
    for text, message in (
        ("WEBVTT\n\nintro\nHello\n", "a.vtt:3: 'intro': wanted times, 00:01.000"),
        ("WEBVTT\n\nintro\n\n", "a.vtt:3: 'intro': wanted times"),
        ("WEBVTT\n\n00:01 --> 00:02\nHello\n", "a.vtt:3: '00:01 --> 00:02': wanted times"),
    ):
        with pytest.raises(DataError, match=message):
            VttFile(text.encode(), "a.vtt")


@pytest.mark.parametrize(
    ("source", "translation", "wanted"),
    [
        ("one two\nthree four", "a b c dddd", "a b\nc dddd"),
        ("one two\nthree four", "word", "word"),
        ("one two\nthree four", "two words", "two\nwords"),
        ("a\nb\nc\nd", "x y z", "x\ny\nz"),
        ("- well\n- nobody at all", "- wer ist das bloß - niemand", "- wer ist das bloß\n- niemand"),
        ("<i>one two\nthree</i>", "aa bb cc", "<i>aa bb\ncc</i>"),
        ("one two\nthree four", "a\nb\u2028c\x00\td", "a b\nc d"),
    ],
)
def test_lines(source: str, translation: str, wanted: str) -> None:
    head = "1\r\n00:00:01,000 --> 00:00:02,000\r\n"
    file = read(head + source.replace("\n", "\r\n") + "\r\n")
    assert translate(file, lambda _: translation)[0].decode() == head + wanted.replace("\n", "\r\n") + "\r\n"


T = "00:00:0{}.000 --> 00:00:0{}.500"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("kind", "text", "wanted", "outside"),
    [
        (SrtFile, f"1\n{T}\nOne\n\nmore.\n\n2\n{T}\nTwo\n", ["One more.", "Two"], 0),
        (SrtFile, f"{T}\nOne\n\n{T}\nTwo", ["One", "Two"], 0),
        (SrtFile, f"1\n{T}\nOne\n2\n{T}\nTwo\n3\n\n\n{T}\nIn\n1984", ["One", "Two 3", "In 1984"], 0),
        (SrtFile, f"Made by hand\n\n1\n\n{T}\n\nOne\n\n\n2\n\n{T}\n", ["One"], 1),
        (SrtFile, "1\n0:0:1 --> 0:0:2\nOne\nGo to A --> B\n10:30 -> noon\n", ["One Go to A --> B 10:30 -> noon"], 0),
        (VttFile, f"WEBVTT\n{T}\nOne\n{T}\nTwo\n", ["One", "Two"], 0),
        (VttFile, f"WEBVTT\nX-A: b\n\n1\n{T}\nOne\n2\n{T}\nTwo\n\nlost\nline\n\nNOTE a\nb\n", ["One", "Two"], 2),
        (VttFile, f"WEBVTT\n\n{T}\nOne\n\nid\n{T}\nTwo", ["One", "Two"], 0),
        (VttFile, f"WEBVTT\n\nNOTE\n{T}\nOne\n", ["One"], 0),
    ],
)  # fmt: skip
def test_what_players_read(kind: type[SrtFile], text: str, wanted: list[str], outside: int, end: str) -> None:
    """Without numbers, without empty lines between cues and with some in them; what no player shows is counted."""
    content = text.replace("0{}", "01").replace("\n", end).encode()
    file = kind(content, "a")
    assert [block.text for block in file.blocks] == wanted
    assert file.left["lines outside of cues"] == outside
    assert unchanged(file) == content
    found = translate(file, lambda segment: segment.text.replace("One", "Uno"))[0]
    assert found == content.replace(b"One", b"Uno")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_bytes_stay(end: str, mark: str) -> None:
    for text in (FILE, FILE.rstrip("\n"), FILE + "\n\n", "\n\n" + FILE, ""):
        data = (mark + text.replace("\n", end)).encode()
        file = SrtFile(data, "a.srt")
        assert unchanged(file) == data
        translated, _ = translate(file)
        assert translated.count(end.encode()) == data.count(end.encode())
        assert translated.startswith(mark.encode())


@given(st.text(st.sampled_from("1 aB-.{}\\/<>i\n\r\u2028\ufeff:") | st.characters(codec="utf-8")))
@settings(max_examples=300, deadline=None)
def test_any_text(text: str) -> None:
    data = f"1\n00:00:01,000 --> 00:00:02,000\n{text}".encode()
    for kind in (SrtFile, VttFile):
        with suppress(DataError):
            file = kind(data, "a.srt")
            assert unchanged(file) == data
            translate(file)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"Hello\n", "a.srt:1: 'Hello': wanted times", id="no subtitles"),
        pytest.param(b"WEBVTT\n\n1\n", "a.srt:1: 'WEBVTT': wanted times", id="another format"),
        pytest.param(b"1\nHello\n", "a.srt:2: 'Hello': wanted times, 00:00:01,000 -->", id="no times"),
        pytest.param(b"1\n", "a.srt:2: '': wanted times", id="a number alone"),
        pytest.param(b"1\n-00:00:01,000 --> 00:00:02,000\nx\n", "a.srt:2: '-00:00:01", id="negative time"),
        pytest.param(b"1\n00:00:01,000 -> 00:00:02,000\nx\n", "a.srt:2: .*wanted times", id="another arrow"),
        pytest.param(b"1\n00:00:01,000 --> \nx\n", "a.srt:2: .*wanted times", id="half a time"),
        pytest.param(b"1\n00:00:01,000 --> 00:00:02,000\n\xe9t\xe9\n", "a.srt:3: not UTF-8", id="latin-1"),
        pytest.param("1\n00".encode("utf-16"), "a.srt:1: not UTF-8", id="utf-16"),
        pytest.param("1\n00".encode("utf-16-le"), "a.srt:1: a null character", id="utf-16 without mark"),
        pytest.param(b"1\n00:00:01,000 --> 00:00:02,000\na\0b\n", "a.srt:3: a null character", id="null"),
        pytest.param(b"1\n" + b"9" * 5_000_000, "a.srt:2: '9{59}.*wanted times", id="a long line"),
        pytest.param(b"1\n" + b" " * 5_000_000 + b"x", "a.srt:2: ' .*wanted times", id="white space"),
        pytest.param(b"\x89PNG\r\n\x1a\n\xff", "a.srt:1: not UTF-8", id="an image"),
    ],
)
def test_faults(data: bytes, message: str) -> None:
    check_fault(lambda: SrtFile(data, "a.srt"), message)


@pytest.mark.parametrize("text", ["<i>" * 50_000 + "x", "{\\" * 50_000 + "x", "<i " * 50_000, "x " * 100_000])
def test_what_is_long_is_read_quickly(text: str) -> None:
    file = read(f"1\n00:00:01,000 --> 00:00:02,000\n{text}")
    assert len(file.blocks) == 1
    translate(file)
