"""Encoder-decoder transformers for long-document translation, at a cost that grows linearly with document length."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaleformer.decoding.config import DecodingConfig
    from scaleformer.translation.request import Listener, Request
    from scaleformer.translation.translations import DocumentHypothesis, Translation
    from scaleformer.translation.translator import Translator

try:
    __version__ = version("scaleformer")
except PackageNotFoundError:  # the source tree on a path, not installed
    __version__ = "unknown"

__all__ = ["DecodingConfig", "DocumentHypothesis", "Listener", "Request", "Translation", "Translator", "__version__"]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the attention functions need only torch.
    if name in __all__:
        from scaleformer.decoding import config
        from scaleformer.translation import translator

        return getattr(config if name == "DecodingConfig" else translator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
