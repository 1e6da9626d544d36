"""The C library keeps what is freed, in large pages, and gives it back when it is told to."""

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

torch.ones(1)  # whatever the library takes for itself
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


def test_freed_memory_is_kept_until_it_is_given_back_by_those_who_say_so() -> None:
    """MiB on top of those at the start: after 5 blocks of 40 and one of 100 were freed, after 5 of 30 and one of 100,
    and after all was given back; at first by itself (were it otherwise, there would be nothing to do), then told."""
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


def test_the_settings_of_the_environment_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> None:
        raise AssertionError("the library was asked")

    monkeypatch.setattr(allocator.ctypes, "CDLL", none)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    assert not allocator.keep_freed_memory()


@pytest.mark.parametrize("error", [OSError, AttributeError, TypeError])
def test_nothing_where_the_library_has_no_such_function(
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
    """What the environment tells torch, and MiB that a process with a tensor of 32 has asked large pages for."""
    environment = {k: v for k, v in os.environ.items() if k != "THP_MEM_ALLOC_ENABLE"}
    environment |= {"THP_MEM_ALLOC_ENABLE": given} if given else {}
    run = subprocess.run(
        [sys.executable, "-c", HUGE.format(begin=begin)],
        capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    told, kibibytes = run.stdout.split()
    return told, int(kibibytes) / 1024


def test_large_tensors_ask_for_large_pages() -> None:
    """The flag of the mapping tells, whether there is a free page of that size or not; other libraries ask too."""
    begin = "from scaleformer.system.allocator import use_huge_pages; use_huge_pages()"
    (told, asked), (given, without) = asked_for(begin, None), asked_for(begin, "0")
    there = Path("/sys/kernel/mm/transparent_hugepage").is_dir()
    assert (told, given) == ("1" if there else "None", "0")
    assert (asked - without >= 30) == there


def test_the_package_changes_nothing_when_it_is_imported() -> None:
    code = "import os; before = dict(os.environ); import scaleformer.ops; assert os.environ == before"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_a_command_asks_before_torch_is_imported() -> None:
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
    """How many pages five calls of 2,048 tokens take from the system."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_", "THP_"))} | variables
    code = FAULTS.format(begin=begin)
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    return int(run.stdout)


def test_plain_python_takes_few_pages_from_the_system() -> None:
    """Without a command, and without any call but that of the attention itself."""
    if GLIBC:
        plain = "import scaleformer.ops.kernel.attention as module; module.widen_heap = lambda: None"
        # By itself the library may learn from what torch frees on the way; told its threshold, it does not.
        assert faults("pass") < faults(plain, MALLOC_MMAP_THRESHOLD_=str(128 << 10)) / 4


def test_pages_are_left_alone_where_the_system_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch would warn."""
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


def test_kernels_of_ever_new_shapes_do_not_pile_up() -> None:
    """By themselves 400 shapes take some 200 MiB more than the 400 before, on CPUs where oneDNN makes bf16 products.
    Others make them slowly and keep nothing: there small ones do."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_CACHE_CAPACITY")}
    run = subprocess.run(
        [sys.executable, "-c", PRODUCTS],
        capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parent.parent,
    )  # fmt: skip
    capacity, more = run.stdout.split()
    assert capacity == "256"
    assert int(more) < 50 * MIB


def test_what_the_environment_says_of_kernels_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"LRU_CACHE_CAPACITY": "7"})
    allocator.bound_kernel_caches()
    assert os.environ == {"LRU_CACHE_CAPACITY": "7", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256"}
