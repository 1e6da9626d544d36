"""Low-rank adapters: small matrices that train beside the weights of a model, which stay as they are."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor, nn
from torch.nn.utils import parametrize

from scaleformer.model.attention.base import Attention
from scaleformer.model.transformer import Transformer
from scaleformer.system.schema import Natural, Range


@dataclass(frozen=True)
class AdapterConfig:
    """rank: of the matrices, 0 = none; alpha: their product is multiplied by alpha / rank."""

    rank: Natural = 0
    alpha: Annotated[float, Range(gt=0)] = 16.0


class LowRank(nn.Module):
    """W + alpha / rank B A in the place of a weight W (N, K) [Hu 2021, LoRA, section 4.1].

    A (rank, K) is random and B (N, rank) zero at first, so that the model begins as its parent. The sum costs N K rank
    products a pass, few beside those with the tokens, and every reader of the weight sees it: joint projections too.
    """

    def __init__(self, weight: Tensor, config: AdapterConfig) -> None:
        super().__init__()
        self.scale = config.alpha / config.rank
        # called weights, so that weight decay draws the model to its parent
        self.down_weight = nn.Parameter(weight.new_empty(config.rank, weight.shape[1]))
        self.up_weight = nn.Parameter(weight.new_zeros(len(weight), config.rank))
        nn.init.kaiming_uniform_(self.down_weight, a=5**0.5)

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * (self.up_weight @ self.down_weight)  # (N, K)


def add_adapters(model: Transformer, parent: Container[str], config: AdapterConfig) -> dict[str, Tensor]:
    """Freeze the weights that the parent has, by their names there, and add adapters to the query, key, value and
    output projections of all attentions. Returns the frozen weights by their names in the state of the model."""
    theirs = {p for name, p in model.named_parameters(remove_duplicate=False) if name in parent}
    for parameter in theirs:
        parameter.requires_grad_(False)
    for attention in [module for module in model.modules() if isinstance(module, Attention)]:
        for projection in (attention.query, attention.key, attention.value, attention.output):
            if not parametrize.is_parametrized(projection):  # one may serve as query and key
                parametrize.register_parametrization(projection, "weight", LowRank(projection.weight, config))
    return {name: p.detach() for name, p in model.named_parameters(remove_duplicate=False) if p in theirs}


def merge_adapters(model: Transformer) -> None:
    """Put the sums in the place of the weights, with the same numbers."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight")
