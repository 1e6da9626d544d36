"""Data sets from the Hub, or from files that its builders read."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scaleformer.data.config import DataConfig, HubConfig, MissingSplit
from scaleformer.data.corpora import DocumentStream, load_split
from scaleformer.data.hub import hub_documents
from scaleformer.data.sources import SplitSource, split_sources
from scaleformer.system.errors import DataError
from scaleformer.text.documents import Document


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTDIR, errno.EROFS])
def test_an_unwritable_cache_blames_no_split(monkeypatch, number: int) -> None:
    error = OSError(number, "No way", "home/.cache/huggingface")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: (_ for _ in ()).throw(error))
    with pytest.raises(
        DataError, match=r"^home/.cache/huggingface: No way: set HF_HOME to a writable folder"
    ) as caught:
        list(hub_documents(HubConfig("json"), "test"))
    assert not isinstance(caught.value, MissingSplit)


def test_parquet_files_are_read_directly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hub")
    pq.write_table(pa.table({"en": ["a\u00a0", "NA"], "es": ["x", ""], "page": ["p", "p"]}), tmp_path / "a.parquet")
    config = HubConfig("parquet", None, {"train": str(tmp_path / "a.parquet")}, "en", "es", "page")
    assert list(hub_documents(config, "train")) == [Document("p", ("a\u00a0", "NA"), ("x", ""))]


def hub(tmp_path: Path, rows: list[dict[str, object]], **options: str) -> SplitSource:
    path = tmp_path / "rows.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = HubConfig(name="json", data_files={"train": str(path)}, valid="", test="", **options)
    sources = split_sources(DataConfig(format="hub", hub=config))
    assert list(sources) == ["train"]
    return sources["train"]


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hub")


@pytest.mark.usefixtures("hub_cache")
def test_hub_builder_with_documents(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"doc": 1, "translation": {"en": "a", "es": "x"}},
        {"doc": 1, "translation": {"en": "b", "es": "y"}},
        {"doc": 2, "translation": {"en": "c", "es": "z"}},
    ]
    source = hub(tmp_path, rows, source="translation.en", target="translation.es", document="doc")
    assert list(source.read()) == [Document("1", ("a", "b"), ("x", "y")), Document("2", ("c",), ("z",))]
    assert len(load_split(source, tmp_path / "cache")) == 2


@pytest.mark.usefixtures("hub_cache")
def test_hub_builder_with_lists(tmp_path: Path) -> None:
    source = hub(tmp_path, [{"source": ["a", "b"], "target": ["x", "y"]}, {"source": ["c"], "target": ["z"]}])
    assert [(d.id, d.source) for d in source.read()] == [("train/1", ("a", "b")), ("train/2", ("c",))]


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        pytest.param({"en": "a"}, {}, r"json\[train\]:1: no column 'source'; there are en", id="no column"),
        pytest.param({"source": 3, "target": "x"}, {}, "column 'source' holds int, wanted text", id="type"),
        pytest.param(
            {"source": ["a"], "target": ["x", "y"]}, {}, "1 source segments and 2 target segments", id="lengths"
        ),
        pytest.param({"source": [], "target": []}, {}, r"json\[train\]:1: document 'train/1' is empty", id="empty"),
        pytest.param(
            {"source": [], "target": [], "doc": "d"}, {"document": "doc"}, r":1: document 'd' is empty", id="empty part"
        ),
    ],
)
def test_hub_faults(tmp_path: Path, row: dict[str, object], options: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(hub(tmp_path, [row], **options).read())


@pytest.mark.usefixtures("hub_cache")
def test_hub_rows_of_a_document_must_be_consecutive(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"doc": doc, "source": "a", "target": "x"} for doc in (1, 1, 2, 1)]
    with pytest.raises(DataError, match=r"json\[train\]:4: document '1' began earlier: put its rows together"):
        list(hub(tmp_path, rows, document="doc").read())


def test_hub_needs_a_name_and_a_data_set(tmp_path: Path) -> None:
    for config, message in (
        (HubConfig(), "needs data.hub.name"),
        (HubConfig(name="json", data_files={"train": str(tmp_path / "none")}), "json: cannot load the split 'train'"),
    ):
        source = split_sources(DataConfig(format="hub", hub=config))["train"]
        with pytest.raises(DataError, match=message) as caught:
            load_split(source, tmp_path / "cache")
        assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize("document", ["", "doc"], ids=["a row each", "rows of a name"])
@pytest.mark.parametrize("streaming", [False, True], ids=["fetched", "streamed"])
def test_hub_rows_of_processes(tmp_path: Path, document: str, streaming: bool) -> None:
    rows: list[dict[str, object]] = [{"doc": i // 3, "source": f"a{i}", "target": f"x{i}"} for i in range(17)]
    source = replace(hub(tmp_path, rows, document=document), streaming=streaming)
    whole = sorted(d.source for d in source.read())
    parts = [list(DocumentStream(source, rank, 3)) for rank in range(3)]
    assert sorted(d.source for part in parts for d in part) == whole
    assert min(map(len, parts)) > 0
    assert len({d.id for part in parts for d in part}) == len(whole)


@pytest.mark.usefixtures("hub_cache")
def test_streamed_hub_data_have_a_fingerprint_without_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scaleformer.data.sources.hub_documents", None)  # reading would fail
    one = replace(hub(tmp_path, [{"source": "a", "target": "x"}]), streaming=True)
    other = replace(hub(tmp_path / "sub", [{"source": "b", "target": "x"}]), streaming=True)
    assert one.fingerprint() == one.fingerprint() != other.fingerprint()
