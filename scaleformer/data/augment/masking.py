"""`data.mask_spans`: replaces code, links, version numbers and so on in training pairs by placeholders."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from scaleformer.text.documents import Document
from scaleformer.text.spans import PATTERN, mask_pair


@dataclass(frozen=True)
class Masking:
    """Masks the spans (`mask_pair`) of a share of the one-to-one beads of each document.

    The seed, the epoch, the document's name and the bead's number in it decide which beads are masked.
    """

    share: float
    seed: int

    @property
    def key(self) -> str:
        """Part of a cache's name: besides the corpus, everything that determines the masked documents."""
        return f"masked {self.share} {self.seed} {hashlib.sha256(PATTERN.encode()).hexdigest()}"

    def __call__(self, document: Document, epoch: int = 0) -> Document:
        """The document for one training epoch; for all epochs if the corpus is kept encoded."""
        source, target = list(document.source), list(document.target)
        s = t = 0
        for number, shape in enumerate(document.shapes):
            if shape == (1, 1) and self._chooses(f"{self.seed} {epoch} {number} {document.id}"):
                source[s], target[t] = mask_pair(source[s], target[t])
            s, t = s + shape[0], t + shape[1]
        return replace(document, source=tuple(source), target=tuple(target))

    def _chooses(self, key: str) -> bool:
        return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") < self.share * 2**64
