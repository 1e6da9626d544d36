"""Data sets of the Hub: what an environment without a place for them says."""

from __future__ import annotations

import errno

import datasets
import pytest

from scaleformer.data.config import HubConfig
from scaleformer.data.errors import DataError, MissingSplit
from scaleformer.data.readers.hub import hub_documents


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOTDIR, errno.EROFS])
def test_a_cache_that_cannot_be_written_blames_no_split(monkeypatch, number: int) -> None:
    error = OSError(number, "No way", "/root/.cache/huggingface")
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: (_ for _ in ()).throw(error))
    with pytest.raises(DataError, match=r"^/root/.cache/huggingface: No way: HF_HOME names a folder") as caught:
        list(hub_documents(HubConfig("json"), "test"))
    assert not isinstance(caught.value, MissingSplit)
