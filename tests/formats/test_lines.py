"""Readers: their documents, and the one line for each fault."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from pathlib import Path

import pytest

from scaleformer.formats.bitexts import Bitext, read_bitext
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.formats.lines import decode_lines, read_lines
from scaleformer.formats.text_pairs import read_text_pair
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.text.documents import Document

SAMPLES = Path(__file__).parents[2] / "data" / "samples"
GOOD = '{"id": "a", "source": ["x", "y"], "target": ["u", "v"]}\n'


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_samples_agree_in_every_format() -> None:
    """The same corpus stands in data/samples in each format; ids are kept where the format has them."""
    train = list(read_jsonl(SAMPLES / "jsonl" / "train.jsonl"))
    text, ids = SAMPLES / "text", SAMPLES / "text_ids"
    by_blank = list(read_text_pair(text / "train.en", text / "train.es"))
    by_ids = list(read_text_pair(ids / "train.en", ids / "train.es", "ids", ids / "train.ids"))
    assert by_ids == train
    assert [(d.source, d.target) for d in by_blank] == [(d.source, d.target) for d in train]
    assert [d.id for d in by_blank] == ["train.en:1", "train.en:6", "train.en:10", "train.en:15"]
    everything = [d for s in ("train", "valid", "test") for d in read_jsonl(SAMPLES / "jsonl" / f"{s}.jsonl")]
    assert list(read_jsonl(SAMPLES / "one_file.jsonl.gz")) == everything
    assert list(read_bitext(Bitext("tsv", str(SAMPLES / "documents.tsv")), Counter())) == everything


def test_jsonl_keeps_odd_text(tmp_path: Path) -> None:
    document = Document("d", ("", " ", "a\tb\nc", "<sep>", "\u2028\u0085", "日本 😀"), ("1", "2", "3", "4", "5", "6"))
    path = write(tmp_path / "a.jsonl", "\ufeff" + document.to_json() + "\r\n")
    assert list(read_jsonl(path)) == [document]


def test_jsonl_ignores_other_keys_and_may_do_without_target(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"id": "a", "source": ["x"], "url": 3}\n')
    assert list(read_jsonl(path, require_target=False)) == [Document("a", ("x",))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param('{"id": "a",', "malformed JSON", id="malformed"),
        pytest.param("", "empty line", id="blank line"),
        pytest.param("[" * 100_000, "malformed JSON", id="nested too deep"),
        pytest.param("[1]", "a JSON list, wanted an object", id="no object"),
        pytest.param('{"source": ["x"], "target": ["y"]}', "no 'id' (keys present: source, target)", id="no id"),
        pytest.param('{"id": "a", "src": ["x"]}', "no 'source' and no 'target'", id="no sides"),
        pytest.param('{"id": 7, "source": ["x"], "target": ["y"]}', "'id' is int, wanted a string", id="id type"),
        pytest.param('{"id": "a", "source": "x", "target": ["y"]}', "'source' is str, wanted a list", id="text side"),
        pytest.param('{"id": "a", "source": ["x"], "target": [1]}', "target[0] is int", id="segment type"),
        pytest.param('{"id": "a", "source": ["x", null], "target": ["y", ""]}', "source[1] is NoneType", id="null"),
        pytest.param(
            '{"id": "a", "source": ["x", "z"], "target": ["y"]}',
            "2 source segments and 1 target segments",
            id="lengths",
        ),
        pytest.param('{"id": "a", "source": [], "target": []}', "'a' is empty: it has no segments", id="empty"),
        pytest.param('{"id": "a", "source": ["\\ud800"], "target": ["y"]}', "lone surrogate", id="surrogate"),
        pytest.param('{"id": ' + "9" * 5000 + "}", "a number with too many digits", id="huge number"),
        pytest.param('{"' + "k" * 5000 + '": 1}', "(keys present: " + "k" * 59, id="long key"),
    ],
)
def test_jsonl_faults(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "a.jsonl", GOOD + line + "\n")
    with pytest.raises(DataError) as caught:
        list(read_jsonl(path))
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_not_utf8(tmp_path: Path, packed: bool) -> None:
    content = b"one\ntwo\nse\xf1or\n"
    path = write(tmp_path / ("a.gz" if packed else "a"), gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=r":3: not UTF-8 \(byte 3 of the line\)"):
        list(read_lines(path))


def test_truncated_gz(tmp_path: Path) -> None:
    text = "".join(f"line {i * 7919 % 10007}\n" for i in range(20_000)).encode()
    path = write(tmp_path / "a.gz", gzip.compress(text)[:-5000])
    with pytest.raises(DataError, match=r"a\.gz:\d+: the compressed file is truncated"):
        list(read_lines(path))


def test_gz_suffix_without_gzip(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.gz:1: damaged gzip file"):
        list(read_lines(write(tmp_path / "a.gz", "plain text")))


def test_damaged_gz(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"abc\n" * 1000))
    packed[12] ^= 0xFF
    with pytest.raises(DataError, match=r"a\.gz:1: "):
        list(read_lines(write(tmp_path / "a.gz", bytes(packed))))


def test_missing_file_and_folder_for_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(read_lines(tmp_path / "none"))
    with pytest.raises(DataError, match="cannot be read"):
        list(read_lines(tmp_path))


def test_gzip_without_the_suffix(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", gzip.compress("a\nü\n".encode()))
    assert list(read_lines(path)) == [(1, "a"), (2, "ü")]


def test_an_endless_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaleformer.formats.lines.LONGEST_LINE", 1000)
    path = write(tmp_path / "a.gz", gzip.compress(b"short\n" + b"x" * 10_000))
    with pytest.raises(DataError, match=r"a\.gz:2: the line is longer than 1,000 bytes: split it"):
        list(read_lines(path))


def test_only_a_byte_order_mark(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "a.txt", b"\xef\xbb\xbf"))) == []


def test_messages_are_one_line() -> None:
    assert str(DataError("a\nb: no such file")) == "a b: no such file"
    assert shown("x" * 100) == "'" + "x" * 59 + "..."
    assert shown([1]) == "[1]"


def test_decode_lines_names_the_stream() -> None:
    with pytest.raises(DataError, match=r"^-:2: not UTF-8"):
        list(decode_lines(io.BytesIO(b"a\n\xff\n"), "-"))


def pair(tmp_path: Path, source: str, target: str, ids: str | None = None) -> list[Path]:
    files = [write(tmp_path / "t.en", source), write(tmp_path / "t.es", target)]
    return files if ids is None else [*files, write(tmp_path / "t.ids", ids)]


def test_text_pair_lines_keeps_blank_segments(tmp_path: Path) -> None:
    source, target = pair(tmp_path, "a\n\nc\n", "x\ny\n\n")
    documents = list(read_text_pair(source, target, "lines"))
    assert [(d.id, d.source, d.target) for d in documents] == [
        ("t.en:1", ("a",), ("x",)),
        ("t.en:2", ("",), ("y",)),
        ("t.en:3", ("c",), ("",)),
    ]


def test_text_pair_several_blank_lines(tmp_path: Path) -> None:
    source, target = pair(tmp_path, "\na\n\n\nb\nc", "\nx\n\n \ny\nz\n")
    assert [d.source for d in read_text_pair(source, target)] == [("a",), ("b", "c")]


@pytest.mark.parametrize(
    ("source", "target", "ids", "message"),
    [
        pytest.param("a\nb\n", "x\n", None, r"t\.es:2: ends after 1 lines, but .*t\.en is longer", id="target short"),
        pytest.param("a\n", "x\ny\n", None, r"t\.en:2: ends after 1 lines, but .*t\.es is longer", id="source short"),
        pytest.param("a\n\nb\n", "x\ny\nz\n", None, r"t\.en:2: blank here but not in .*t\.es", id="blank in source"),
        pytest.param("a\nb\n", "x\n \n", None, r"t\.es:2: blank here but not in .*t\.en", id="blank in target"),
        pytest.param("a\nb\nc\n", "x\ny\nz\n", "1\n2\n1\n", r"t\.ids:3: document '1' began earlier", id="scattered"),
        pytest.param("a\nb\n", "x\ny\n", "1\n", r"t\.ids:2: ends after 1 lines", id="ids short"),
    ],
)
def test_text_pair_faults(tmp_path: Path, source: str, target: str, ids: str | None, message: str) -> None:
    files = pair(tmp_path, source, target, ids)
    with pytest.raises(DataError, match=message):
        list(read_text_pair(files[0], files[1], "ids" if ids else "blank", *files[2:]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("a\tx\n", r"t\.tsv:1: 2 columns, wanted 3", id="columns"),
        pytest.param("a\tx\ty\nb\tx\ty\na\tx\ty\n", r"t\.tsv:3: document 'a' began earlier", id="scattered"),
    ],
)
def test_tsv_faults(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_bitext(Bitext("tsv", str(write(tmp_path / "t.tsv", content))), Counter()))


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("id\tsource\ttarget", "a\tx\ty"),
        ("Source\tTarget\tDocument", "x\ty\ta"),
        ("doc_id\ten\tpt-BR", "a\tx\ty"),
        ("\ufeffid\tsrc\ttgt", "a\tx\ty"),
    ],
)
def test_a_header_is_not_a_document(tmp_path: Path, header: str, row: str) -> None:
    path = write(tmp_path / "a.tsv", f"{header}\n{row}\n")
    assert list(read_bitext(Bitext("tsv", str(path)), Counter())) == [Document("a", ("x",), ("y",))]


@pytest.mark.parametrize("line", ["a\tsource\ttarget", "id\tthe source\tthe target", "en\tes\tde"])
def test_a_first_line_that_may_be_text_is_a_document(tmp_path: Path, line: str) -> None:
    assert len(list(read_bitext(Bitext("tsv", str(write(tmp_path / "a.tsv", f"{line}\n"))), Counter()))) == 1
