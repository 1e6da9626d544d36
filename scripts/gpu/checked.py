"""What is checked on a GPU: numbers against fp64, synchronisations, and where the time of a step goes."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from scaleformer.ops import segment_recall_attention
from scaleformer.ops.recall.attention import RECALL_ALGORITHMS
from scripts.bench_training.peers import MARIAN
from scripts.gpu.rows import HORIZON, Bench, use_tensor_cores
from scripts.gpu.timed import lengths_of, step_of
from scripts.timing import wait

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
    """The largest error over the largest magnitude; infinite where something is not a number. What is zero by
    cancellation, such as the gradient of a softmax over one key, is measured against a thousandth."""
    error = (found.double() - exact).abs().max() / exact.abs().max().clamp(min=1e-3)
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
