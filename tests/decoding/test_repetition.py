"""What texts repeat, against a count of everything."""

from __future__ import annotations

import random

import pytest
import torch

from scaleformer.decoding.repetition import repetitions
from tests.search import commonest


def test_the_most_frequent_n_gram_is_counted():
    texts = torch.tensor([[8, 9, 8, 9, 8, 9, 8], [8, 8, 8, 9, 0, 0, 0], [8, 9, 7, 8, 9, 0, 0]])
    assert repetitions(texts, torch.tensor([7, 4, 5]), 2).tolist() == [3, 2, 2]
    assert repetitions(texts, torch.tensor([7, 4, 5]), 4).tolist() == [2, 1, 1]


@pytest.mark.parametrize("n", [1, 2, 4])
def test_repetitions_of_random_texts(n: int) -> None:
    rng = random.Random(n)
    for _ in range(60):
        words = rng.choice([[20], [20, 21], [20, 21, 22]])
        texts = [rng.choices(words, k=rng.randrange(14)) for _ in range(rng.randrange(1, 6))]
        width = max(map(len, texts))
        padded = torch.tensor([text + [0] * (width - len(text)) for text in texts], dtype=torch.long)
        found = repetitions(padded, torch.tensor([len(text) for text in texts]), n)
        assert found.tolist() == [commonest(text, n) for text in texts]
