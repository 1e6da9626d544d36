"""What the rows of a search have written."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class History:
    """The tokens that were chosen, and with beams the rows that they continued: an (A, K) entry of each a step.

    Kept as back-pointers, so that a step costs the same however much has been written.
    """

    def __init__(self, documents: int) -> None:
        self.documents = documents
        self.waiting: list[Tensor] = []
        self.parts: list[np.ndarray] = []
        self.entries = np.zeros((0, 1, documents, 1), dtype=np.int32)  # (T, 1|2, B, K), when closed

    def append(self, *entries: Tensor) -> None:
        self.waiting.append(torch.stack(entries))  # (1|2, A, K)

    def flush(self, active: Tensor) -> None:
        """Put away what was appended while the batch held the documents `active` (A,)."""
        if self.waiting:
            held = torch.stack(self.waiting).cpu().numpy()  # (steps, 1|2, A, K)
            part = np.zeros((*held.shape[:2], self.documents, held.shape[3]), dtype=np.int32)
            part[:, :, active.cpu().numpy()] = held
            self.parts.append(part)
            self.waiting = []

    def close(self) -> None:
        """After the last flush; from then on `read`."""
        self.entries = np.concatenate(self.parts)
        self.parts = []

    def read(self, document: int, row: int, length: int) -> tuple[int, ...]:
        """The first `length` tokens of what ended in `row`, or all where it was given up before."""
        length = min(length, len(self.entries))
        entries = self.entries[:length, :, document]  # (length, 1|2, K)
        if entries.shape[1] == 1:
            return tuple(entries[:, 0, row].tolist())
        tokens = []
        for step in range(length - 1, -1, -1):
            tokens.append(int(entries[step, 0, row]))
            row = entries[step, 1, row]
        return tuple(reversed(tokens))
