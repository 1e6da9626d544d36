"""`segment_hybrid_attention` against the double loop of its equation, and what must hold whatever the numbers are."""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.ops.common.feature_maps import get_feature_map
from scaleformer.ops.common.relative_positions import horizon_of
from scaleformer.ops.gated.attention import segment_gated_attention
from scaleformer.ops.hybrid import linear as hybrid_linear
from scaleformer.ops.hybrid.attention import segment_hybrid_attention
from scaleformer.ops.segments import tiles as hybrid_plan
from tests.ops.inputs import gradients
from tests.ops.kernel.test_attention import LargestTensor
from tests.ops.segments.inputs import SEGMENTS, SegmentInputs, make_segment_inputs, make_segments

FAR_TOKENS = 3
RELATIVE: dict[str, dict[str, Any]] = {
    "no-rel": {},
    "shared-R1": {"horizon": 1},
    "shared-R3": {"horizon": 3},
    "per-head-R3": {"horizon": 3, "per_head": True},
}
each_relative = pytest.mark.parametrize("relative", RELATIVE.values(), ids=RELATIVE.keys())
each_direction = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
each_algorithm = pytest.mark.parametrize("algorithm", ["linear", "quadratic"])


def call(x: SegmentInputs, **options: Any) -> Tensor:
    options = {"far_tokens": FAR_TOKENS, "key_mask": x.tokens.key_mask, **options}
    return segment_hybrid_attention(*x.arguments, **options)  # type: ignore[arg-type]


def loop(x: SegmentInputs, near: int, causal: bool, feature_map: str = "elu1") -> Tensor:
    """The equation, pair by pair."""
    q, k, v, rel, key_mask = x.tokens.q, x.tokens.k, x.tokens.v, x.tokens.rel, x.tokens.key_mask
    phi, reach, width = get_feature_map(feature_map), x.log_gate.shape[1] // 2, q.shape[3]
    horizon = 0 if rel is None else horizon_of(rel)
    documents = []
    for b in range(q.shape[0]):
        rows = []
        for i in range(q.shape[2]):
            seen = [j for j in range(k.shape[2]) if (key_mask is None or key_mask[b, j]) and not (causal and j > i)]
            distance = {j: int(x.key_segments[b, j]) - int(x.query_segments[b, i]) for j in seen}
            far = sum(abs(y) >= reach for y in distance.values())
            top, total = q.new_zeros(q.shape[1], v.shape[3]), q.new_zeros(q.shape[1], 1)  # (H, e), (H, 1)
            for j in seen:
                clipped = min(max(distance[j], -reach), reach)
                log_gate = x.log_gate[:, clipped + reach]  # (H,)
                if abs(distance[j]) <= near:
                    key = k[b, :, j]  # (H, d)
                    if rel is not None:
                        key = key + rel[..., min(max(j - i, -horizon), horizon) + horizon, :]
                    score = (log_gate + (q[b, :, i] * key).sum(-1) / math.sqrt(width)).exp()  # (H,)
                else:
                    score = log_gate.exp() * (phi(q[b, :, i]) * phi(k[b, :, j])).sum(-1) / width
                    if abs(distance[j]) >= reach:
                        score = score * min(1.0, FAR_TOKENS / far)
                top, total = top + score[:, None] * v[b, :, j], total + score[:, None]
            rows.append(top / total if seen else top)
        documents.append(torch.stack(rows, dim=1))
    return torch.stack(documents)  # (B, H, L_Q, e)


def assert_same(x: SegmentInputs, out: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-11)
    for got, want in zip(gradients(out, x.leaves), gradients(expected, x.leaves), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-11)


@each_direction
@each_relative
@pytest.mark.parametrize("masked", [False, True], ids=["all-keys", "masked"])
@pytest.mark.parametrize(
    ("queries", "keys", "near"), [(9, 9, 0), (9, 9, 1), (4, 10, 1), (10, 4, 0)], ids=lambda n: str(n)
)
def test_equals_the_double_loop(
    causal: bool, relative: dict[str, Any], masked: bool, queries: int, keys: int, near: int
) -> None:
    x = make_segment_inputs(queries, keys, causal=causal, masked=masked, **relative)
    expected = loop(x, near, causal)
    wanted = gradients(expected, x.leaves)
    for algorithm in ("quadratic", "linear"):
        out = call(x, near=near, causal=causal, algorithm=algorithm)
        torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-11)
        for got, want in zip(gradients(out, x.leaves), wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-11)


@each_direction
@pytest.mark.parametrize("relative", [{}, {"horizon": 40, "per_head": True}], ids=["no-rel", "per-head-R40"])
@pytest.mark.parametrize("kind", SEGMENTS)
@pytest.mark.parametrize(("near", "reach"), [(0, 1), (1, 4), (3, 4)])
@pytest.mark.parametrize("lengths", [(1, 1), (100, 100), (30, 110), (110, 30)], ids=lambda n: f"LQ{n[0]}-LK{n[1]}")
def test_linear_equals_quadratic(
    causal: bool, relative: dict[str, Any], kind: str, near: int, reach: int, lengths: tuple[int, int]
) -> None:
    """Segments from one token to all of them; more of them in the queries than in the keys, or fewer."""
    x = make_segment_inputs(*lengths, kind, reach=reach, causal=causal, masked=lengths[0] > 1, **relative)
    linear, quadratic = (call(x, near=near, causal=causal, algorithm=name) for name in ("linear", "quadratic"))
    assert_same(x, linear, quadratic)


@each_direction
@pytest.mark.parametrize("kind", SEGMENTS)
@pytest.mark.parametrize("lengths", [(90, 90), (30, 90), (90, 30)], ids=lambda n: f"LQ{n[0]}-LK{n[1]}")
def test_several_steps(monkeypatch: pytest.MonkeyPatch, causal: bool, kind: str, lengths: tuple[int, int]) -> None:
    """Tiles worked on few at a time, with much outside of their windows."""
    monkeypatch.setitem(hybrid_plan.SCORE_NUMBERS, "cpu", 1 << 9)
    x = make_segment_inputs(*lengths, kind, reach=4, causal=causal, masked=True, horizon=3)
    linear, quadratic = (call(x, causal=causal, algorithm=name) for name in ("linear", "quadratic"))
    assert_same(x, linear, quadratic)


@each_direction
def test_segments_of_all_lengths_in_one_batch(causal: bool) -> None:
    x = make_segment_inputs(150, 150, causal=causal, batch=4, reach=4, masked=True, horizon=3)
    rows = torch.cat([make_segments(kind, 1, 150) for kind in ("one-token", "single", "short", "long")])
    x = SegmentInputs(x.tokens, x.log_gate, rows, rows)
    linear, quadratic = (call(x, causal=causal, algorithm=name) for name in ("linear", "quadratic"))
    assert_same(x, linear, quadratic)


@each_algorithm
@each_direction
def test_one_segment_is_softmax_with_relative_positions(causal: bool, algorithm: str) -> None:
    """[Shaw 2018, equation 4] by torch's own attention, whatever the gate of the own segment."""
    x = make_segment_inputs(70, 70, "single", horizon=3, per_head=True, causal=causal)
    q, rel = x.tokens.q, x.tokens.rel
    assert rel is not None
    offset = torch.arange(70) - torch.arange(70)[:, None]  # (L_Q, L_K)
    bias = torch.einsum("bhid,hijd->bhij", q, rel[:, offset.clamp(-3, 3) + 3]) / math.sqrt(q.shape[3])
    if causal:
        bias = bias.masked_fill(offset > 0, float("-inf"))
    expected = torch.nn.functional.scaled_dot_product_attention(q, x.tokens.k, x.tokens.v, bias)
    torch.testing.assert_close(call(x, causal=causal, algorithm=algorithm), expected)


@each_algorithm
def test_beyond_the_near_segments_it_is_segment_gated_attention(algorithm: str) -> None:
    """Every key farther than one segment: the kernel alone, and its scale 1/d drops out of the mean."""
    x = make_segment_inputs(20, 40, "short", reach=4)
    x = SegmentInputs(x.tokens, x.log_gate, x.query_segments + int(x.key_segments.max()) + 2, x.key_segments)
    expected = segment_gated_attention(*x.arguments, far_tokens=FAR_TOKENS)  # type: ignore[arg-type]
    torch.testing.assert_close(call(x, algorithm=algorithm), expected)


@each_algorithm
def test_no_query_sees_later_keys(algorithm: str) -> None:
    x = make_segment_inputs(21, 21, horizon=3, causal=True)
    before = call(x, causal=True, algorithm=algorithm)
    q, k, v = (t.detach() for t in (x.tokens.q, x.tokens.k, x.tokens.v))
    for position in range(0, 20, 3):
        later_k, later_v, segments = k.clone(), v.clone(), x.key_segments.clone()
        later_k[:, :, position + 1 :] += 10.0
        later_v[:, :, position + 1 :] -= 10.0
        segments[:, position + 1 :] += 1
        after = segment_hybrid_attention(
            q, later_k, later_v, x.tokens.rel, x.log_gate, segments, segments,
            causal=True, far_tokens=FAR_TOKENS, algorithm=algorithm,
        )  # fmt: skip
        torch.testing.assert_close(after[:, :, : position + 1], before[:, :, : position + 1], rtol=0, atol=1e-12)


@each_algorithm
@each_direction
@pytest.mark.parametrize("content", [1e30, float("nan")])
def test_pads_hold_anything(content: float, causal: bool, algorithm: str) -> None:
    """In k, v and the segment numbers."""
    x = make_segment_inputs(19, 19, horizon=3, causal=causal, masked=True)
    out = call(x, causal=causal, algorithm=algorithm)
    expected = gradients(out, x.leaves)
    assert x.tokens.key_mask is not None
    pads = ~x.tokens.key_mask
    k = x.tokens.k.detach().masked_fill(pads[:, None, :, None], content).requires_grad_()
    v = x.tokens.v.detach().masked_fill(pads[:, None, :, None], content).requires_grad_()
    garbage = torch.randint(-5, 99, pads.shape, generator=torch.Generator().manual_seed(0))
    segments = torch.where(pads, garbage, x.key_segments)
    changed = segment_hybrid_attention(
        x.tokens.q, k, v, x.tokens.rel, x.log_gate, x.query_segments, segments,
        causal=causal, key_mask=~pads, far_tokens=FAR_TOKENS, algorithm=algorithm,
    )  # fmt: skip
    torch.testing.assert_close(changed, out, rtol=1e-12, atol=1e-12)
    for got, want in zip(gradients(changed, [x.tokens.q, k, v, *x.leaves[3:]]), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@each_algorithm
@each_direction
def test_no_key_gives_zeros(causal: bool, algorithm: str) -> None:
    x = make_segment_inputs(9, 9, horizon=2, causal=causal)
    key_mask = torch.ones(2, 9, dtype=torch.bool)
    key_mask[0] = False
    key_mask[1, :4] = False
    out = call(x, causal=causal, algorithm=algorithm, key_mask=key_mask)
    assert (out[0] == 0).all()
    assert (out[1, :, :4] == 0).all() == causal
    for gradient in gradients(out, x.leaves):
        assert gradient.isfinite().all()


@each_direction
@pytest.mark.parametrize("kind", ["short", "single"])
@pytest.mark.parametrize("column", [0, 1, 2, 3, 4])
def test_a_gate_may_be_shut(causal: bool, kind: str, column: int) -> None:
    """Rows that may look nowhere else have zeros, with all scores as in linear time."""
    x = make_segment_inputs(12, 12, kind, causal=causal)
    gate = x.log_gate.detach().clone()
    gate[0, column] = -math.inf
    x = replace(x, log_gate=gate)
    out = call(x, causal=causal, algorithm="quadratic")
    torch.testing.assert_close(out, call(x, causal=causal, algorithm="linear"))
    if column == 2 and (causal or kind == "single"):
        assert (out[:, 0, 0] == 0).all()  # there is nothing but the own segment


@each_algorithm
@pytest.mark.parametrize("feature_map", ["relu", "squared_relu"])
def test_maps_with_zeros(algorithm: str, feature_map: str) -> None:
    """Far scores of which many are zero: nothing is made of the logarithm of none."""
    x = make_segment_inputs(12, 12, horizon=3)
    assert_same(x, call(x, algorithm=algorithm, feature_map=feature_map), loop(x, 1, False, feature_map))


@each_algorithm
@pytest.mark.parametrize("own", [0, 9], ids=["with near keys", "without"])
def test_far_scores_of_zero_never_decide_a_row(algorithm: str, own: int) -> None:
    """However low the near scores are, or without any: then there is nothing to gather."""
    v = torch.arange(12.0, dtype=torch.float64).view(1, 1, 4, 3)
    q = torch.full((1, 1, 4, 2), 9.0, dtype=torch.float64).requires_grad_()
    k = torch.full_like(q, -9.0)
    segments = torch.tensor([[0, 0, 9, 9]]), torch.tensor([[0, 0, 9 + own, 9 + own]])
    gate = torch.zeros(1, 5, dtype=torch.float64)
    out = segment_hybrid_attention(q, k, v, None, gate, *segments, feature_map="relu", algorithm=algorithm)
    first, last = v[0, 0, :2].mean(0), v[0, 0, 2:].mean(0)
    expected = torch.stack([first, first, last * (own == 0), last * (own == 0)])
    torch.testing.assert_close(out[0, 0], expected)
    assert torch.autograd.grad(out.sum(), q)[0].isfinite().all()


@each_direction
def test_sums_stay_in_float32(causal: bool) -> None:
    """Arguments in bfloat16 under autocast, as in training: no more is lost than by rounding them."""
    x = make_segment_inputs(150, 150, "short", horizon=3, causal=causal, reach=4)
    rounded = [t.detach().bfloat16() if t is not None and t.is_floating_point() else t for t in x.arguments]
    exact = [t.double() if t is not None and t.is_floating_point() else t for t in rounded]
    for algorithm in ("linear", "quadratic"):
        with torch.autocast("cpu", torch.bfloat16):
            out = segment_hybrid_attention(*rounded, causal=causal, algorithm=algorithm)  # type: ignore[arg-type]
        assert out.dtype is torch.bfloat16
        expected = segment_hybrid_attention(*exact, causal=causal, algorithm=algorithm)  # type: ignore[arg-type]
        torch.testing.assert_close(out.double(), expected, rtol=2**-8, atol=1e-4)


@each_direction
@pytest.mark.parametrize("kind", ["one-token", "single"])
def test_memory_is_linear(monkeypatch: pytest.MonkeyPatch, causal: bool, kind: str) -> None:
    """Neither (L, L) nor (L, d, d) nor segments squared, forward or backward."""
    monkeypatch.setitem(hybrid_plan.SCORE_NUMBERS, "cpu", 1 << 16)
    length, d = 1024, 16
    x = make_segment_inputs(length, length, kind, horizon=3, batch=1, heads=1, d=d, e=d, reach=4, causal=causal)
    with LargestTensor() as largest:
        gradients(call(x, causal=causal, algorithm="linear"), x.leaves)
    assert largest.numel <= 10 * d * length


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"near": 2}, "near is 2: it must be at least 0 and below the reach of log_gate, 2 segments"),
        ({"near": -1}, "near is -1"),
        ({"algorithm": "memory"}, "choose one of auto, linear, quadratic"),
        ({"far_tokens": 0}, "far_tokens is 0"),
        ({"rel": torch.zeros(4, 4)}, r"rel has shape \(4, 4\)"),
        ({"log_gate": torch.zeros(3, 5)}, "log_gate has shape"),
        ({"query_segments": torch.zeros(2, 5, dtype=torch.long)}, "query_segments has shape"),
    ],
    ids=["near-above", "near-below", "algorithm", "far-tokens", "rel", "gate", "segments"],
)
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
        segment_hybrid_attention(**{**arguments, **change})


@each_algorithm
def test_large_logits_are_no_trouble(algorithm: str) -> None:
    """Near logits in the thousands, and near ones so small that only the far field is left."""
    x = make_segment_inputs(30, 30, horizon=3)
    for factor in (1e3, -1e3):
        q = x.tokens.q.detach().abs() * factor
        k = x.tokens.k.detach().abs().requires_grad_()
        out = segment_hybrid_attention(q, k, *x.arguments[2:], algorithm=algorithm)  # type: ignore[arg-type]
        assert out.isfinite().all()
        assert torch.autograd.grad(out.sum(), k)[0].isfinite().all()


@each_direction
def test_what_a_plan_says_of_each_pair(causal: bool) -> None:
    """Every visible key is reached once, in a slot of a window or in one of the states outside; and every far one of a
    window lies in an edge. Segments of 30 to 60 tokens, two rows, pads in one."""
    length, near, reach = 500, 2, 3
    sizes = torch.randint(30, 61, (2, 20), generator=torch.Generator().manual_seed(5))
    segments = torch.stack([torch.arange(20).repeat_interleave(row)[:length] for row in sizes])  # (B, L)
    real = torch.ones(2, length, dtype=torch.bool)
    real[1, 450:] = real[1, 40] = False
    found = hybrid_plan.number_segments(segments, segments, real, causal, reach)
    plan = hybrid_plan.plan_tiles(found, real, near, reach, causal, 3, 20, 2, torch.float64)
    numbers, block = found.keys.tolist(), hybrid_plan.BLOCK
    tiles, padded = -(-length // plan.queries), -(-length // block) + 2
    assert plan.outside
    assert sorted(torch.cat([step.tiles for step in plan.steps]).tolist()) == list(range(2 * tiles))
    narrow = 0
    for step in plan.steps:
        far_columns = {c for first, last in step.edges for c in range(first * block, last * block)}
        narrow += len(far_columns) < step.width
        slots, distances = step.slot.max(1), step.distance.tolist()
        assert (slots.values == 1).all()
        for index, tile in enumerate(step.tiles.tolist()):
            row = tile // tiles
            places = [int(b) % padded - 1 for b in step.blocks[index]]  # blocks of keys of this row, -1 for nothing
            held = {places[c // block] * block + c % block: c for c in range(step.width) if places[c // block] >= 0}
            before, after = (int(x[tile]) % padded * block for x in (plan.before, plan.after))
            first = tile % tiles * plan.queries
            for query in range(first, min(first + plan.queries, length)):
                for key in range(query + 1 if causal else length):
                    distance, visible = numbers[row][key] - numbers[row][query], bool(real[row, key])
                    if key not in held:
                        assert not visible or (key < before - block) != (key >= after and not causal)
                        assert not visible or abs(distance) >= reach
                        continue
                    column = held[key]
                    slot = int(slots.indices[index, column])
                    wanted = min(max(distance, -reach), reach) + reach if visible else 2 * reach + 1
                    assert distances[index][query - first][slot] == wanted
                    assert before - block <= key < after
                    assert column in far_columns or not visible or abs(distance) <= near
    assert narrow, "some windows have a middle without far keys"


def test_layers_share_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for all calls with the same tensors of segments, a new one when these or the options change."""
    made = []
    monkeypatch.setattr(hybrid_plan, "_LAST", hybrid_plan.deque(maxlen=4))
    monkeypatch.setattr(hybrid_linear, "plan_tiles", lambda *a: made.append(a) or hybrid_plan.plan_tiles(*a))
    x = make_segment_inputs(40, 40, masked=True)
    for _ in range(3):
        first = call(x, algorithm="linear")
    assert len(made) == 1
    call(x, algorithm="linear", near=0)
    call(SegmentInputs(x.tokens, x.log_gate, x.query_segments.clone(), x.key_segments), algorithm="linear")
    with torch.inference_mode():
        call(x, algorithm="linear")
    assert len(made) == 4
    assert (call(x, algorithm="linear") == first).all()
    x.key_segments.add_(1)
    changed = call(x, algorithm="linear")
    assert len(made) == 5
    torch.testing.assert_close(changed, call(x, algorithm="quadratic"))


def test_a_plan_whose_mask_is_gone_is_not_that_of_a_call_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrid_plan, "_LAST", hybrid_plan.deque(maxlen=4))
    x = make_segment_inputs(40, 40)
    call(x, algorithm="linear", key_mask=torch.arange(40).expand(2, -1) < 20)
    torch.testing.assert_close(call(x, algorithm="linear"), call(x, algorithm="quadratic"))


def test_a_plan_goes_with_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hybrid_plan, "_LAST", hybrid_plan.deque(maxlen=4))
    kept, gone = make_segment_inputs(40, 40), make_segment_inputs(40, 40)
    for x in (kept, gone):
        call(x, algorithm="linear")
    assert len(hybrid_plan._LAST) == 2
    del x, gone
    gc.collect()
    assert [plan.tensors[0]() for plan in hybrid_plan._LAST] == [kept.query_segments]
