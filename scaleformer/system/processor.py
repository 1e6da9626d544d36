"""Identifies the CPU, for computations whose fastest form depends on it."""

from __future__ import annotations

import platform
import re
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

_ZEN_5 = 26  # CPU family; Zen 3 and 4 are both 25, but only Zen 4 has AVX-512


@cache
def zen_generation() -> int:
    """The generation of an AMD CPU: 3 if torch has only AVX2 (up to Zen 3), 4, or 5 from Zen 5 on; 0 for others."""
    vendor, family = _vendor_and_family()
    capability = torch.backends.cpu.get_cpu_capability()
    if vendor != "AuthenticAMD" or not capability.startswith("AVX"):
        return 0
    if capability.startswith("AVX2"):
        return 3
    return 5 if family >= _ZEN_5 else 4


def has_bf16() -> bool | None:
    """Whether the CPU makes products in bf16 by itself: others take longer for them than in fp32. None: not known."""
    found = [there for name, there in torch.cpu.get_capabilities().items() if "bf16" in name]
    return any(found) if found else None


def _vendor_and_family() -> tuple[str, int]:
    """Vendor and family that the CPU reports; ("", 0) if the system does not say."""
    text = platform.processor()  # on Windows "AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD"
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    vendor = re.search(r"AuthenticAMD|GenuineIntel", text)
    family = re.search(r"family\s*:?\s*(\d+)", text, re.IGNORECASE)
    return vendor.group() if vendor else "", int(family.group(1)) if family else 0
