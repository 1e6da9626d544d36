"""The short tasks: their contents, and that attentions of several kinds learn them."""

from __future__ import annotations

import pytest
import torch

from scripts.mechanisms import tasks
from scripts.mechanisms.tasks import documents, learn


def test_a_translation_is_a_dictionary_with_swapped_neighbours() -> None:
    batch = documents("translation", torch.Generator().manual_seed(3))
    for source, target in zip(batch.source.tolist(), batch.target_output.tolist(), strict=True):
        assert [source[5], source[11], source[12]] == [target[5], target[11], target[12]] == [4, 4, 3]
        for start in (0, 6):
            for i, j in enumerate((1, 0, 3, 2, 4)):
                assert target[start + i] == 5 + source[start + j] * 7 % 15
    assert len({5 + token * 7 % 15 for token in range(5, 20)}) == 15


def test_a_copy_is_the_source_and_its_segments_are_numbered() -> None:
    batch = documents("copy", torch.Generator().manual_seed(3))
    assert torch.equal(batch.source, batch.target_output)
    assert batch.source_segments[0].tolist() == [0] * 6 + [1] * 6 + [2]
    assert batch.target_segments[0].tolist() == [0] * 6 + [1] * 6 + [2]
    with pytest.raises(ValueError, match="task is 'sort': it must be one of copy, translation"):
        documents("sort", torch.Generator())


@pytest.mark.parametrize("name", ["softmax", "segment_recall"])
def test_an_attention_learns_to_copy(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(tasks, "VOCABULARY", 12)  # fewer and shorter words: half the steps
    monkeypatch.setattr(tasks, "SEGMENT", 3)
    found = learn({"name": name}, "copy", most_steps=600, most_seconds=float("inf"))
    assert found["accuracy"] >= 0.99
    assert found["decoded"] > 0.95


def test_a_task_not_learned_in_time_is_reported() -> None:
    found = learn({"name": "softmax"}, "translation", most_steps=2)
    assert found["steps"] == 2
    assert found["accuracy"] < 0.5
