"""`relative_kernel_attention` against the O(L^2) formula, and properties that hold for any input."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from scaleformer.ops import FEATURE_MAPS, relative_kernel_attention
from scaleformer.ops.common import blocks
from scaleformer.ops.kernel.attention import even_chunk, smaller_algorithm
from scripts.bench_attention.cost import saved_bytes
from scripts.timing import peak_memory
from tests.ops.inputs import Inputs, gradients, make_inputs
from tests.ops.kernel.naive import dense_attention
from tests.pairwise import covering

CHUNK = 8
LENGTHS = [(1, 1), (7, 7), (8, 8), (9, 9), (37, 37), (5, 30), (30, 5), (1, 9), (9, 1), (33, 17)]
SEVERAL = [(37, 37), (10, 50), (50, 10), (70, 3)]  # blocks of them
RELATIVE = {
    "no-rel": {},
    "shared-R1": {"horizon": 1},
    "shared-R3": {"horizon": 3},
    "per-head-R3": {"horizon": 3, "per_head": True},
    "per-head-R20": {"horizon": 20, "per_head": True},
}
ALGORITHMS = "linear", "quadratic"
DIRECTIONS = {"bidirectional": False, "causal": True}
KEYS = {"all-keys": False, "masked": True}
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
each_direction = pytest.mark.parametrize("causal", DIRECTIONS.values(), ids=DIRECTIONS.keys())


def call(x: Inputs, **options: Any) -> Tensor:
    return relative_kernel_attention(x.q, x.k, x.v, x.rel, key_mask=x.key_mask, **options)


def assert_equals_formula(x: Inputs, causal: bool, feature_map: str = "elu1", **options: Any) -> None:
    out = call(x, causal=causal, feature_map=feature_map, **options)
    expected = dense_attention(x.q, x.k, x.v, x.rel, causal=causal, key_mask=x.key_mask, feature_map=feature_map)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-11)
    for actual, wanted in zip(gradients(out, x.leaves), gradients(expected, x.leaves), strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-11)


@covering(
    [(*case, ..., ...) for case in product([False, True], ALGORITHMS, LENGTHS)],  # each form meets each length
    causal=DIRECTIONS,
    algorithm=ALGORITHMS,
    lengths=LENGTHS,
    relative=RELATIVE,
    masked=KEYS,
)
def test_output_and_gradients(
    causal: bool, algorithm: str, lengths: tuple[int, int], relative: dict[str, Any], masked: bool
) -> None:
    x = make_inputs(*lengths, masked=masked, **relative)
    assert_equals_formula(x, causal, algorithm=algorithm, chunk_size=CHUNK)


@covering(
    [(kept, ..., causal, ..., lengths) for kept, causal, lengths in product([False, True], [False, True], SEVERAL)],
    kept={"made-again": False, "kept": True},
    chunks=[1, 2],
    causal=DIRECTIONS,
    relative=RELATIVE,
    lengths=SEVERAL,
)
def test_several_blocks(
    monkeypatch: pytest.MonkeyPatch,
    kept: bool,
    chunks: int,
    causal: bool,
    relative: dict[str, Any],
    lengths: tuple[int, int],
) -> None:
    x = make_inputs(*lengths, masked=True, batch=3, **relative)
    monkeypatch.setitem(blocks.BLOCK_NUMBERS, "cpu", chunks * 4 * 3 * 2 * 4)
    monkeypatch.setitem(blocks.KEPT_NUMBERS, "cpu", max(lengths) * 3 * 2 * 4 if kept else 0)
    assert len(blocks.blocks_of(37, 4, 3 * 2 * 4, x.q.device)) == -(-10 // chunks)
    assert_equals_formula(x, causal, algorithm="linear", chunk_size=4)


@pytest.mark.parametrize(
    ("length", "numbers"), [(256, 1 << 20), (1024, 256 * 2 * 64)], ids=["one-block", "four-blocks"]
)
@each_direction
def test_little_is_kept_for_backward(monkeypatch: pytest.MonkeyPatch, causal: bool, length: int, numbers: int) -> None:
    """At most 4 KB a token and head, of which q, k, v and the output are 1 KB; beyond `KEPT_NUMBERS` products are added
    alone: of each chunk its scores and, if causal, a state."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, length, 64, requires_grad=True) for _ in range(3))
    rel = torch.randn(33, 64, requires_grad=True)
    attend = partial(relative_kernel_attention, q, k, v, rel, causal=causal, algorithm="linear")
    monkeypatch.setitem(blocks.BLOCK_NUMBERS, "cpu", numbers)
    assert 2048 * 2 * length < saved_bytes(attend) <= 4096 * 2 * length
    monkeypatch.setitem(blocks.KEPT_NUMBERS, "cpu", length * 2 * 64 - 1)
    assert saved_bytes(attend) < (1700 if causal else 1400) * 2 * length


@each_direction
def test_blocks_are_kept_for_gradients_alone(monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    monkeypatch.setitem(blocks.BLOCK_NUMBERS, "cpu", 256 * 2 * 64)  # four of them
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 1024, 64)
    rel = torch.randn(33, 64)

    def peak(kept: int) -> int:
        monkeypatch.setitem(blocks.KEPT_NUMBERS, "cpu", kept)
        attend = partial(relative_kernel_attention, q, k, v, rel, causal=causal, algorithm="linear")
        return peak_memory(attend, q.device)

    assert peak(kept=1 << 20) == peak(kept=0)
    q.requires_grad_()
    assert peak(kept=1 << 20) > 1.5 * peak(kept=0)


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 5, 16, 37, 64])
@each_direction
def test_any_chunk_size(causal: bool, chunk_size: int) -> None:
    x = make_inputs(37, 37, horizon=4, per_head=True, masked=True)
    assert_equals_formula(x, causal, algorithm="linear", chunk_size=chunk_size)


@pytest.mark.parametrize("feature_map", FEATURE_MAPS)
@each_algorithm
@each_direction
def test_feature_maps(causal: bool, algorithm: str, feature_map: str) -> None:
    x = make_inputs(20, 20, horizon=3, d=8, masked=True)
    assert_equals_formula(x, causal, feature_map, algorithm=algorithm, chunk_size=CHUNK)


@pytest.mark.parametrize("algorithm", ["auto", "memory"])
@pytest.mark.parametrize("length", [3, 300])
@each_direction
def test_chosen_algorithms(causal: bool, length: int, algorithm: str) -> None:
    assert_equals_formula(make_inputs(length, length, horizon=5, batch=1), causal, algorithm=algorithm)


@pytest.mark.parametrize(("length", "most", "chunk"), [(1, 64, 1), (64, 64, 64), (65, 64, 33), (96, 64, 48), (5, 1, 1)])
def test_even_chunk(length: int, most: int, chunk: int) -> None:
    assert even_chunk(length, most) == chunk


def test_the_choice_by_memory() -> None:
    # L_Q L_K scores against d^2 max(L_Q, L_K) numbers when masked, d^2 otherwise.
    assert smaller_algorithm(4096, 4096, 64, True) == "quadratic"
    assert smaller_algorithm(4097, 4097, 64, True) == "linear"
    assert smaller_algorithm(64, 64, 64, False) == "quadratic"
    assert smaller_algorithm(64, 65, 64, False) == "linear"


@each_direction
def test_heads_interleaved_in_memory(causal: bool) -> None:
    """Heads as a model cuts them from one projection: (B, L, H, d), transposed."""
    x = make_inputs(19, 19, horizon=3)
    strided = Inputs(*(t.transpose(1, 2).contiguous().transpose(1, 2) for t in (x.q, x.k, x.v)), x.rel, None)
    out, expected = (call(t, causal=causal, algorithm="linear", chunk_size=CHUNK) for t in (strided, x))
    torch.testing.assert_close(out, expected)
    for actual, wanted in zip(gradients(out, x.leaves), gradients(expected, x.leaves), strict=True):
        torch.testing.assert_close(actual, wanted)


@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0), (0, 0)])
@each_algorithm
@each_direction
def test_empty_sequences(causal: bool, algorithm: str, queries: int, keys: int) -> None:
    x = make_inputs(queries, keys, horizon=2)
    out = call(x, causal=causal, algorithm=algorithm)
    assert out.shape == (2, 2, queries, 3)
    assert (out == 0).all()


@each_algorithm
@each_direction
def test_under_autocast(causal: bool, algorithm: str) -> None:
    """The error of bfloat16 arguments comes from rounding them and the result, not from the sums."""
    x = make_inputs(200, 200, horizon=4, d=16, e=16)
    low = [t.detach().bfloat16().requires_grad_() for t in x.leaves]
    exact = [t.detach().double().requires_grad_() for t in low]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = relative_kernel_attention(*low, causal=causal, algorithm=algorithm, chunk_size=32)
    expected = dense_attention(*exact, causal=causal)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), expected, rtol=2**-7, atol=2**-9)
    for actual, wanted in zip(gradients(out, low), gradients(expected, exact), strict=True):
        assert actual.dtype == torch.bfloat16
        torch.testing.assert_close(actual.double(), wanted, rtol=2**-5, atol=2**-6 * wanted.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@each_direction
def test_twenty_thousand_tokens(causal: bool, dtype: torch.dtype) -> None:
    """Denominators near 2e6: beyond the range of float16, and where a bfloat16 sum would have stopped long before."""
    x = make_inputs(20_000, 20_000, horizon=16, batch=1, heads=1, d=64, e=4).detached()
    low = [t.to(dtype) for t in x.leaves]
    low[2] = low[2] + 1  # means far from zero, so that a relative error is meaningful
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = relative_kernel_attention(*low, causal=causal)
    exact = relative_kernel_attention(*(t.double() for t in low), causal=causal)
    assert out.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 4 * torch.finfo(dtype).eps
    torch.testing.assert_close(out.double(), exact, rtol=tolerance, atol=tolerance)


class LargestTensor(TorchDispatchMode):
    """Records the size of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.untyped_storage().nbytes() // tensor.element_size())
        return out


@each_direction
def test_no_large_tensor(causal: bool) -> None:
    """Neither (L, L) nor (L, d, d) nor (L, 2R-1, d), forward or backward."""
    length, d, horizon = 2048, 32, 16
    x = make_inputs(length, length, horizon=horizon, batch=1, heads=1, d=d, e=d)
    with LargestTensor() as largest:
        gradients(call(x, causal=causal), x.leaves)
    assert largest.numel <= 4 * d * length
    assert 4 * d * length < min(length * length, d * d * length, (2 * horizon - 1) * d * length)


ERRORS = {
    "q": ({"q": torch.zeros(2, 3, 4)}, r"q has shape \(2, 3, 4\)"),
    "k": ({"k": torch.zeros(2, 2, 5, 3)}, r"k has shape \(2, 2, 5, 3\).*\(2, 2, L_K, 4\)"),
    "v": ({"v": torch.zeros(2, 2, 4, 3)}, r"v has shape \(2, 2, 4, 3\).*\(2, 2, 5, e\)"),
    "mask-shape": ({"key_mask": torch.ones(2, 4, dtype=torch.bool)}, r"key_mask has shape \(2, 4\).*\(2, 5\)"),
    "mask-dtype": ({"key_mask": torch.ones(2, 5)}, r"key_mask has dtype torch.float32.*torch.bool"),
    "rel-even": ({"rel": torch.zeros(4, 4)}, r"rel has shape \(4, 4\).*\(2R\+1, 4\)"),
    "rel-short": ({"rel": torch.zeros(1, 4)}, r"rel has shape \(1, 4\)"),
    "rel-width": ({"rel": torch.zeros(5, 3)}, r"rel has shape \(5, 3\)"),
    "rel-heads": ({"rel": torch.zeros(3, 5, 4)}, r"rel has shape \(3, 5, 4\).*\(2, 2R\+1, 4\)"),
    "feature-map": ({"feature_map": "gelu"}, r"feature_map is 'gelu': it must be one of elu1"),
    "algorithm": ({"algorithm": "fast"}, r"algorithm is 'fast': it must be one of auto, linear, quadratic, memory"),
    "chunk-size": ({"chunk_size": 0}, r"chunk_size is 0: it must be at least 1"),
}


@pytest.mark.parametrize(("change", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    arguments = {"q": torch.zeros(2, 2, 6, 4), "k": torch.zeros(2, 2, 5, 4), "v": torch.zeros(2, 2, 5, 3)}
    with pytest.raises(ValueError, match=message):
        relative_kernel_attention(**{**arguments, **change})
