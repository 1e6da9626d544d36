"""`data.mask_spans` replaces code, links, version numbers and so on by placeholders in training documents."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from scaleformer.text.documents import Document
from scaleformer.text.spans import PATTERN, mask_pair


@dataclass(frozen=True)
class Masking:
    """Masks the spans (`mask_pair`) of a share of the one-to-one beads of each document. The seed, the epoch, the
    document's name and the bead's number in it decide which."""

    share: float
    seed: int

    @property
    def key(self) -> str:
        """Part of a cache's name: besides the corpus, everything that determines the masked documents."""
        return f"masked {self.share} {self.seed} {hashlib.sha256(PATTERN.encode()).hexdigest()}"

    def __call__(self, document: Document, epoch: int = 0) -> Document:
        """The document for one training epoch; for all epochs if the corpus is kept encoded."""
        parts = [
            [(text,) for text in mask_pair(*source, *target)]
            if len(source) == len(target) == 1 and self._chosen(f"{self.seed} {epoch} {number} {document.id}")
            else (source, target)
            for number, (source, target) in enumerate(document.parts())
        ]
        ours, theirs = (tuple(text for part in parts for text in part[side]) for side in (0, 1))
        return replace(document, source=ours, target=theirs)

    def _chosen(self, key: str) -> bool:
        return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") < self.share * 2**64
