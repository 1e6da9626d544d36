"""Data sets of the Hub: what an environment without a place for them says."""

from __future__ import annotations

import errno
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from scaleformer.data.config import HubConfig
from scaleformer.data.errors import DataError, MissingSplit
from scaleformer.data.readers.documents import Document
from scaleformer.data.readers.hub import hub_documents


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTDIR, errno.EROFS])
def test_a_cache_that_cannot_be_written_blames_no_split(monkeypatch, number: int) -> None:
    error = OSError(number, "No way", "/root/.cache/huggingface")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: (_ for _ in ()).throw(error))
    with pytest.raises(DataError, match=r"^/root/.cache/huggingface: No way: HF_HOME names a folder") as caught:
        list(hub_documents(HubConfig("json"), "test"))
    assert not isinstance(caught.value, MissingSplit)


def test_parquet_files_are_read_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "hub")
    pq.write_table(pa.table({"en": ["a\u00a0", "NA"], "es": ["x", ""], "page": ["p", "p"]}), tmp_path / "a.parquet")
    config = HubConfig("parquet", None, {"train": str(tmp_path / "a.parquet")}, "en", "es", "page")
    assert list(hub_documents(config, "train")) == [Document("p", ("a\u00a0", "NA"), ("x", ""))]
