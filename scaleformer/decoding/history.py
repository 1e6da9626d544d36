"""The tokens written by the rows of a search."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class History:
    """The chosen tokens and, with beams, the rows that they continued: an (A, K) entry of each per step.

    Rows are back-pointers, so that the cost of a step does not grow with the length.
    """

    def __init__(self, documents: int) -> None:
        self.documents = documents
        self.waiting: list[Tensor] = []
        self.parts: list[np.ndarray] = []
        self.entries = np.zeros((0, 1, documents, 1), dtype=np.int32)  # (T, 1|2, B, K), when closed

    def append(self, *entries: Tensor) -> None:
        self.waiting.append(torch.stack(entries))  # (1|2, A, K)

    def flush(self, active: Tensor) -> None:
        """Store the entries appended while the batch held the documents `active` (A,)."""
        if self.waiting:
            held = torch.stack(self.waiting).cpu().numpy()  # (steps, 1|2, A, K)
            part = np.zeros((*held.shape[:2], self.documents, held.shape[3]), dtype=np.int32)
            part[:, :, active.cpu().numpy()] = held
            self.parts.append(part)
            self.waiting = []

    def close(self) -> None:
        """Call after the last flush and before `read`."""
        self.entries = np.concatenate(self.parts)
        self.parts = []

    def read(self, document: int, row: int, length: int) -> tuple[int, ...]:
        """The first `length` tokens of the hypothesis that ended in `row`, fewer if it was given up earlier."""
        length = min(length, len(self.entries))
        entries = self.entries[:length, :, document]  # (length, 1|2, K)
        if entries.shape[1] == 1:
            return tuple(entries[:, 0, row].tolist())
        tokens = []
        for step in range(length - 1, -1, -1):
            tokens.append(int(entries[step, 0, row]))
            row = entries[step, 1, row]
        return tuple(reversed(tokens))
