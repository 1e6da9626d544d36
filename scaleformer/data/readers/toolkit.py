"""What the readers of catalogues share: translate-toolkit, and what a segment of theirs is."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from scaleformer.data.errors import DataError

# What the formats take for white space, to break and to indent lines by; others, such as no-break spaces, are text.
_SPACES = re.compile(r"[ \t\n\r\f\v]+")


def toolkit(module: str, path: Path) -> Any:
    """A module of `translate.storage`; DataError where it is not installed."""
    try:
        return importlib.import_module(f"translate.storage.{module}")
    except ImportError:
        raise DataError(f"{path}: translate-toolkit reads it: pip install 'scaleformer[formats]'") from None


def one_segment(text: str) -> str:
    """Text as a line: runs of white space (ASCII) made one space, none at the ends."""
    return _SPACES.sub(" ", text).strip(" ")
