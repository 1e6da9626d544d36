"""The program that measures the preparation of a large corpus, on a small one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from scripts.bench_data import main


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_corpus_is_written_once_and_measured_again(tmp_path: Path) -> None:
    given = [str(tmp_path), "--segments", "600", "--shards", "2", "batch_tokens=512", "multi_resolution=true"]
    for _ in range(2):
        main(given)
        result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
        assert [row["step"] for row in result["steps"]][:2] == ["write the corpus", "hash the files"]
        assert result["peak_bytes"] > 1 << 20
    shards = [path.read_text(encoding="utf-8").splitlines() for path in sorted((tmp_path / "corpus").glob("*.jsonl"))]
    assert len(shards) == 2
    segments = sum(len(json.loads(line)["source"]) for lines in shards for line in lines)
    assert 600 <= segments < 620


def test_wrong_settings_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data\.max_token: no such setting"):
        main([str(tmp_path / "new"), "max_token=12"])
    assert not (tmp_path / "new").exists()
