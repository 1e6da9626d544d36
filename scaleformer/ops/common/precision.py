"""Out of autocast, where it is on."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

_NOTHING = nullcontext()


def full_precision(device: torch.device) -> AbstractContextManager[object]:
    """No autocast on this kind of device. Costs nothing where there is none: to enter it takes as long as a product."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return _NOTHING
