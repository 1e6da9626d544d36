"""The CPU generation from what the CPU reports."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scaleformer.system import processor as module


@pytest.mark.parametrize(
    ("vendor", "family", "capability", "expected"),
    [
        ("AuthenticAMD", 27, "AVX512", 5),
        ("AuthenticAMD", 26, "AVX512", 5),
        ("AuthenticAMD", 26, "AVX2", 3),
        ("AuthenticAMD", 25, "AVX512", 4),
        ("AuthenticAMD", 25, "AVX2", 3),
        ("AuthenticAMD", 23, "DEFAULT", 0),
        ("GenuineIntel", 6, "AVX2", 0),
        ("GenuineIntel", 26, "AVX512", 0),
        ("", 0, "", 0),
    ],
)
def test_cpu_generation(
    monkeypatch: pytest.MonkeyPatch, vendor: str, family: int, capability: str, expected: int
) -> None:
    monkeypatch.setattr(module, "_vendor_and_family", lambda: (vendor, family))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert module.zen_generation.__wrapped__() == expected


@pytest.mark.parametrize(
    ("found", "has"),
    [
        ({"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": False, "avx512_f": True}, False),
        ({"architecture": "x86_64", "avx512_bf16": True, "amx_bf16": False}, True),
        ({"architecture": "aarch64", "bf16": True, "neon": True}, True),
        ({"architecture": "aarch64", "bf16": False, "sve_bf16": False}, False),
        ({"architecture": "unknown"}, None),
    ],
)
def test_products_in_bf16(monkeypatch: pytest.MonkeyPatch, found: dict[str, object], has: bool | None) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found)
    assert module.has_bf16() is has


LINUX = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n"


@pytest.mark.parametrize(
    ("cpuinfo", "processor", "expected"),
    [
        (LINUX, "", ("AuthenticAMD", 26)),
        ("processor\t: 0\nBogoMIPS\t: 243.75\n", "aarch64", ("", 0)),
        (None, "AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD", ("AuthenticAMD", 25)),
        (None, "Intel64 Family 6 Model 85 Stepping 7, GenuineIntel", ("GenuineIntel", 6)),
        (None, "arm", ("", 0)),
    ],
)
def test_vendor_and_family(
    monkeypatch: pytest.MonkeyPatch, cpuinfo: str | None, processor: str, expected: tuple[str, int]
) -> None:
    def read(*_: object, **__: object) -> str:
        if cpuinfo is None:
            raise FileNotFoundError
        return cpuinfo

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(module.platform, "processor", lambda: processor)
    assert module._vendor_and_family() == expected
