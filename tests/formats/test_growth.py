"""Hostile texts of four times the size take no reader much more than four times the work."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from scaleformer.formats.bitexts import Bitext, read_bitext
from scaleformer.formats.files import read_prose, write_prose
from scaleformer.formats.recognition import recognise
from scaleformer.system.errors import DataError
from scaleformer.text.terms import find_terms, make_terms
from tests.books import book
from tests.formats.test_odf import PAGE, p, packed_odf, span
from tests.formats.word import document, field, r

SIZE = 4_000  # characters
MOST = 7.5  # times the work for four times the characters; by the square it would be 16
NOISE = 0.02  # seconds

TEXT = (
    *("`", "`a", "`` ", "``a` ", ":a:`", "<a ", "<a b=c ", '<a b="', "<b></i>", "<b>", "<!--", "[", "[a](", "]("),
    *("![a]", "[^a", "*", "**a", "_a ", "{", "{%", "{a:", "%(", "%0", "1.", "1.1a", "v1.", "/a", "a/", "@a", "a@b."),
    *("www.", "https://a(", "(", '"a. A ', "'a ", "' a. A ", "a'b", "«", "“", "‘", "⟨1⟩", "   a", "&a", "a. ", "!"),
    *("A. ", "a\n", "\n", "|a"),
)  # fmt: skip
MARKDOWN = (
    "`",
    "[",
    "[a](",
    "![",
    "[^a",
    "**a",
    "_",
    "~~",
    "<a ",
    "<b></i>",
    "&a",
    "\\",
    "|a",
    "> ",
    "- a\n",
    "[a]: b\n",
)
CUE = ("<i>", "<b></i>", "<a ", "{\\", "&a", "&#1", "a\n", "1\n", "   ")
PO = ("%0", "%(", "\\n", "\\n ", "{", "a. ", "`", "<b></i>")
PO_LINES = ("#\n", '"a"\n', 'msgid ""\nmsgstr ""\n', '#~ msgid "a"\n#~ msgstr "b"\n', "\n")
XML = ("<g id='1'>a</g>", "<x id='1'/>", "<bx id='1'/>", "<ex id='1'/>", "&amp;", "a. ", "   ", "&lt;b&gt;&lt;/i&gt;")
BEGIN = '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
MARKED = '<w:bookmarkStart w:id="1"/>' + r("a") + '<w:bookmarkEnd w:id="1"/>'
WORD = (r("a "), r("a ", "<w:b/>") + r("b "), r(" ", '<w:u w:val="single"/>'), BEGIN, field("PAGE", r("1")), MARKED)
WORD += (f"<w:ins>{r('a')}</w:ins>", "<w:r><w:tab/></w:r>", "<w:proofErr/>")
ODF = (
    span("T1", "a "),
    span("T2", "a ") + "b ",
    "<text:s/>",
    PAGE,
    f"<text:a>{span('T1', 'a')}</text:a>",
    "<text:tab/>",
)
LOOKS = ("[", "[a](", "|", "|\n", "**", "{", "[\n", "\n", '{"a', "<!", "<?a", "#", "1\n")


def prose(format: str, before: str, after: str = "") -> Callable[[str, Path], None]:
    """Read a file with these marks in it, and write it translated."""

    def read(marks: str, _: Path) -> None:
        text = f"{before}{marks}{after}"
        data = document(f"<w:p>{text}</w:p>") if format == "docx" else text.encode()
        data = book(a=text) if format == "epub" else data
        data = packed_odf(p(text)) if format == "odf" else data
        file, segments = read_prose(data, "a", format, "en", "sentence")
        write_prose(file, segments, [each.text.upper() for some in segments for each in some], Counter())

    return read


def memory(marks: str, folder: Path) -> None:
    path = folder / "a.tmx"
    unit = f"<tu><tuv lang='en'><seg>{marks}</seg></tuv><tuv lang='es'><seg>b</seg></tuv></tu>"
    path.write_text(f"<tmx><header srclang='en'/><body>{unit}</body></tmx>", encoding="utf-8")
    list(read_bitext(Bitext("tmx", str(path)), Counter()))


def terms(marks: str, _: Path) -> None:
    find_terms(marks, make_terms({"a b": "c", "copy files": "x", "[^a": "y", "(": "z"}))


CUES = "1\n00:00:01,000 --> 00:00:02,000\na "
READERS = {
    "text": (prose("text", ""), TEXT),
    "markdown": (prose("markdown", "a "), MARKDOWN),
    "srt": (prose("srt", CUES), CUE),
    "vtt": (prose("vtt", f"WEBVTT\n\n{CUES.replace(',', '.')}"), CUE),
    "po": (prose("po", '#, c-format\nmsgid "a ', '"\nmsgstr ""\n'), PO),
    "po lines": (prose("po", 'msgid "a"\nmsgstr ""\n'), PO_LINES),
    "xliff": (prose("xliff", "<xliff><file><trans-unit><source>a ", "</source></trans-unit></file></xliff>"), XML),
    "docx": (prose("docx", r("a"), r("b")), WORD),
    "odf": (prose("odf", "a", "b"), ODF),
    "epub": (prose("epub", "<html><body><p>a ", "</p></body></html>"), ("<b></b>", "<i/>", "&amp;", "a. ", "&lt;a ")),
    "tmx": (memory, XML),
    "terms": (terms, ("a ", "a", "copy  ", "copy files ", "[^a", "(", " ")),
    "looks": (lambda marks, _: recognise(marks.encode(), "") and None, LOOKS),
}  # fmt: skip


def seconds(read: Callable[[str, Path], None], marks: str, folder: Path) -> float:
    start = time.process_time()
    with suppress(DataError):  # a refusal costs no more than an answer
        read(marks, folder)
    return time.process_time() - start


@pytest.fixture
def _uncollected() -> Iterator[None]:
    """What other tests have left is not searched for garbage meanwhile."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("name", READERS)
def test_four_times_the_marks_are_not_sixteen_times_the_work(name: str, tmp_path: Path) -> None:
    read, units = READERS[name]

    def slow() -> Iterator[str]:
        for unit in units:
            marks = unit * (SIZE // len(unit))
            once = more = float("inf")
            for _ in range(5):  # other programs disturb a measurement
                once = min(once, seconds(read, marks, tmp_path))
                more = min(more, seconds(read, marks * 4, tmp_path))
                if more < MOST * once + NOISE:
                    break
            else:
                yield f"{unit}: {once:.3f} s, then {more:.3f} s"

    assert list(slow()) == []
