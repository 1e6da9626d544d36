"""The device of a computation, and the processes that share it."""

from __future__ import annotations

from typing import TypeVar

import torch

T = TypeVar("T")


def resolve_device(device: str | torch.device | None) -> torch.device:
    """The requested device; for None or "auto" a GPU if there is one, else the CPU. ValueError if not available."""
    if device is None or device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        torch.empty(0, device=resolved)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"device={device}: not available here ({reason}); use device=cpu") from error
    return resolved


def gathered(value: T, processes: int) -> list[T]:
    """The value that each of so many processes gives, by rank; all of them must call it."""
    values = [value] * processes
    if processes > 1:
        torch.distributed.all_gather_object(values, value)
    return values
