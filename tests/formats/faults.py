"""What files of all formats do when they are damaged: they are refused in one line, or read."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from scaleformer.system.errors import DataError
from tests.formats.fake import translate


def check_fault(read: Callable[[], object], message: str, name: str = "") -> None:
    """Reading is refused in one line, not too long, that matches a message and begins with the name of a file."""
    with pytest.raises(DataError, match=message) as caught:
        read()
    assert str(caught.value).startswith(name)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 400


def check_damage(kind: Callable[[bytes, str], Any], data: bytes, name: str, times: int = 100) -> None:
    """With one byte changed, a file is refused, or translated."""
    random = Random(3)
    for _ in range(times):
        place = random.randrange(len(data))
        with suppress(DataError):
            translate(kind(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :], name))
