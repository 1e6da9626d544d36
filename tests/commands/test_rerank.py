"""The command `rerank`: its choices from n-best lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scaleformer.commands.rerank import Options, main
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.minimum_risk import expected_utilities
from scaleformer.system.schema import from_mapping

LISTS = [[["the dog", "x"], ["a cat sees", "it runs"], ["a cat", "it runs"]], [["same"], ["same"]]]


def rerank(folder: Path, lists: list[list[list[str]]] = LISTS, **settings: Any) -> list[dict[str, Any]]:
    source, output = folder / "in.jsonl", folder / "out.jsonl"
    records = [{"source": one[0], "n_best": [{"segments": segments} for segments in one]} for one in lists]
    source.write_text("".join(json.dumps(record) + "\n" for record in records))
    options = {"metric": "chrf", "level": "document", "metrics": {"tokenize": "auto", "lowercase": False}, **settings}
    main(from_mapping(Options, {"input": str(source), "output": str(output), **options}, ""), [])
    return [json.loads(line) for line in output.read_text().splitlines()]


@pytest.mark.parametrize("metric", ["chrf", "bleu"])
@pytest.mark.parametrize("level", ["document", "segment"])
def test_the_most_similar_to_all_is_chosen(tmp_path, capsys, level, metric):
    first, second = rerank(tmp_path, level=level, metric=metric)
    assert "chose a translation other than the first in 1 of 2 documents" in capsys.readouterr().err
    assert second["hypothesis"] == ["same"]
    assert first["hypothesis"][1] == "it runs"
    if level == "document":
        single = Metrics().chrf() if metric == "chrf" else Metrics().bleu(effective_order=True)
        scores = expected_utilities([" ".join(segments) for segments in LISTS[0]], single)
        assert [entry["score"] for entry in first["n_best"]] == sorted(scores, reverse=True)
        assert first["hypothesis"] == LISTS[0][scores.index(max(scores))]


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(ValueError, match="metric is 'ter': it must be one of chrf, bleu"):
        rerank(tmp_path, metric="ter")
    with pytest.raises(ValueError, match="level is 'word': it must be one of document, segment"):
        rerank(tmp_path, level="word")
    with pytest.raises(ValueError, match=r"in\.jsonl: document 1: segment counts differ \(2, 1\)"):
        rerank(tmp_path, [[["a", "b"], ["a"]]], level="segment")
