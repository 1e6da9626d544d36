"""Attention mechanisms behind one contract (`base.Attention`), chosen by name in the configuration."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from .base import SITES, Attention, sinusoids
from .kernelized import KernelizedAttention
from .scaleformer import ScaleformerAttention
from .segment_gated import SegmentGatedAttention
from .softmax import SoftmaxAttention
from .softmax_gated import SoftmaxGatedAttention

MECHANISMS: dict[str, type[Attention]] = {
    "scaleformer": ScaleformerAttention,
    "segment_gated": SegmentGatedAttention,
    "kernelized": KernelizedAttention,
    "softmax": SoftmaxAttention,
    "softmax_gated": SoftmaxGatedAttention,
}

__all__ = ["MECHANISMS", "SITES", "Attention", "build_attention", "sinusoids"]


def build_attention(choice: Mapping[str, Any], site: str, width: int, heads: int) -> Attention:
    """The attention that a configuration asks for at a site.

    choice  {"name": a key of MECHANISMS, and the options of that mechanism}
    Raises ValueError naming the choices, the sites or the options where one does not fit.
    """
    options = dict(choice)
    name = options.pop("name", None)
    if name not in MECHANISMS:
        raise ValueError(f"model/attention is {name!r}: choose one of {', '.join(MECHANISMS)}")
    mechanism = MECHANISMS[name]
    if site not in mechanism.sites:
        able = [n for n, m in MECHANISMS.items() if site in m.sites]
        raise ValueError(f"attention {name!r} cannot serve the {site} site: choose one of {', '.join(able)}")
    known = [p for p in inspect.signature(mechanism).parameters if p not in ("site", "width", "heads")]
    unknown = sorted(set(options) - set(known))
    if unknown:
        wanted = f"its options are {', '.join(known)}" if known else "it has no options"
        raise ValueError(f"attention {name!r} has no option {', '.join(unknown)}: {wanted}")
    return mechanism(site, width, heads, **options)
