"""The one structure in which data and model meet."""

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
    Pads stand at the end of a row; what they hold never changes a result.

    source           (B, S) long, token ids
    source_mask      (B, S) bool, True = real token
    source_segments  (B, S) long, the number of `<sep>` before the token
    target_input     (B, L) long, `<s>` and the target but its last token
    target_output    (B, L) long, the token to predict at each position
    target_mask      (B, L) bool, True = real position
    target_segments  (B, L) long, the source segments that the separators in target_input up to and including the
                     position consume; where segments match one to one, their number
    ids              B names of the examples, for reports
    corpus           the name of the corpus of all of them, in validation on several; else ""
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

    def __len__(self) -> int:
        return self.source.shape[0]

    def twice(self) -> Batch:
        """Every example two times: all of them, and all of them again."""
        doubled: dict[str, Any] = {name: torch.cat((tensor, tensor)) for name, tensor in self._tensors.items()}
        return replace(self, **doubled, ids=self.ids * 2)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device (Lightning calls this)."""
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in self._tensors.items()}
        return replace(self, **moved)

    @property
    def _tensors(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("ids", "corpus")}
