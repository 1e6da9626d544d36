"""A cache of decoder states: words that followed similar states in given translations [Grave et al. 2017, ICLR; Tu et
al. 2018, TACL]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from scaleformer.batch import Batch
from scaleformer.vocabulary import EOS

# The best of scripts.document_cache (docs/log/103); squared distances count in parts of the variance of the states.
SCALE, SPREAD, SLOPE, OFFSET = 1.1, 0.05, 0.25, 1.0

#: distances held at once
AT_ONCE = 1 << 24


class StateCache:
    """The states (N, D) of a model before the tokens (N,) of given translations

    It gives a token the weight of the states that it followed, which falls with their squared distance. Its share is
    greater the nearer the nearest state is.
    """

    def __init__(self, states: Tensor, tokens: Tensor) -> None:
        self.states, self.tokens = states.float(), tokens
        about_the_mean = (self.states - self.states.mean(0)).square().sum()
        self.spread = SPREAD * (about_the_mean / max(1, len(tokens))).clamp_min(1e-12)

    def mix(self, logits: Tensor, states: Tensor) -> Tensor:
        """Log-probabilities (..., V) fp32 of the next token, from logits (..., V) and states (..., D) of a model."""
        if not len(self.tokens):
            return logits.float()
        size = max(1, AT_ONCE // len(self.tokens))
        rows = zip(logits.flatten(0, -2).split(size), states.flatten(0, -2).split(size), strict=True)
        return torch.cat([self._mix(*some) for some in rows]).view(logits.shape)

    def _mix(self, logits: Tensor, states: Tensor) -> Tensor:
        logs = (SCALE * logits.float()).log_softmax(1)  # (n, V)
        near = -(torch.cdist(states.float(), self.states) ** 2) / self.spread  # (n, N)
        weights = torch.zeros_like(logs).scatter_add_(1, self.tokens.expand_as(near), near.softmax(1))
        share = SLOPE * near.amax(1, keepdim=True) + OFFSET  # (n, 1)
        return torch.logaddexp(logs + logsigmoid(-share), weights.log() + logsigmoid(share))


class StateCaches:
    """The caches of the documents of a batch, None for those without; at least one has some, and they may share one."""

    def __init__(self, caches: Sequence[StateCache | None]) -> None:
        self._caches = caches
        self._each = list(dict.fromkeys(cache for cache in caches if cache is not None))
        places = [-1 if cache is None else self._each.index(cache) for cache in caches]
        self._of = torch.tensor(places, device=self._each[0].tokens.device)  # (documents,)

    def of(self, documents: Sequence[int]) -> list[StateCache | None]:
        """Those of some of the documents."""
        return [self._caches[n] for n in documents]

    def mix(self, logits: Tensor, states: Tensor, documents: Tensor) -> Tensor:
        """As `StateCache.mix`, for rows whose documents are given by number (n,); those without any stay logits."""
        mixed, which = logits.float(), self._of[documents]
        for number, cache in enumerate(self._each):
            places = (which == number).nonzero()[:, 0]
            if len(places) == len(mixed):
                return cache.mix(logits, states)
            mixed = mixed.index_copy(0, places, cache.mix(logits[places], states[places])) if len(places) else mixed
        return mixed


def read_cache(model: Any, batches: Sequence[Batch]) -> StateCache:
    """The states of a `Transformer` before the tokens of given translations, but for those before `</s>`."""
    read = [(model(batch), batch.target_output, model.predicted(batch)) for batch in batches]
    states, tokens = (torch.cat([one[n][one[2]] for one in read]) for n in (0, 1))
    words = tokens != EOS  # separators stay: without them segments get too long
    return StateCache(states[words], tokens[words])
