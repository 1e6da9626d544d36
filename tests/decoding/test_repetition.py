"""What texts repeat, against a count of everything."""

from __future__ import annotations

import random

import pytest
import torch

from scaleformer.decoding.repetition import repetitions
from tests.search import repeated


def test_an_immediate_repetition_is_counted_without_its_first_part():
    texts = torch.tensor([[8, 9, 8, 9, 8, 9, 8], [8, 8, 8, 9, 0, 0, 0], [8, 9, 7, 8, 9, 0, 0]])
    longest, most = repetitions(texts, torch.tensor([7, 4, 5]), 2)
    assert longest.tolist() == [5, 2, 0]  # 8 9 8 9 8 after 8 9; 8 8 after 8; 8 9 does not follow 8 9 at once
    assert most.tolist() == [3, 2, 2]


@pytest.mark.parametrize("n", [1, 2, 4])
def test_repetitions_of_random_texts(n: int) -> None:
    rng = random.Random(n)
    for _ in range(60):
        words = rng.choice([[20], [20, 21], [20, 21, 22]])
        texts = [rng.choices(words, k=rng.randrange(14)) for _ in range(rng.randrange(1, 6))]
        width = max(map(len, texts))
        padded = torch.tensor([text + [0] * (width - len(text)) for text in texts], dtype=torch.long)
        found = repetitions(padded, torch.tensor([len(text) for text in texts]), n)
        assert list(zip(*(values.tolist() for values in found), strict=True)) == [repeated(text, n) for text in texts]
