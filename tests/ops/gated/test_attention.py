"""`segment_gated_attention` against the equation, and properties that hold for any input."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.ops import relative_kernel_attention, segment_gated_attention
from scaleformer.ops.gated import layout, linear
from scaleformer.ops.gated.naive import naive_segment_gated_attention
from scaleformer.system.timing import saved_bytes
from tests.ops.inputs import gradients
from tests.ops.kernel.test_attention import LargestTensor
from tests.ops.segments.inputs import SEGMENTS, SegmentInputs, make_segment_inputs, make_segments
from tests.pairwise import covering

FAR_TOKENS = 3
PIECE = 4
RELATIVE: dict[str, dict[str, Any]] = {
    "no-rel": {},
    "shared-R3": {"horizon": 3},
    "per-head-R3": {"horizon": 3, "per_head": True},
    "shared-R20": {"horizon": 20},
}
LENGTHS = [(1, 1), (PIECE - 1, PIECE - 1), (PIECE, PIECE), (PIECE + 1, PIECE + 1), (111, 111), (20, 75), (75, 20)]
ALGORITHMS = "linear", "quadratic"
DIRECTIONS = {"bidirectional": False, "causal": True}
each_relative = pytest.mark.parametrize("relative", list(RELATIVE.values())[:3], ids=list(RELATIVE)[:3])
each_direction = pytest.mark.parametrize("causal", DIRECTIONS.values(), ids=DIRECTIONS.keys())
each_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


def call(x: SegmentInputs, **options: Any) -> Tensor:
    options = {"far_tokens": FAR_TOKENS, "key_mask": x.tokens.key_mask, **options}
    return segment_gated_attention(*x.arguments, **options)  # type: ignore[arg-type]


def assert_equals_the_equation(x: SegmentInputs, causal: bool, algorithm: str = "linear") -> None:
    """The output and every gradient."""
    out = call(x, causal=causal, algorithm=algorithm)
    options: dict[str, Any] = {"causal": causal, "key_mask": x.tokens.key_mask, "far_tokens": FAR_TOKENS}
    expected = naive_segment_gated_attention(*x.arguments, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-11)
    for actual, wanted in zip(gradients(out, x.leaves), gradients(expected, x.leaves), strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-11)


@covering(
    [
        *((causal, "linear", lengths, ..., ..., ..., ...) for causal, lengths in product([False, True], LENGTHS)),
        *((causal, "linear", (111, 111), kind, ..., ..., ...) for causal, kind in product([False, True], SEGMENTS)),
    ],
    causal=DIRECTIONS,
    algorithm=ALGORITHMS,
    lengths=LENGTHS,
    kind=SEGMENTS,
    relative=RELATIVE,
    reach=[1, 2, 4],
    masked={"all-keys": False, "masked": True},
)
def test_output_and_gradients(
    monkeypatch: pytest.MonkeyPatch,
    causal: bool,
    algorithm: str,
    lengths: tuple[int, int],
    kind: str,
    relative: dict[str, Any],
    reach: int,
    masked: bool,
) -> None:
    """Pieces shorter than segments and longer; more segments in the queries than in the keys, or fewer."""
    monkeypatch.setattr(layout, "_CHUNKS", (PIECE,))
    x = make_segment_inputs(*lengths, kind, reach=reach, causal=causal, masked=masked, **relative)
    assert_equals_the_equation(x, causal, algorithm)


@covering(
    [(causal, ..., "one-token", reach) for causal, reach in product([False, True], [17, 18])],
    causal=DIRECTIONS,
    relative=dict(list(RELATIVE.items())[:3]),
    kind=SEGMENTS,
    reach=[4, 17, 18],
    allowed=lambda causal, relative, kind, reach: reach == 4 or kind == "one-token",
)
def test_pieces_as_they_are_chosen(causal: bool, relative: dict[str, Any], kind: str, reach: int) -> None:
    x = make_segment_inputs(150, 150, kind, reach=reach, causal=causal, masked=True, **relative)
    assert_equals_the_equation(replace(x, query_segments=x.key_segments), causal)


@each_direction
@pytest.mark.parametrize("kind", ["one-token", "long"])
def test_matrices_by_blocks(monkeypatch: pytest.MonkeyPatch, causal: bool, kind: str) -> None:
    """Columns of values computed separately, and recomputed in the backward pass."""
    monkeypatch.setattr(linear, "_MATRIX_NUMBERS", 1)
    x = make_segment_inputs(90, 90, kind, reach=3, causal=causal, masked=True, horizon=3)
    assert_equals_the_equation(x, causal)


@each_relative
@pytest.mark.parametrize("lengths", [(67, 67), (130, 67), (67, 130)], ids=str)
def test_other_segments_on_each_side(relative: dict[str, Any], lengths: tuple[int, int]) -> None:
    """Queries far past the segments at their positions, within the keys' segments or beyond them."""
    for kind, shift in (("short", 7), ("with-gaps", -30), ("one-token", 3)):
        x = make_segment_inputs(*lengths, kind, reach=2, masked=True, **relative)
        assert_equals_the_equation(replace(x, query_segments=x.query_segments + shift), causal=False)


@each_relative
def test_queries_that_leave_segments_out(relative: dict[str, Any]) -> None:
    """Few queries, far apart in segments, to many short segments."""
    x = make_segment_inputs(11, 250, "one-token", reach=2, masked=True, **relative)
    assert_equals_the_equation(replace(x, query_segments=torch.arange(11).mul(23).expand(2, -1)), causal=False)


@each_direction
def test_numbers_that_jump_cost_no_memory(causal: bool) -> None:
    largest = []
    for factor in (1, 10**12):
        x = make_segment_inputs(300, 300, horizon=3, causal=causal)
        x = replace(x, query_segments=x.query_segments * factor, key_segments=x.key_segments * factor)
        with LargestTensor() as record:
            out = call(x, causal=causal, algorithm="linear")
        largest.append(record.numel)
    assert largest[0] == largest[1]
    torch.testing.assert_close(out, call(x, causal=causal, algorithm="quadratic"))


@each_direction
@each_relative
def test_segments_of_all_lengths_in_one_batch(causal: bool, relative: dict[str, Any]) -> None:
    x = make_segment_inputs(150, 150, causal=causal, batch=4, reach=4, masked=True, **relative)
    rows = torch.cat([make_segments(kind, 1, 150) for kind in ("one-token", "single", "short", "long")])
    x = SegmentInputs(x.tokens, x.log_gate, rows, rows)
    assert_equals_the_equation(x, causal)


@each_direction
@each_relative
def test_a_long_segment_among_short_ones(causal: bool, relative: dict[str, Any]) -> None:
    borders = torch.ones(2, 200, dtype=torch.long)
    borders[0, 60:190] = 0
    borders[1, :] = torch.arange(200) % 40 < 5
    rows = borders.cumsum(1)
    x = make_segment_inputs(200, 200, causal=causal, reach=4, **relative)
    x = SegmentInputs(x.tokens, x.log_gate, rows, rows)
    assert_equals_the_equation(x, causal)


@each_direction
@each_algorithm
def test_one_segment_is_relative_kernel_attention(causal: bool, algorithm: str) -> None:
    x = make_segment_inputs(70, 70, "single", horizon=3, causal=causal)
    out = call(x, causal=causal, algorithm=algorithm)
    tokens = x.tokens
    torch.testing.assert_close(out, relative_kernel_attention(tokens.q, tokens.k, tokens.v, tokens.rel, causal=causal))


@pytest.mark.parametrize("algorithm", ["auto", "memory"])
@pytest.mark.parametrize("length", [5, 300])
@each_direction
def test_chosen_algorithms(causal: bool, length: int, algorithm: str) -> None:
    x = make_segment_inputs(length, length, horizon=3, causal=causal, batch=1)
    assert_equals_the_equation(x, causal, algorithm)


@each_algorithm
def test_queries_past_the_last_segment_see_the_far_field(algorithm: str) -> None:
    """The whole source is far: the output is its mean, whatever the gate."""
    x = make_segment_inputs(3, 30, reach=2)
    x = SegmentInputs(x.tokens, x.log_gate, x.query_segments + 100, x.key_segments)
    tokens = x.tokens
    torch.testing.assert_close(call(x, algorithm=algorithm), relative_kernel_attention(tokens.q, tokens.k, tokens.v))


@each_algorithm
def test_the_far_part_weighs_no_more_in_a_longer_document(algorithm: str) -> None:
    """One near key of value 1, the rest far and of value 0: the far keys weigh 20 tokens, whether 40 or 4000."""
    for far in (40, 4000):
        ones = torch.ones(1, 1, far + 1, 2)
        value = torch.zeros(1, 1, far + 1, 1)
        value[:, :, -1] = 1.0
        segments = torch.full((1, far + 1), 9)
        segments[:, :-1] = 0
        out = segment_gated_attention(
            ones[:, :, :1], ones, value, None, torch.zeros(1, 3), segments[:, -1:], segments, algorithm=algorithm
        )
        torch.testing.assert_close(out.flatten(), torch.tensor([1 / 21]))


@pytest.mark.parametrize(("queries", "keys"), [(0, 3), (3, 0)])
def test_empty_sequences(queries: int, keys: int) -> None:
    x = make_segment_inputs(queries, keys)
    assert (call(x) == torch.zeros(2, 2, queries, 3)).all()


@each_algorithm
@each_direction
def test_under_autocast(causal: bool, algorithm: str) -> None:
    x = make_segment_inputs(200, 200, horizon=4, d=16, e=16, causal=causal)
    low = [t.detach().bfloat16().requires_grad_() for t in x.leaves]
    exact = [t.detach().double().requires_grad_() for t in low]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = segment_gated_attention(*low, x.query_segments, x.key_segments, causal=causal, algorithm=algorithm)
    expected = segment_gated_attention(*exact, x.query_segments, x.key_segments, causal=causal, algorithm="quadratic")
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), expected, rtol=2**-7, atol=2**-9)
    for actual, wanted in zip(gradients(out, low), gradients(expected, exact), strict=True):
        torch.testing.assert_close(actual.double(), wanted, rtol=2**-5, atol=2**-6 * wanted.abs().max().item())


@each_direction
@pytest.mark.parametrize("kind", ["one-token", "short", "single"])
def test_memory_is_linear_in_length(causal: bool, kind: str) -> None:
    """Twice the length, at most twice the largest tensor and twice what is kept: no (L, L) of any kind."""
    largest, kept = [], []
    for length in (4096, 8192):
        x = make_segment_inputs(length, length, kind, horizon=4, causal=causal, batch=1, heads=1, reach=4)
        attend = partial(call, x, causal=causal, algorithm="linear")
        with LargestTensor() as record:
            gradients(attend(), x.leaves)
        largest.append(record.numel)
        kept.append(saved_bytes(attend))
    assert largest[1] <= 2.2 * largest[0]
    assert largest[1] < 8192 * 8192 / 16
    assert kept[1] <= 2.2 * kept[0]


ERRORS: dict[str, tuple[dict[str, Any], str]] = {
    "gate-heads": ({"log_gate": torch.zeros(3, 5)}, r"log_gate has shape \(3, 5\): it must be \(2, 2G\+1\)"),
    "gate-even": ({"log_gate": torch.zeros(2, 4)}, r"log_gate has shape \(2, 4\)"),
    "gate-empty": ({"log_gate": torch.zeros(2, 1)}, r"log_gate has shape \(2, 1\)"),
    "query-shape": (
        {"query_segments": torch.zeros(2, 5, dtype=torch.long)},
        r"query_segments has shape \(2, 5\): it must be \(2, 6\)",
    ),
    "key-dtype": ({"key_segments": torch.zeros(2, 5)}, r"key_segments has dtype torch.float32.*integer"),
    "far-tokens": ({"far_tokens": 0}, r"far_tokens is 0: it must be at least 1"),
    "algorithm": ({"algorithm": "fast"}, r"algorithm is 'fast'"),
    "feature-map": ({"feature_map": "gelu"}, r"feature_map is 'gelu'"),
    "rel": ({"rel": torch.zeros(4, 4)}, r"rel has shape \(4, 4\)"),
    "k": ({"k": torch.zeros(2, 2, 5, 3)}, r"k has shape \(2, 2, 5, 3\)"),
}


@pytest.mark.parametrize(("change", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    arguments = {
        "q": torch.zeros(2, 2, 6, 4),
        "k": torch.zeros(2, 2, 5, 4),
        "v": torch.zeros(2, 2, 5, 3),
        "rel": None,
        "log_gate": torch.zeros(2, 5),
        "query_segments": torch.zeros(2, 6, dtype=torch.long),
        "key_segments": torch.zeros(2, 5, dtype=torch.long),
    }
    with pytest.raises(ValueError, match=message):
        segment_gated_attention(**{**arguments, **change})
