"""Rows of the benchmark on a GPU: measured in turn, printed as they come, and appended to a file."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from scripts.bench_training.models import Sizes
from scripts.bench_training.steps import GIB, Limits, take_turns
from scripts.timing import peak_memory, wait

SIZES = {"small": Sizes(), "base": Sizes(6, 512, 2048, 8), "tiny": Sizes(1, 32, 64, 2, 60)}
#: tokens of a segment; and of recall: near segments, kept tokens, largest distance
SEGMENT, NEAR, KEPT, HORIZON = 25, 3, 64, 16
FLASH, CUDNN, FLEX = "SDPA flash", "SDPA cuDNN", "FlexAttention"
PASSES = ("forward", "forward+backward")
PARTS = ("step", "attention", "decode", "check", "profile")

Maker = Callable[[], Callable[[], object]]


class Bench:
    """The rows so far, in memory and in the file, and the time that is left."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.device = torch.device(options.device)
        self.cuda = self.device.type == "cuda"
        self.model = "tiny" if options.small else options.model
        self.sizes = SIZES[self.model]
        self.start = float(os.environ.setdefault("BENCH_GPU_START", str(time.time())))
        self.file = Path(options.output)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("}")]
        self.open: list[str] = []

    def late(self, what: str) -> bool:
        """Whether there is no time for it; then it is noted as not measured."""
        late = time.time() - self.start > 60 * self.options.minutes
        if late:
            self.open.append(what)
        return late

    def has(self, part: str, case: str, system: str) -> bool:
        return bool(self.find(part, case, system))

    def add(self, part: str, case: str, system: str, **values: Any) -> None:
        row = {"part": part, "case": case, "system": system, **values}
        self.rows.append(row)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        if part == "check" and "error" not in row and system in ("linear", "quadratic"):
            return  # for comparison
        words = (
            f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
        )
        print(f"[{time.time() - self.start:4.0f} s] " + ", ".join(words), flush=True)

    def fail(self, part: str, case: str, system: str, error: Exception) -> None:
        """A row for the error. After one that leaves CUDA unusable the program starts again where it was."""
        said = " ".join(str(error).split())[:200]
        self.add(part, case, system, error=f"{type(error).__name__}: {said}")
        if self.cuda and ("CUDA error" in said or "[CUDA]" in said) and "out of memory" not in said:
            print("CUDA is unusable after this error: starting again", flush=True)
            os.execv(sys.executable, [sys.executable, *sys.argv])
        clear(self.device)

    def measure(
        self,
        part: str,
        case: str,
        makers: Mapping[str, Maker],
        peer: str,
        budget: float,
        describe: Callable[[str, float], dict[str, Any]],
        short: bool = False,
    ) -> None:
        """A row for each system. makers: they return the call to time. peer: of the ratio, which is its time over the
        system's. budget: seconds for the calls of one system. short: calls so short that several are timed together,
        and the time of the GPU alone is taken too."""
        missing = [name for name in makers if not self.has(part, case, name)]
        if not missing or self.late(f"{part}, {case}: {', '.join(missing)}"):
            return
        again = [peer] if peer in makers and peer not in missing and "ms" in self.find(part, case, peer) else []
        calls: dict[str, Callable[[], None]] = {}
        counts, memory = {}, {}
        if not short:
            clear(self.device)
        for name in [*missing, *again]:
            try:
                call = makers[name]()
                for _ in range(3):  # the first compiles
                    wait(self.device)
                    start = time.perf_counter()
                    memory[name] = peak_memory(call, self.device) if self.cuda else (call(), 0)[1]
                    wait(self.device)
                    once = time.perf_counter() - start
                    if once > budget / 6:
                        break
                counts[name] = max(1, min(20, round(0.004 / once))) if short else 1
                calls[name] = partial(repeat, call, counts[name])
            except Exception as error:
                self.fail(part, case, name, error)
        limits = Limits(float("inf"), float("inf"), budget * len(calls), self.options.repeats)
        try:
            times = take_turns(calls, limits, self.device)
        except Exception as error:
            self.fail(part, case, ", ".join(calls), error)
            return
        seconds = {name: median(values) / counts[name] for name, values in times.items()}
        for name in missing:
            if name not in seconds:
                continue
            values: dict[str, Any] = {"ms": seconds[name] * 1e3, "least_ms": min(times[name]) / counts[name] * 1e3}
            if short and self.cuda:
                values["gpu_ms"] = busy_seconds(calls[name]) / counts[name] * 1e3
            if peer in seconds:
                values["ratio"] = seconds[peer] / seconds[name]
            values |= {"count": len(times[name]), "GiB": memory[name] / GIB}
            self.add(part, case, name, **values, **describe(name, seconds[name]))

    def find(self, part: str, case: str, system: str) -> dict[str, Any]:
        """The row, or an empty one."""
        found = (row for row in self.rows if (row["part"], row["case"], row["system"]) == (part, case, system))
        return next(found, {})


def repeat(call: Callable[[], object], count: int) -> None:
    for _ in range(count):
        call()


def clear(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def busy_seconds(call: Callable[[], object]) -> float:
    """The time of the GPU alone, if the call neither synchronises nor fills the queue of launches: it is given while
    the GPU sleeps for some 30 ms."""
    times = []
    for _ in range(3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(50_000_000)  # type: ignore[no-untyped-call]
        start.record()  # type: ignore[no-untyped-call]
        call()
        end.record()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)  # type: ignore[no-untyped-call]
    return median(times)


def use_tensor_cores(bench: Bench) -> None:
    """As in training in mixed precision."""
    torch.set_float32_matmul_precision("high" if bench.cuda else "highest")
