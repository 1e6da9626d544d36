"""The time of `segment_recall_attention` in two checkouts, in turn in one process, by the CPU time of the process.

    python -m scripts.compare_attention OTHER [--lengths 25 512] [--width 32] [--dtype float32] [--repeats 7]

OTHER is the folder of the other checkout. CPU time is little disturbed by other work on the machine, apart from what
that takes of the caches. Prints milliseconds, forward plus backward, of 4,096 tokens in 4 heads and segments of 25.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path
from statistics import median
from types import ModuleType

import torch

TOKENS, HEADS, SEGMENT = 4096, 4, 25


def load(folder: Path) -> ModuleType:
    """`scaleformer.ops` of a checkout, with modules of its own."""
    for name in [name for name in sys.modules if name.split(".")[0] == "scaleformer"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    found = importlib.import_module("scaleformer.ops")
    importlib.import_module("scaleformer.system.cpu").set_up_cpu(1)
    sys.path.pop(0)
    if not str(found.__file__).startswith(str(folder)):
        raise ValueError(f"{folder} has no scaleformer: give the folder of a checkout")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--lengths", type=int, nargs="+", default=[25, 128, 256, 512, 1024])
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    versions = {"other": load(options.other.resolve()), "this": load(Path(__file__).resolve().parents[1])}
    for length in options.lengths:
        for case in ("causal", "bidirectional", "cross"):
            times = measure(versions, case, length, options.width, getattr(torch, options.dtype), options.repeats)
            cells = (f"{algorithm}, {name}: {median(t) * 1e3:.1f}" for (algorithm, name), t in times.items())
            print(f"{length:,} tokens, {case}: {'   '.join(cells)}", flush=True)


def measure(
    versions: dict[str, ModuleType], case: str, length: int, width: int, dtype: torch.dtype, repeats: int
) -> dict[tuple[str, str], list[float]]:
    """Seconds by algorithm and version; the first call of each is not counted."""
    generator, documents = torch.Generator().manual_seed(length), max(1, TOKENS // length)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    q, k, v = (normal(documents, length, HEADS, width).to(dtype).transpose(1, 2).requires_grad_() for _ in range(3))
    rel, salience = normal(33, width).requires_grad_(), normal(documents, HEADS, length).requires_grad_()
    gate = -torch.arange(-4.0, 5.0).abs().repeat(HEADS, 1)
    gate.requires_grad_()
    segments = (torch.arange(length) // SEGMENT).repeat(documents, 1)
    layouts = {name: ops.SegmentLayout(segments, segments) for name, ops in versions.items()}
    up, times = torch.ones_like(v), dict[tuple[str, str], list[float]]()
    for number in range(repeats + 1):
        for algorithm in ("quadratic", "linear"):
            for name, ops in versions.items():
                start = time.process_time()
                with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                    out = ops.segment_recall_attention(
                        q, k, v, None if case == "cross" else rel, gate, salience, torch.linspace(0, 1, HEADS),
                        causal=case == "causal", layout=layouts[name], explore=1.0, algorithm=algorithm,
                    )  # fmt: skip
                torch.autograd.backward(out, up)
                if number:
                    times.setdefault((algorithm, name), []).append(time.process_time() - start)
    return times


if __name__ == "__main__":
    main()
