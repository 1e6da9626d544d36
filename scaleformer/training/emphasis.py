"""Words that weigh more in the loss: those of a file of choices, which other sentences decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scaleformer.data.tokenizer import Tokenizer
from scaleformer.evaluation.context.choices import read_choices
from scaleformer.system.schema import Range
from scaleformer.vocabulary import SPECIAL_PIECES


@dataclass(frozen=True)
class EmphasisConfig:
    """choices: a file of choices, or the name of a shipped one, whose target words weigh `weight` in the loss of
    training, others 1; None = all weigh 1. What `when` of a choice says of the source is not looked at. Raises
    ValueError for a weight without choices."""

    choices: str | None = None
    weight: Annotated[float, Range(ge=1)] = 10.0

    def __post_init__(self) -> None:
        if self.choices is None and self.weight != EmphasisConfig.weight:
            raise ValueError(f"emphasis.weight is {self.weight}: it is that of emphasis.choices, which is not set")

    def forms(self) -> tuple[str, ...]:
        """The words, as written and capitalized. Raises DataError for a file that cannot be read."""
        if self.choices is None:
            return ()
        words = (form for choice in read_choices(self.choices) for forms in choice.classes.values() for form in forms)
        return tuple(dict.fromkeys(form for word in words for form in (word, word[:1].upper() + word[1:])))


class Emphasis:
    """Finds words in targets: sequences of pieces, where the next piece begins another word."""

    def __init__(self, forms: Sequence[str], tokenizer: Tokenizer) -> None:
        self.sequences = list(dict.fromkeys(tuple(tokenizer.encode(form)) for form in forms))
        pieces = [tokenizer.piece(n) for n in range(tokenizer.vocab_size)]
        # bytes are letters, such as ú, that have no piece
        inside = [n >= len(SPECIAL_PIECES) and (p[:1].isalnum() or p[:3] == "<0x") for n, p in enumerate(pieces)]
        self._inside = torch.tensor(inside)  # (V,)

    def notes(self, targets: NDArray[Any]) -> list[str]:
        """A line for the user where none of the words is in the targets (tokens,), of which it reads a million."""
        some = torch.from_numpy(targets[:1_000_000].astype(np.int64))
        none = not bool(self(some[None]).any())
        return [f"emphasis.choices: none of its words is in {len(some):,} target tokens"] if none else []

    def __call__(self, targets: Tensor) -> Tensor:
        """(B, L) bool, True at the pieces of these words; targets: (B, L) long."""
        self._inside = self._inside.to(targets.device)
        inside, length = self._inside[targets], targets.shape[1]
        found = torch.zeros_like(inside)
        for sequence in self.sequences:
            places = max(length - len(sequence) + 1, 0)
            matches = torch.ones_like(inside[:, :places])
            for n, piece in enumerate(sequence):  # numbers in place of tensors: nothing is copied to a GPU
                matches &= targets[:, n : n + places] == piece
            matches[:, : length - len(sequence)] &= ~inside[:, len(sequence) :]
            for n in range(len(sequence)):
                found[:, n : n + places] |= matches
        return found
