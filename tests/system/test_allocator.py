"""The C library keeps freed memory, uses large pages, and returns memory on request."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from scaleformer.system import allocator

MIB = 1 << 20
HELD = """
import torch
from scaleformer.system.allocator import give_back_memory, keep_freed_memory
from scaleformer.system.measure import memory_status

torch.ones(1)  # so that memory for torch itself is not counted
for tell in (lambda: False, keep_freed_memory):
    told, held = tell(), [memory_status("VmRSS")]
    for mebibytes in (40, 30):
        tensors = [torch.ones(mebibytes, 1 << 18) for _ in range(5)]
        large = torch.ones(100, 1 << 18)
        del tensors, large
        held.append(memory_status("VmRSS"))
    give_back_memory()
    print(int(told), *held, memory_status("VmRSS"))
"""
GLIBC = platform.libc_ver()[0] == "glibc"


def test_freed_memory_is_kept_on_request_until_it_is_returned() -> None:
    """Growth in MiB: after 5 blocks of 40 and one of 100 were freed, after 5 of 30 and one of 100, and after all was
    returned. First with glibc's defaults (which must keep little), then with `keep_freed_memory`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    run = subprocess.run(
        [sys.executable, "-c", HELD], capture_output=True, text=True, check=True, env=environment,
        cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    untold, (told, start, *others) = (list(map(int, line.split())) for line in run.stdout.splitlines())
    assert all(held - untold[1] < 50 * MIB for held in untold[2:])
    assert told == GLIBC
    if told:
        once, again, given_back = ((held - start) / MIB for held in others)
        assert 190 < once < 250
        assert once - 10 < again < once + 10
        assert given_back < 50


def test_environment_settings_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> None:
        raise AssertionError("the C library was called")

    monkeypatch.setattr(allocator.ctypes, "CDLL", none)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    assert not allocator.keep_freed_memory()


@pytest.mark.parametrize("error", [OSError, AttributeError, TypeError])
def test_a_c_library_without_the_function_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def none(_: object) -> None:
        raise error

    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(allocator.ctypes, "CDLL", none)
    assert not allocator.keep_freed_memory()
    allocator.give_back_memory()


HUGE = """
import os
import sys
{begin}
import torch

x = torch.ones(8 << 20)
asked, size = 0, 0
if os.path.exists("/proc/self/smaps"):
    with open("/proc/self/smaps") as file:
        for name, *rest in map(str.split, file):
            size = int(rest[0]) if name == "Size:" else size
            asked += size if name == "VmFlags:" and "hg" in rest else 0
print(os.environ.get("THP_MEM_ALLOC_ENABLE"), asked)
"""


def asked_for(begin: str, given: str | None) -> tuple[str, float]:
    """THP_MEM_ALLOC_ENABLE, and how many MiB a process with a tensor of 32 MiB has requested in large pages."""
    environment = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"}
    environment |= {"THP_MEM_ALLOC_ENABLE": given} if given else {}
    run = subprocess.run(
        [sys.executable, "-c", HUGE.format(begin=begin)],
        capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    told, kibibytes = run.stdout.split()
    return told, int(kibibytes) / 1024


def test_large_tensors_request_large_pages() -> None:
    """The mapping's flag shows the request even if no page of that size is free. Other libraries request them too."""
    begin = "from scaleformer.system.allocator import use_huge_pages; use_huge_pages()"
    (told, asked), (given, without) = asked_for(begin, None), asked_for(begin, "0")
    there = Path("/sys/kernel/mm/transparent_hugepage").is_dir()
    assert (told, given) == ("1" if there else "None", "0")
    assert (asked - without >= 30) == there


def test_importing_the_package_leaves_the_environment_alone() -> None:
    code = "import os; before = dict(os.environ); import scaleformer.ops; assert os.environ == before"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_commands_set_the_environment_before_importing_torch() -> None:
    code = "import sys; import scaleformer.commands; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


FAULTS = """
import resource
import torch
from scaleformer.ops import relative_kernel_attention
{begin}
torch.set_num_threads(1)
q, k, v = (torch.randn(1, 8, 2048, 64) for _ in range(3))
rel = torch.randn(33, 64)
with torch.no_grad():
    for _ in range(3):
        relative_kernel_attention(q, k, v, rel, causal=True)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        relative_kernel_attention(q, k, v, rel, causal=True)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(begin: str, **variables: str) -> int:
    """How many page faults five calls on 2,048 tokens cause."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_", "THP_"))} | variables
    code = FAULTS.format(begin=begin)
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    return int(run.stdout)


def test_plain_python_causes_few_page_faults() -> None:
    """Without a command: calling the attention is enough."""
    if GLIBC:
        plain = "import scaleformer.ops.kernel.attention as module; module.widen_heap = lambda: None"
        # By default glibc may adapt its threshold to blocks that torch frees; with the threshold set it does not.
        assert faults("pass") < faults(plain, MALLOC_MMAP_THRESHOLD_=str(128 << 10)) / 4


def test_systems_without_large_pages_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise torch would warn."""
    monkeypatch.delenv("THP_MEM_ALLOC_ENABLE", raising=False)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_dir", lambda _: False)
        allocator.use_huge_pages()
    assert "THP_MEM_ALLOC_ENABLE" not in os.environ


PRODUCTS = """
import os
import torch
from scaleformer.system.allocator import bound_kernel_caches, give_back_memory
from scaleformer.system.measure import memory_status

bound_kernel_caches()
torch.set_num_threads(1)
inner, outer = (128, 512) if torch.ops.mkldnn._is_mkldnn_bf16_supported() else (8, 16)
held = []
for start in (1000, 1400):
    for rows in range(start, start + 400):
        torch.ones(rows, inner, dtype=torch.bfloat16) @ torch.ones(inner, outer, dtype=torch.bfloat16)
    give_back_memory()
    held.append(memory_status("VmRSS"))
print(os.environ["LRU_CACHE_CAPACITY"], held[1] - held[0])
"""


def test_kernel_caches_stay_bounded() -> None:
    """Without a bound, 400 new shapes take some 200 MiB more on CPUs where oneDNN computes bf16 products. Other CPUs
    compute them slowly and cache nothing: there small products are enough."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_CACHE_CAPACITY")}
    run = subprocess.run(
        [sys.executable, "-c", PRODUCTS],
        capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    capacity, more = run.stdout.split()
    assert capacity == "256"
    assert int(more) < 50 * MIB


def test_cache_sizes_of_the_environment_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"LRU_CACHE_CAPACITY": "7"})
    allocator.bound_kernel_caches()
    assert os.environ == {"LRU_CACHE_CAPACITY": "7", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256"}
