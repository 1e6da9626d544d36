"""The one structure that passes from data to model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """A padded batch of examples, source and target.

    B examples, S source tokens, L target tokens. Every source and target ends with `</s>`, every segment with a
    separator (`scaleformer.vocabulary`).
    Padding stands at the end of a row; its content never changes a result.

    source           (B, S) long, token ids
    source_mask      (B, S) bool, True = real token
    source_segments  (B, S) long, number of `<sep>` before the token
    target_input     (B, L) long, `<s>`, then the target without its last token
    target_output    (B, L) long, the token to predict at each position
    target_mask      (B, L) bool, True = real position
    target_segments  (B, L) long, number of source segments consumed by the separators in target_input up to and
                     including the position; where segments match one to one, the segment's number
    ids              names of the B examples, for reports
    corpus           name of their corpus when validating on several corpora; else ""
    continues        (B,) bool, whether the example continues the document of the same row of the batch before; None
                     unless data.consecutive
    """

    source: Tensor
    source_mask: Tensor
    source_segments: Tensor
    target_input: Tensor
    target_output: Tensor
    target_mask: Tensor
    target_segments: Tensor
    ids: tuple[str, ...] = ()
    corpus: str = ""
    continues: Tensor | None = None

    def __len__(self) -> int:
        return self.source.shape[0]

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device (Lightning calls this)."""
        moved: dict[str, Any] = {name: x.to(device, non_blocking=True) for name, x in self.tensors.items()}
        return replace(self, **moved)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All tensors, by name."""
        return {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), Tensor)}
