"""Shared by the readers of catalogues: translate-toolkit, and how a text becomes a segment."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from scaleformer.system.errors import DataError

# White space that the formats use to break and indent lines; other spaces, such as no-break spaces, are text.
_SPACES = re.compile(r"[ \t\n\r\f\v]+")


def toolkit(module: str, path: Path) -> Any:
    """A module of `translate.storage`; DataError if it is not installed."""
    try:
        return importlib.import_module(f"translate.storage.{module}")
    except ImportError:
        raise DataError(f"{path}: needs translate-toolkit: pip install 'scaleformer[formats]'") from None


def one_segment(text: str) -> str:
    """Text as one line: runs of ASCII white space become one space, without any at the ends."""
    return _SPACES.sub(" ", text).strip(" ")
