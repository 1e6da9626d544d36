"""CSV, TSV and Parquet: columns by name, documents by file, row or column."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scaleformer.formats.bitexts import Bitext, Columns, read_bitext
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document
from tests.formats.faults import check_fault

EXACT = ("a\u00a0b\u202fc \u3000", 'say "yes", or\nno', "NA", "null", " 007", "日本語")


def read(path: Path, columns: Columns = Columns(), separate: bool = False) -> list[Document]:  # noqa: B008
    format = path.suffix[1:] if path.is_file() else "csv"
    return list(read_bitext(Bitext(format, str(path), columns, separate=separate), Counter()))


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def parquet(path: Path, **columns: list[Any]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def test_csv_by_file_row_and_column(tmp_path: Path) -> None:
    rows = "".join(f"{quoted(text)},{quoted(text)},d{n // 4}\r\n" for n, text in enumerate(EXACT))
    path = write(tmp_path / "a.csv", "\ufeffen,es,doc\r\n\r\n" + rows)
    texts = tuple(text.replace("\r", "") for text in EXACT)
    assert read(path, Columns("en", "es")) == [Document("a", texts, texts)]
    assert read(path, Columns("en", "es", "doc")) == [
        Document("d0", texts[:4], texts[:4]),
        Document("d1", texts[4:], texts[4:]),
    ]
    assert [d.id for d in read(path, Columns("en", "es"), separate=True)] == [f"a:{n}" for n in range(1, 7)]


def test_tsv_takes_cells_as_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", 'no\tsource\ttarget\tx\n1\t"a\u00a0\t b"\ty\n')
    assert read(path) == [Document("a", ('"a\u00a0',), (' b"',))]


def test_parquet_by_row_and_column(tmp_path: Path) -> None:
    texts = list(EXACT)
    path = parquet(tmp_path / "a.parquet", source=texts, target=texts, n=[1, 1, 2, 2, 2, 3])
    assert read(path) == [Document("a", EXACT, EXACT)]
    assert [(d.id, len(d.source)) for d in read(path, Columns(document="n"))] == [("1", 2), ("2", 3), ("3", 1)]
    pairs = [{"en": ["a", "b"], "es": ["x", "y"]}, {"en": ["c"], "es": ["z"]}]
    path = parquet(tmp_path / "b.parquet", t=pairs, other=[1, 2])
    wanted = [Document("b/1", ("a", "b"), ("x", "y")), Document("b/2", ("c",), ("z",))]
    assert read(path, Columns("t.en", "t.es")) == wanted


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    for name in ("b", "a"):
        write(tmp_path / "d" / f"{name}.csv", f"source,target\n{name},x\n")
    write(tmp_path / "notes.txt", "no table")
    assert [d.id for d in read(tmp_path)] == ["d/a", "d/b"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "source,target\na\n", r"a\.csv:2: 1 cells, wanted 2: source, target"),
        ("a.csv", "source,source\na,b\n", r"a\.csv:1: two columns have the same name"),
        ("a.csv", "src,target\na,b\n", r"a\.csv:2: no column 'source'; there are src, target"),
        ("a.csv", 'source,target\n"a,b\n', r"a\.csv:2: malformed CSV .*is a double quote not closed"),
        ("a.csv", 'source,target\n"a"b,c\n', r"a\.csv:2: malformed CSV"),
        ("a.csv", "source,target\n" + '"' + "x\n" * 100_000, r"a\.csv:\d+: malformed CSV .field larger"),
        ("a.csv", b"source,target\n\xe9,b\n", r"a\.csv:2: not UTF-8"),
        ("a.csv", b"PAR1xxxx", r"a\.csv: a Parquet table, wanted comma-separated values"),
        ("a.tsv", "source\ttarget\na\n", r"a\.tsv:2: 1 cells, wanted 2"),
        ("a.parquet", b"PAR1", r"a\.parquet: damaged Parquet file"),
        ("a.parquet", b"", r"a\.parquet: damaged Parquet file"),
        ("a.parquet", b"source,target\n", r"a\.parquet: damaged Parquet file"),
    ],
)
def test_faults(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    check_fault(lambda: read(write(tmp_path / name, content)), message)


def test_faults_of_sound_parquet_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path / "a.parquet", source=["a", None], target=["x", "y"], n=["1", "1"])
    with pytest.raises(DataError, match=r"a\.parquet\[2\]: column 'source' holds NoneType, wanted text"):
        read(path)
    with pytest.raises(DataError, match=r"a\.parquet: no column 'en'; there are source, target, n"):
        read(path, Columns("en"))
    with pytest.raises(DataError, match=r"a\.parquet: no column 'translation'; there are source"):
        read(path, Columns("translation.en"))
    cut = write(tmp_path / "b.parquet", path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"b\.parquet: damaged Parquet file"):
        read(cut)
    path = parquet(tmp_path / "n.parquet", source=["a", "b"], target=["x", "y"], n=["1", None])
    with pytest.raises(DataError, match=r"n\.parquet\[2\]: column 'n' holds null, wanted the name of a document"):
        read(path, Columns(document="n"))
    path = parquet(tmp_path / "c.parquet", source=["a", "b", "c"], target=["x", "y", "z"], n=["1", "2", "1"])
    with pytest.raises(DataError, match=r"c\.parquet\[3\]: document '1' began earlier"):
        read(path, Columns(document="n"))
    monkeypatch.setattr("scaleformer.formats.tables._LARGEST", 10)
    with pytest.raises(DataError, match=r"c\.parquet: row group 1 has [\d,]+ bytes: write smaller"):
        read(path)
