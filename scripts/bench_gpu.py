"""All timed lines of a GPU in one run of minutes: whole training steps, attention alone, decoding, and its checks.

    python scripts/bench_gpu.py [--parts step attention decode check profile] [--minutes 10] [--output FILE.jsonl]
    python scripts/bench_gpu.py --small --device cpu      # every line once, tiny; its times mean nothing

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
import gc
import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile

from scaleformer.benchmarks.attention import forward, forward_backward
from scaleformer.benchmarks.ctranslate import CTRANSLATE2, CTranslate2
from scaleformer.benchmarks.decoding import Endless, fixed_length
from scaleformer.benchmarks.flash_linear import FLASH_LINEAR, flash_linear_attention
from scaleformer.benchmarks.models import Sizes, make_batch, make_model
from scaleformer.benchmarks.peers import MARIAN
from scaleformer.benchmarks.tables import markdown
from scaleformer.benchmarks.training import GIB, Limits, TrainedSystem, take_turns, weight_flops
from scaleformer.decoding.search import decode
from scaleformer.ops import SegmentLayout, relative_kernel_attention, segment_recall_attention
from scaleformer.ops.recall.attention import RECALL_ALGORITHMS
from scaleformer.system.timing import peak_memory, wait

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


def keys_seen(system: str, length: int, causal: bool, width: int) -> float:
    """Keys that a query is multiplied with, on average; for linear attention the rows of its state and of its band."""
    everything = (length + 1) / 2 if causal else length
    if system.startswith("segment_recall"):
        return min(everything, (NEAR * (1 if causal else 2) + (0.5 if causal else 1)) * SEGMENT + KEPT)
    return min(everything, width + HORIZON) if system == "scaleformer" else everything


def step_flops(system: str, sizes: Sizes, documents: int, length: int) -> float:
    """Of a step: 6 for each weight and token, and 12 for each number of a query and each key that it sees."""
    width = sizes.width // sizes.heads
    seen = 2 * keys_seen(system, length, False, width) + keys_seen(system, length, True, width)
    tokens = documents * length
    return weight_flops(sizes, tokens, tokens) + 12 * sizes.width * sizes.layers * tokens * seen


@cache
def trained(system: str, model: str, positions: int, device: torch.device) -> TrainedSystem:
    """One model for all lengths. The algorithm stands after a colon."""
    name, _, algorithm = system.partition(":")
    torch.manual_seed(0)
    graphs, algorithm = algorithm == "graphs", algorithm.removeprefix("graphs")
    made = TrainedSystem(name, SIZES[model], positions, "bfloat16", device=device, graphs=graphs)
    for module in made.model.modules() if algorithm else ():
        if hasattr(module, "algorithm"):
            setattr(module, "algorithm", algorithm)  # noqa: B010
    return made


def step_of(bench: Bench, system: str, length: int) -> Callable[[], None]:
    documents = max(1, bench.options.tokens // length)
    generator = torch.Generator().manual_seed(length)
    batch = make_batch(documents, length, SEGMENT, bench.sizes.vocabulary, generator).to(bench.device)
    positions = max(lengths_of(bench, "step"))
    return partial(trained(system, bench.model, positions, bench.device).step, batch)


def lengths_of(bench: Bench, part: str) -> Sequence[int]:
    if bench.options.lengths:
        return bench.options.lengths  # type: ignore[no-any-return]
    if bench.options.small:
        return (64, 128)
    if part == "step":
        return (512, 2048, 8192, 32768)
    return (512, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


def steps(bench: Bench) -> None:
    given = bench.options.systems or (
        "segment_recall:graphs",
        MARIAN,
        "segment_recall",
        "softmax:graphs",
        "softmax",
        "scaleformer",
    )
    systems = list(dict.fromkeys([*given, MARIAN]))
    for length in lengths_of(bench, "step"):
        documents = max(1, bench.options.tokens // length)

        def describe(system: str, seconds: float, length: int = length, documents: int = documents) -> dict[str, Any]:
            share = step_flops(system, bench.sizes, documents, length) / seconds / (bench.options.peak * 1e12)
            made = trained(system, bench.model, max(lengths_of(bench, "step")), bench.device)
            weights = {"GiB_weights": made.held() / GIB}
            return {"tokens_per_s": 2 * documents * length / seconds, "share": share, "documents": documents} | weights

        makers: dict[str, Maker] = {system: partial(step_of, bench, system, length) for system in systems}
        case = f"{bench.model}, {length:,} tokens"
        bench.measure("step", case, makers, MARIAN, bench.options.budget_seconds, describe)


@cache
def arguments(documents: int, heads: int, length: int, width: int, device: torch.device) -> dict[str, Any]:
    """q, k, v in bf16, laid out as a model does; the tensors of recall in fp32; one layout."""
    generator = torch.Generator().manual_seed(length)

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype).requires_grad_()

    q, k, v = (normal(documents, length, heads, width, dtype=torch.bfloat16).transpose(1, 2) for _ in range(3))
    segments = (torch.arange(length, device=device) // SEGMENT).repeat(documents, 1)
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    return {
        "q": q, "k": k, "v": v, "rel": normal(2 * HORIZON + 1, width), "log_gate": normal(heads, 2 * NEAR + 3),
        "salience": normal(documents, heads, length), "recency": torch.linspace(0, 1, heads, device=device),
        "layout": SegmentLayout(segments, segments),
    }  # fmt: skip


def attention_call(bench: Bench, system: str, length: int, backward: bool) -> Callable[[], object]:
    heads, width = (2, 16) if bench.options.small else (8, 64)
    documents = max(1, bench.options.tokens // length)
    x = arguments(documents, heads, length, width, bench.device)
    name, _, algorithm = system.partition(":")
    qkv, how = [x["q"], x["k"], x["v"]], dict[str, Any](causal=True, algorithm=algorithm or "auto")
    leaves = qkv
    call: Callable[[], Tensor]
    if name == "segment_recall":
        leaves = [*qkv, x["rel"], x["log_gate"], x["salience"]]
        how |= {"kept": KEPT, "layout": x["layout"]}
        call = partial(segment_recall_attention, *qkv, *leaves[3:], x["recency"], **how)  # type: ignore[call-arg]
    elif name == "scaleformer":
        leaves = [*qkv, x["rel"]]
        call = partial(relative_kernel_attention, *leaves, **how)
    elif name == FLASH_LINEAR:
        call = partial(flash_linear_attention, *qkv)
    elif name == FLEX:
        call = flex(*qkv)
    else:
        call = partial(sdpa, SDPBackend.CUDNN_ATTENTION if name == CUDNN else SDPBackend.FLASH_ATTENTION, *qkv)

    def autocast() -> Tensor:
        with torch.autocast(bench.device.type, dtype=torch.bfloat16):
            return call()

    return partial(forward_backward, autocast, leaves) if backward else partial(forward, autocast)


def sdpa(backend: SDPBackend, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(q, k, v, is_causal=True)


def flex(q: Tensor, k: Tensor, v: Tensor, block: int = 128) -> Callable[[], Tensor]:
    """Plain causal FlexAttention. Its mask of blocks is written out: made by torch it would hold all pairs."""
    from torch.nn.attention.flex_attention import BlockMask

    q, k, v = (x if x.is_cuda else x.detach() for x in (q, k, v))  # on a CPU it has no backward pass
    count = -(-q.shape[2] // block)
    row = torch.arange(count, dtype=torch.int32, device=q.device)
    own = row[:, None].expand(count, count).contiguous()  # the block of the diagonal comes first
    before = row.expand(count, count).contiguous()
    mask = BlockMask.from_kv_blocks(
        torch.ones_like(row)[None, None], own[None, None], row[None, None].contiguous(), before[None, None],
        BLOCK_SIZE=block, mask_mod=is_before, seq_lengths=(q.shape[2], q.shape[2]),
    )  # fmt: skip
    return partial(compiled_flex(q.is_cuda), q, k, v, block_mask=mask)


def is_before(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return query >= key


@cache
def compiled_flex(compiles: bool) -> Callable[..., Tensor]:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True) if compiles else flex_attention  # type: ignore[return-value]


def attentions(bench: Bench) -> None:
    """FlexAttention comes after all others: it compiles for long."""
    given = bench.options.systems
    kept = [s for s in given or () if s.split(":")[0] in ("segment_recall", "scaleformer")]
    first = [*(kept or ["segment_recall", "scaleformer"]), FLASH, CUDNN, FLASH_LINEAR]
    for systems in (first, [FLASH, FLEX]):
        for length in lengths_of(bench, "attention"):
            arguments.cache_clear()
            clear(bench.device)
            for backward, passes in enumerate(PASSES):
                makers: dict[str, Maker] = {
                    system: partial(attention_call, bench, system, length, bool(backward)) for system in systems
                }

                def describe(system: str, seconds: float, length: int = length) -> dict[str, Any]:
                    return {"documents": max(1, bench.options.tokens // length)}

                case, budget = f"{length:,} tokens, {passes}", bench.options.budget_seconds / 6
                bench.measure("attention", case, makers, FLASH, budget, describe, short=True)


def decoding(bench: Bench) -> None:
    small = bench.options.small
    tokens, beams = (SEGMENT, 2) if small else (bench.options.decode_tokens, 4)
    for documents in (1, 4 if small else 64):
        batch = make_batch(documents, tokens, SEGMENT, bench.sizes.vocabulary, torch.Generator().manual_seed(0))

        def ours(dtype: torch.dtype, batch: Any = batch) -> Callable[[], object]:
            torch.manual_seed(0)
            model, here = make_model("segment_recall", bench.sizes).to(bench.device).eval(), batch.to(bench.device)

            def call(length: int = tokens) -> None:
                with torch.autocast(bench.device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
                    given = here.source, here.source_mask, here.source_segments
                    decode(Endless(model, SEGMENT), *given, fixed_length(length, beams))

            call(4)
            return call

        def theirs(batch: Any = batch) -> Callable[[], object]:
            precision = "float16" if bench.cuda else "float32"
            process = get_context("spawn").Process(target=try_ctranslate, args=(precision, bench.device.type))
            process.start()
            process.join()
            if process.exitcode:
                raise RuntimeError(f"it ended a process of its own with code {process.exitcode}")
            other = CTranslate2(bench.sizes, 4, precision, bench.device.type)
            return partial(other.seconds, batch.source, tokens, beams)

        def describe(system: str, seconds: float, documents: int = documents) -> dict[str, Any]:
            return {"tokens_per_s": documents * tokens / seconds, "tokens": tokens, "beams": beams}

        makers: dict[str, Maker] = {
            "segment_recall, bf16 autocast": partial(ours, torch.bfloat16),
            CTRANSLATE2: theirs,
            "segment_recall": partial(ours, torch.float32),
        }
        bench.measure(
            "decode", f"{documents} documents", makers, CTRANSLATE2, 4 * bench.options.budget_seconds, describe
        )


def try_ctranslate(precision: str, device: str) -> None:
    CTranslate2(SIZES["tiny"], 1, precision, device).seconds(torch.full((1, 4), 7), 4, 2)


def beside_cublas() -> None:
    """Where there is cuBLAS 13 only, lend it to CTranslate2 by the name of version 12, in a new process."""
    found = [path for folder in sys.path for path in Path(folder).glob("nvidia/cu13/lib/libcublas*.so.13")]
    if not found or "BENCH_GPU_CUBLAS" in os.environ:
        return
    folder = Path(mkdtemp())
    for path in found:
        for name in (path.name, path.name.replace(".so.13", ".so.12")):
            if not (folder / name).exists():
                (folder / name).symlink_to(path)
    places = [str(folder), str(found[0].parent), os.environ.get("LD_LIBRARY_PATH", "")]
    os.environ |= {"BENCH_GPU_CUBLAS": "13 as 12", "LD_LIBRARY_PATH": ":".join(places)}
    print("CTranslate2 wants cuBLAS 12: it gets 13 by that name", flush=True)
    os.execv(sys.executable, [sys.executable, *sys.argv])


#: queries, keys (0: causal, -1: bidirectional), documents, heads, width, near, kept, longest segment, pads
CASES = (
    (203, 0, 2, 4, 64, 3, 64, 40, False),
    (1000, 0, 3, 4, 64, 3, 64, 40, True),
    (515, -1, 2, 4, 64, 3, 64, 40, True),
    (130, 411, 2, 4, 64, 3, 64, 40, True),
    (1, 0, 1, 4, 64, 3, 64, 40, False),
    (1500, 0, 1, 8, 64, 1, 16, 300, False),
    (777, -1, 2, 2, 64, 0, 5, 30, False),
    (700, 333, 2, 4, 64, 1, 33, 20, True),
    (2049, 0, 1, 4, 32, 3, 64, 5, True),
    (640, -1, 1, 2, 32, 2, 1, 64, True),
)


def checks(bench: Bench) -> None:
    torch.set_float32_matmul_precision("highest")
    fused = "fused" in RECALL_ALGORITHMS
    bad = 0
    for number, (queries, keys, documents, heads, width, near, kept, longest, pads) in enumerate(CASES):
        if bench.options.small:
            queries, keys = -(-queries // 8), keys if keys < 1 else -(-keys // 8)
        for dtype in (torch.float32, torch.bfloat16):
            kind = {0: "causal", -1: "bidirectional"}.get(keys, f"cross to {keys}")
            what = f"{queries} {kind}, {documents}x{heads}x{width}, near {near}, kept {kept}, segments to {longest}"
            what += f"{', pads' if pads else ''}, {str(dtype).split('.')[1]}"
            algorithms = ("fused", "linear", "quadratic") if fused else ("linear", "quadratic")
            if bench.has("check", what, algorithms[0]) or bench.late(f"check, {what}"):
                continue
            try:
                x = check_arguments(
                    number, queries, max(keys, 0) or queries, documents, heads, width, near, longest, pads, bench.device
                )
                how = {"kept": kept, "causal": keys == 0}
                exact = outcome(x, torch.float64, "quadratic", keys > 0, how)
            except Exception as error:
                bench.fail("check", what, "fp64", error)
                continue
            errors: dict[str, dict[str, float]] = {}
            for algorithm in reversed(algorithms):
                try:
                    found = outcome(x, dtype, algorithm, keys > 0, how)
                except Exception as error:
                    bad += algorithm == "fused"
                    bench.fail("check", what, algorithm, error)
                    continue
                errors[algorithm] = {name: worst(found[name], exact[name]) for name in exact}
                others = [errors[a] for a in errors if a != algorithm]
                least = 2e-5 if dtype == torch.float32 else 1e-2
                wrong = [n for n, e in errors[algorithm].items() if not e <= max([least, *(3 * o[n] for o in others)])]
                bad += bool(wrong)
                values = {name: float(f"{error:.2e}") for name, error in errors[algorithm].items()}
                bench.add("check", what, algorithm, **values, wrong=wrong)
    print(f"check: {bad} wrong or failed" + ("" if fused else "; there is no algorithm `fused`"), flush=True)
    use_tensor_cores(bench)
    synchronisations(bench)


def check_arguments(
    seed: int, queries: int, keys: int, documents: int, heads: int, width: int, near: int, longest: int, pads: bool,
    device: torch.device,
) -> dict[str, Any]:  # fmt: skip
    """Segments of 1 to `longest` tokens; q, k, v as a model lays them out, rounded to bf16 for all."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def segments(length: int) -> Tensor:
        sizes = torch.randint(1, longest + 1, (documents, length), generator=generator)  # (B, L)
        return torch.searchsorted(sizes.cumsum(1), torch.arange(length).repeat(documents, 1), right=True)

    def heads_of(length: int) -> Tensor:
        return normal(documents, length, heads, width).bfloat16().float().transpose(1, 2)

    own = segments(keys)
    mask = torch.arange(keys) < keys - torch.arange(documents)[:, None] * (keys // 3)  # (B, L_K)
    x = {
        "q": heads_of(queries), "k": heads_of(keys), "v": heads_of(keys), "rel": normal(2 * HORIZON + 1, width),
        "log_gate": normal(heads, 2 * near + 3), "salience": normal(documents, heads, keys), "up": heads_of(queries),
        "recency": torch.linspace(0, 1, heads), "queries": own if queries == keys else segments(queries), "keys": own,
        "mask": mask if pads else None,
    }  # fmt: skip
    return {name: None if value is None else value.to(device) for name, value in x.items()}


def outcome(x: dict[str, Any], dtype: torch.dtype, algorithm: str, cross: bool, how: dict[str, Any]) -> Any:
    """Output and gradients, by name. In bf16 as under autocast: q, k and v in bf16, all else in fp32."""
    rest = torch.float32 if dtype == torch.bfloat16 else dtype
    names = ("q", "k", "v", "log_gate", "salience", *(() if cross else ("rel",)))
    leaves = {n: x[n].to(dtype if n in ("q", "k", "v") else rest).detach().requires_grad_() for n in names}
    with torch.autocast(x["q"].device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        out = segment_recall_attention(
            leaves["q"], leaves["k"], leaves["v"], leaves.get("rel"), leaves["log_gate"], leaves["salience"],
            x["recency"].to(rest), x["queries"], x["keys"], key_mask=x["mask"], algorithm=algorithm, **how,
        )  # fmt: skip
    gradients = torch.autograd.grad(out, list(leaves.values()), x["up"].to(out.dtype))
    return {"out": out.detach(), **dict(zip(leaves, gradients, strict=True))}


def worst(found: Tensor, exact: Tensor) -> float:
    """The largest error over the largest magnitude; infinite where something is not a number."""
    error = (found.double() - exact).abs().max() / exact.abs().max().clamp(min=1e-30)
    return float(error) if found.isfinite().all() else float("inf")


def synchronisations(bench: Bench) -> None:
    """How often a step waits for the GPU, and in which lines."""
    for system in bench.options.systems or ("segment_recall", MARIAN):
        length = lengths_of(bench, "step")[0]
        case = f"synchronisations, {length} tokens"
        if bench.has("check", case, system) or bench.late(f"check, {case}, {system}"):
            continue
        try:
            step = step_of(bench, system, length)
            step()
            wait(bench.device)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                if bench.cuda:
                    torch.cuda.set_sync_debug_mode("warn")
                step()
                if bench.cuda:
                    torch.cuda.set_sync_debug_mode("default")
            found = [warning for warning in said if "synchroniz" in str(warning.message)]
            places = Counter(f"{'/'.join(Path(w.filename).parts[-3:])}:{w.lineno}" for w in found)
            bench.add("check", case, system, count=len(found), places=dict(places.most_common(12)))
        except Exception as error:
            bench.fail("check", case, system, error)


def profiles(bench: Bench) -> None:
    for system in bench.options.systems or ("segment_recall",):
        for length in lengths_of(bench, "step")[:2]:
            case = f"{length:,} tokens"
            if bench.has("profile", case, system) or bench.late(f"profile, {case}, {system}"):
                continue
            try:
                profile_step(bench, system, length, case)
            except Exception as error:
                bench.fail("profile", case, system, error)


def profile_step(bench: Bench, system: str, length: int, case: str) -> None:
    step = step_of(bench, system, length)
    for _ in range(3):
        step()
    wait(bench.device)
    start = time.perf_counter()
    step()
    given = time.perf_counter() - start
    wait(bench.device)
    whole = time.perf_counter() - start
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if bench.cuda else [])]
    with profile(activities=kinds) as profiled:
        step()
        wait(bench.device)
    events = profiled.key_averages()
    order = "self_cuda_time_total" if bench.cuda else "self_cpu_time_total"
    print(events.table(sort_by=order, row_limit=25, max_name_column_width=70), flush=True)
    if bench.cuda:
        print(events.table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=70), flush=True)
    launches = sum(event.count for event in events if "LaunchKernel" in event.key)
    on_gpu = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA and not e.is_user_annotation]
    busy = sum(e.self_device_time_total for e in on_gpu) / 1e6
    bench.add(
        "profile", case, system, ms=whole * 1e3, cpu_ms=given * 1e3, gpu_ms=busy * 1e3,
        idle=1 - busy / whole if bench.cuda else None, launches=launches,
        operators=sum(event.count for event in events if event.key.startswith("aten::")),
    )  # fmt: skip


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


def use_tensor_cores(bench: Bench) -> None:
    """As in training in mixed precision."""
    torch.set_float32_matmul_precision("high" if bench.cuda else "highest")


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
