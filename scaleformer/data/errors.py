"""A fault of a corpus beside those of its files."""

from __future__ import annotations

from scaleformer.system.errors import DataError


class MissingSplit(DataError):
    """The split does not exist or has no documents."""
