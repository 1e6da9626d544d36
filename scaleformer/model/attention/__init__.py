"""Attention mechanisms behind one contract (`base.Attention`), chosen by name in the configuration."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from scaleformer.model.attention.alibi import AlibiAttention
from scaleformer.model.attention.base import SITES, Attention
from scaleformer.model.attention.kernelized import KernelizedAttention
from scaleformer.model.attention.literature.adaptive_span import AdaptiveSpanAttention
from scaleformer.model.attention.literature.bigbird import BigBirdAttention
from scaleformer.model.attention.literature.block_bert import BlockBertAttention
from scaleformer.model.attention.literature.bp_transformer import BPTransformerAttention
from scaleformer.model.attention.literature.compressive import CompressiveAttention
from scaleformer.model.attention.literature.efficient import EfficientAttention
from scaleformer.model.attention.literature.etc import EtcAttention
from scaleformer.model.attention.literature.g_transformer import GTransformerAttention
from scaleformer.model.attention.literature.hibert import HibertAttention
from scaleformer.model.attention.literature.linformer import LinformerAttention
from scaleformer.model.attention.literature.longformer import LongformerAttention
from scaleformer.model.attention.literature.performer import PerformerAttention
from scaleformer.model.attention.literature.reformer import ReformerAttention
from scaleformer.model.attention.literature.routing import RoutingAttention
from scaleformer.model.attention.literature.sparse import SparseAttention
from scaleformer.model.attention.literature.transformer_xl import TransformerXLAttention
from scaleformer.model.attention.rotary import RotaryAttention
from scaleformer.model.attention.scaleformer import ScaleformerAttention
from scaleformer.model.attention.segment_recall import SegmentRecallAttention
from scaleformer.model.attention.shaw import ShawAttention
from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.model.attention.softmax_gated import SoftmaxGatedAttention
from scaleformer.model.attention.spe import StochasticPositionsAttention
from scaleformer.system.schema import check_type, hints_of

MECHANISMS: dict[str, type[Attention]] = {
    "scaleformer": ScaleformerAttention,
    "segment_recall": SegmentRecallAttention,
    "kernelized": KernelizedAttention,
    "performer": PerformerAttention,
    "efficient": EfficientAttention,
    "softmax": SoftmaxAttention,
    "softmax_gated": SoftmaxGatedAttention,
    "rotary": RotaryAttention,
    "alibi": AlibiAttention,
    "shaw": ShawAttention,
    "longformer": LongformerAttention,
    "spe": StochasticPositionsAttention,
    "transformer_xl": TransformerXLAttention,
    "compressive": CompressiveAttention,
    "bigbird": BigBirdAttention,
    "block_bert": BlockBertAttention,
    "bp_transformer": BPTransformerAttention,
    "sparse": SparseAttention,
    "g_transformer": GTransformerAttention,
    "etc": EtcAttention,
    "hibert": HibertAttention,
    "linformer": LinformerAttention,
    "reformer": ReformerAttention,
    "routing": RoutingAttention,
    "adaptive_span": AdaptiveSpanAttention,
}

__all__ = ["MECHANISMS", "SITES", "Attention", "build_attention", "options_of"]

GIVEN = ("site", "width", "heads", "layer", "layers")  # to a constructor, beside its options

log = logging.getLogger(__name__)


def build_attention(
    choice: Mapping[str, Any], site: str, width: int, heads: int, strict: bool = False, layer: int = 0, layers: int = 1
) -> Attention:
    """The attention that a configuration asks for at a site.

    choice  {"name": a key of MECHANISMS, and the options of that mechanism}; for a mechanism that cannot serve every
            site also {"fallback": the choice for the other sites, or its name}, reported in the log
    strict  the choice was made for this site: use no fallback
    layer   its number of so many layers, 0 at the bottom, for a mechanism whose constructor asks for `layer`, `layers`
    Raises ValueError, naming the valid choices, sites or options, if one does not fit.
    """
    options = dict(choice)
    name = options.pop("name", None)
    fallback = options.pop("fallback", None)
    _check_name("model/attention", name, name)
    mechanism = MECHANISMS[name]
    other = {"name": fallback} if isinstance(fallback, str) else fallback
    if other is not None:
        named = other.get("name") if isinstance(other, Mapping) else other
        _check_name("model.attention.fallback", named, fallback)
    if site not in mechanism.sites:
        if other and not strict:
            _tell(name, site, str(other.get("name")))
            return build_attention(other, site, width, heads, layer=layer, layers=layers)
        able = [n for n, m in MECHANISMS.items() if site in m.sites]
        raise ValueError(f"attention {name!r} cannot serve the {site} site: choose one of {', '.join(able)}")
    known = options_of(name)
    unknown = sorted(set(options) - set(known))
    if unknown:
        wanted = f"its options are {', '.join(known)}" if known else "it has no options"
        raise ValueError(f"attention {name!r} has no option {', '.join(unknown)}: {wanted}")
    for option, value in options.items():
        check_type(f"model.attention.{option}", value, known[option])
    place = {"layer": layer, "layers": layers}
    placed = {name: place[name] for name in place if name in hints_of(mechanism.__init__)}
    return mechanism(site, width, heads, **options, **placed)


def _check_name(where: str, name: Any, given: Any) -> None:
    """Raise ValueError unless `name` is an available mechanism."""
    if not isinstance(name, str) or name not in MECHANISMS:
        raise ValueError(f"{where} is {given!r}: it must be one of {', '.join(MECHANISMS)}")


def options_of(name: str) -> dict[str, Any]:
    """The options of a mechanism and their types, with their bounds."""
    hints = hints_of(MECHANISMS[name].__init__)
    return {option: hint for option, hint in hints.items() if option not in (*GIVEN, "return")}


@lru_cache
def _tell(name: str, site: str, other: str) -> None:
    """Log once, not for every layer, that another mechanism serves a site."""
    log.info(
        "attention %r cannot serve the %s site: using %r there (to change it: model/attention@model.sites.%s=NAME)",
        name, site, other, site,
    )  # fmt: skip
