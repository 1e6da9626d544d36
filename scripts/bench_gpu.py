"""All timed lines of a GPU in one run of minutes: whole training steps, attention alone, decoding, and its checks.

    python -m scripts.bench_gpu [--parts step attention decode check profile] [--minutes 10] [--output FILE.jsonl]
    python -m scripts.bench_gpu --small --device cpu      # every line once, tiny; its times mean nothing

    step       steps of `--model` (forward, loss, backward, clipping, fused AdamW; bf16 autocast), and Marian's
    attention  one causal attention, bf16, forward and with backward; the plan of segments is made once, outside
    decode     whole translations with beam 4, of one document and of 64, and CTranslate2 in fp16
    check      outputs and gradients of `segment_recall` on this device against fp64; synchronisations in a step
    profile    operators, kernel launches and idle time of a step

Each finished row is printed and appended to the file: run again, it continues with the rows that are missing. What
fails is a row with its error, not tried again until the file goes. The systems of a case take turns in one process; a
row holds medians. `segment_recall:linear` is a system with the given algorithm.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from scripts.bench_training.tables import markdown
from scripts.gpu.checked import checks, profiles
from scripts.gpu.rows import PARTS, Bench, clear, use_tensor_cores
from scripts.gpu.timed import attentions, beside_cublas, decoding, steps, trained


def report(rows: Iterable[Mapping[str, Any]]) -> str:
    """A table for each part with times: milliseconds, the ratio to the peer in brackets, GiB."""
    tables = []
    for part in ("step", "attention", "decode"):
        chosen = [row for row in rows if row["part"] == part]
        systems = list(dict.fromkeys(row["system"] for row in chosen))
        lines = []
        for case in dict.fromkeys(row["case"] for row in chosen):
            cells = {row["system"]: cell(row) for row in chosen if row["case"] == case}
            lines.append([case, *(cells.get(system, "") for system in systems)])
        if lines:
            tables.append(markdown([f"{part}: ms (peer's / its), GiB", *systems], lines))
    return "\n\n".join(tables)


def cell(row: Mapping[str, Any]) -> str:
    if "ms" not in row:
        return row["error"].split(":")[0]  # type: ignore[no-any-return]
    ratio = f" ({row['ratio']:.2f})" if "ratio" in row else ""
    return f"{row['ms']:,.3g}{ratio}, {row['GiB']:.2f}"


def machine(bench: Bench) -> None:
    found = {}
    for package in ("torch", "triton", "transformers", "fla-core", "ctranslate2"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    name = torch.cuda.get_device_name() if bench.cuda else "cpu"
    bench.add("machine", name, time.strftime("%Y-%m-%d %H:%M"), **found, cublas=os.environ.get("BENCH_GPU_CUBLAS", ""))


def parse(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=["step", "attention", "decode"])
    parser.add_argument("--device", default="cuda", help="cuda or cpu")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to try the script")
    parser.add_argument("--output", default="runs/bench_gpu.jsonl", help="rows; continued if it exists")
    parser.add_argument("--minutes", type=float, default=10.0, help="begin no new case after this time")
    parser.add_argument("--model", choices=("small", "base"), default="small")
    parser.add_argument("--systems", nargs="+", help="other systems, such as segment_recall:linear")
    parser.add_argument("--lengths", nargs="+", type=int, help="tokens of a document")
    parser.add_argument(
        "--tokens", type=int, default=None, help="of a batch, on each side; longer documents one by one"
    )
    parser.add_argument("--decode-tokens", type=int, default=200, help="of a document, source and target")
    parser.add_argument("--budget-seconds", type=float, default=3.0, help="timed calls of a row; a sixth for attention")
    parser.add_argument("--repeats", type=int, default=7, help="timed calls of a row, unless they exceed its budget")
    parser.add_argument("--peak", type=float, default=990.0, help="TFLOP/s of the device in bf16")
    options = parser.parse_args(given)
    options.tokens = options.tokens or (256 if options.small else 16384)
    return options


def main(given: Sequence[str] | None = None) -> None:
    options = parse(given)
    if options.device == "cuda" and "decode" in options.parts:
        beside_cublas()
    bench = Bench(options)
    machine(bench)
    use_tensor_cores(bench)
    parts = {"step": steps, "attention": attentions, "decode": decoding, "check": checks, "profile": profiles}
    for part in options.parts:
        parts[part](bench)
        trained.cache_clear() if part == "step" else None
        clear(bench.device)
    print("\n" + report(bench.rows))
    print(f"\n{time.time() - bench.start:.0f} s; not measured: " + ("; ".join(bench.open) or "nothing"), flush=True)


if __name__ == "__main__":
    main()
