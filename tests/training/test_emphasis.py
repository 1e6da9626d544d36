"""Words that weigh more: where they are found, and what they weigh."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.system.errors import DataError
from scaleformer.training.emphasis import Emphasis, EmphasisConfig
from scaleformer.training.graphs import masked_loss
from scaleformer.vocabulary import EOS, PAD, SEP
from tests.trainings import Batches, make_module

SENTENCES = (
    "Te dije que vosotros tenéis un libro.",
    "Os digo: el tebeo es vuestro, te lo doy.",
    "Vosotros, vuestros libros.",
)


def marked(words: tuple[str, ...], size: int) -> list[str]:
    """The words of the sentences that are found."""
    tokenizer = Tokenizer.train(SENTENCES * 20, size, byte_fallback=False)
    tokens = [tokenizer.encode(sentence) for sentence in SENTENCES]
    width = max(map(len, tokens)) + 2
    rows = torch.tensor([[*row, SEP, EOS, *[PAD] * (width - 2 - len(row))] for row in tokens])
    found = Emphasis(words, tokenizer)(rows)
    text = "".join(tokenizer.piece(token) for row, at in zip(rows, found, strict=True) for token in row[at].tolist())
    return text.replace("\u2581", " ").split()


@pytest.mark.parametrize("size", [43, 51])
def test_whole_words_are_found_whatever_their_pieces(size: int) -> None:
    config = EmphasisConfig("en-es/you")
    assert marked(config.forms(), size) == ["Te", "vosotros", "Os", "vuestro", "te", "Vosotros", "vuestros"]
    assert marked(("te",), size) == ["te"]
    assert marked(("casa",), size) == []


def test_words_that_the_corpus_lacks_are_told() -> None:
    tokenizer = Tokenizer.train(SENTENCES * 20, 51, byte_fallback=False)
    targets = np.array([token for sentence in SENTENCES for token in [*tokenizer.encode(sentence), SEP]], np.uint16)
    assert Emphasis(("te",), tokenizer).notes(targets) == []
    said = f"emphasis.choices: none of its words is in {len(targets)} target tokens"
    assert Emphasis(("casa",), tokenizer).notes(targets) == [said]


def test_bytes_go_on_with_a_word() -> None:
    tokenizer = Tokenizer.train(["e t b", "b e t"] * 20, 279)
    [[word]] = [tokenizer.encode("t")]
    rows = torch.tensor([[*tokenizer.encode("t é"), *tokenizer.encode("té"), SEP]])
    assert tokenizer.piece(int(rows[0, -2])).startswith("<0x")
    assert Emphasis(("t",), tokenizer)(rows)[0].tolist() == [True] + [False] * (rows.shape[1] - 1)
    assert (rows[0] == word).sum() == 2


def test_they_weigh_more_in_training_alone() -> None:
    module = make_module(label_smoothing=0.1).double()
    (batch,) = Batches(1)
    targets = batch.target_output[batch.target_mask]
    heavy = targets % 3 == 0
    module.emphasis, module.weight = lambda ids: ids % 3 == 0, 5.0
    logits = module.model.logits(module.model(batch))[batch.target_mask]
    each = cross_entropy(logits, targets, label_smoothing=0.1, reduction="none")
    wanted = (each * torch.where(heavy, 5.0, 1.0)).sum() / len(targets)
    loss, tokens = module._loss(batch, 0.1)
    assert tokens == len(targets)
    assert 0 < heavy.sum() < len(targets)
    parameters = [p for p in module.parameters() if p.requires_grad]
    torch.testing.assert_close(loss.double(), wanted)
    for ours, theirs in zip(
        torch.autograd.grad(loss, parameters, allow_unused=True),
        torch.autograd.grad(wanted, parameters, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-5)
    masked, count = masked_loss(module.model, batch, 0.1, module.emphasis, 5.0)  # as on a GPU
    torch.testing.assert_close(masked.double(), wanted)
    assert int(count) == len(targets)
    module.eval()
    torch.testing.assert_close(module._loss(batch, 0.1)[0].double(), each.mean())


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.yaml.*wanted a file of choices, or one of en-es/it"):
        EmphasisConfig(str(tmp_path / "none.yaml")).forms()
