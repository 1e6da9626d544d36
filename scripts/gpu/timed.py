"""What is timed on a GPU: training steps, the attention alone, decoding."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from scaleformer.decoding.search import decode
from scaleformer.ops import SegmentLayout, get_feature_map, relative_kernel_attention, segment_recall_attention
from scripts.bench_attention.cost import forward, forward_backward
from scripts.bench_decoding.ctranslate import CTRANSLATE2, CTranslate2
from scripts.bench_decoding.steps import Endless, fixed_length
from scripts.bench_training.models import Sizes, make_batch, make_model
from scripts.bench_training.peers import MARIAN
from scripts.bench_training.steps import GIB, TrainedSystem, weight_flops
from scripts.gpu.rows import CUDNN, FLASH, FLEX, HORIZON, KEPT, NEAR, PASSES, SEGMENT, SIZES, Bench, Maker, clear

FLASH_LINEAR = "linear attention (flash-linear-attention)"


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


def flash_linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal linear attention by Triton kernels of the package flash-linear-attention, with phi(x) = elu(x) + 1.

    q, k (B, H, L, d), v (B, H, L, e) -> (B, H, L, e). The package wants (B, L, H, ...): copies to that layout count.
    """
    chunked = importlib.import_module("fla.ops.linear_attn").chunk_linear_attn
    phi = get_feature_map("elu1")
    out: Tensor = chunked(*(x.transpose(1, 2).contiguous() for x in (phi(q), phi(k), v)), normalize=True)[0]
    return out.transpose(1, 2)


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
