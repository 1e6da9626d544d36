"""`segment_recall_attention` against the double loop of its equation, and what must hold whatever the numbers are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.ops.common.relative_positions import horizon_of
from scaleformer.ops.recall import quadratic as recall_dense
from scaleformer.ops.recall.attention import segment_recall_attention
from scaleformer.ops.segments import tiles as hybrid_plan
from tests.ops.inputs import gradients
from tests.ops.recall.inputs import Case, call, make
from tests.ops.segments.inputs import SEGMENTS, SegmentInputs, make_segments

RELATIVE: dict[str, dict[str, Any]] = {
    "no-rel": {},
    "shared-R1": {"horizon": 1},
    "per-head-R3": {"horizon": 3, "per_head": True},
}
each_direction = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
each_algorithm = pytest.mark.parametrize("algorithm", ["linear", "quadratic"])


def chosen(case: Case, b: int, head: int, i: int, kept: int, causal: bool) -> list[int]:
    """The keys that query i of a row sees, by the words of the definition."""
    x, near = case.x, case.x.log_gate.shape[1] // 2 - 1
    mask = x.tokens.key_mask
    seen = [j for j in range(x.tokens.k.shape[2]) if (mask is None or mask[b, j]) and not (causal and j > i)]
    distance = {j: int(x.key_segments[b, j]) - int(x.query_segments[b, i]) for j in seen}
    recency = float(case.recency[head])

    def priority(j: int, sign: int) -> tuple[float, int]:
        return float(case.salience.detach()[b, head, j]) + sign * recency * int(x.key_segments[b, j]), sign * j

    before = sorted((j for j in seen if distance[j] < -near), key=lambda j: priority(j, 1), reverse=True)
    after = sorted((j for j in seen if distance[j] > near), key=lambda j: priority(j, -1), reverse=True)
    each = kept if causal else -(-kept // 2)
    return [j for j in seen if abs(distance[j]) <= near] + before[:each] + after[:each]


def loop(case: Case, kept: int, causal: bool) -> Tensor:
    """The equation, pair by pair."""
    x = case.x
    q, k, v, rel = x.tokens.q, x.tokens.k, x.tokens.v, x.tokens.rel
    reach, width = x.log_gate.shape[1] // 2, q.shape[3]
    horizon = 0 if rel is None else horizon_of(rel)
    out = []
    for b in range(q.shape[0]):
        for head in range(q.shape[1]):
            for i in range(q.shape[2]):
                scores, values = [], []
                for j in chosen(case, b, head, i, kept, causal):
                    distance = int(x.key_segments[b, j]) - int(x.query_segments[b, i])
                    key = k[b, head, j]
                    if rel is not None:
                        table = rel if rel.dim() == 2 else rel[head]
                        key = key + table[min(max(j - i, -horizon), horizon) + horizon]
                    score = x.log_gate[head, min(max(distance, -reach), reach) + reach]
                    score = score + (q[b, head, i] * key).sum() / math.sqrt(width)
                    scores.append(score + case.salience[b, head, j] if abs(distance) >= reach else score)
                    values.append(v[b, head, j])
                if scores:
                    out.append(torch.stack(scores).softmax(0) @ torch.stack(values))
                else:
                    out.append(v.new_zeros(v.shape[3]))
    return torch.stack(out).view(*q.shape[:3], v.shape[3])


def assert_same(case: Case, out: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-11)
    for got, want in zip(gradients(out, case.leaves), gradients(expected, case.leaves), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-11)


@each_direction
@each_algorithm
@pytest.mark.parametrize("relative", RELATIVE.values(), ids=RELATIVE.keys())
@pytest.mark.parametrize("masked", [False, True], ids=["all-keys", "masked"])
@pytest.mark.parametrize(
    ("queries", "keys", "near", "kept"), [(12, 12, 0, 3), (12, 12, 1, 2), (5, 13, 1, 4), (13, 5, 0, 1)], ids=str
)
def test_equals_the_double_loop(
    causal: bool, algorithm: str, relative: dict[str, Any], masked: bool, queries: int, keys: int, near: int, kept: int
) -> None:
    case = make(queries, keys, near=near, causal=causal, masked=masked, **relative)
    assert_same(case, call(case, kept=kept, causal=causal, algorithm=algorithm), loop(case, kept, causal))


@each_direction
@each_algorithm
@pytest.mark.parametrize("kind", ["short", "one-token"])
def test_of_like_priorities_the_nearest_are_kept(causal: bool, algorithm: str, kind: str) -> None:
    case = make(40, 40, kind, near=0, causal=causal, alike=True)
    assert_same(case, call(case, kept=5, causal=causal, algorithm=algorithm), loop(case, 5, causal))


@each_direction
@pytest.mark.parametrize("relative", [{}, {"horizon": 40, "per_head": True}], ids=["no-rel", "per-head-R40"])
@pytest.mark.parametrize("kind", SEGMENTS)
@pytest.mark.parametrize(("near", "kept"), [(0, 1), (1, 40), (3, 9)])
@pytest.mark.parametrize("lengths", [(1, 1), (100, 100), (30, 110), (110, 30)], ids=lambda n: f"LQ{n[0]}-LK{n[1]}")
def test_linear_equals_quadratic(
    causal: bool, relative: dict[str, Any], kind: str, near: int, kept: int, lengths: tuple[int, int]
) -> None:
    """Segments from one token to all of them; more of them in the queries than in the keys, or fewer."""
    case = make(*lengths, kind, near=near, causal=causal, masked=lengths[0] > 1, **relative)
    linear, quadratic = (call(case, kept=kept, causal=causal, algorithm=name) for name in ("linear", "quadratic"))
    assert_same(case, linear, quadratic)


@pytest.mark.parametrize("lengths", [(96, 96), (99, 70), (70, 99)], ids=lambda n: f"LQ{n[0]}-LK{n[1]}")
@pytest.mark.parametrize("horizon", [1, 3, 50])
def test_causal_scores_made_in_parts(monkeypatch: pytest.MonkeyPatch, lengths: tuple[int, int], horizon: int) -> None:
    case = make(*lengths, near=1, horizon=horizon, causal=True, masked=True)
    monkeypatch.setattr(recall_dense, "_FEWEST_ROWS", 20)
    in_parts, expected = (call(case, kept=9, causal=True, algorithm=name) for name in ("quadratic", "linear"))
    assert_same(case, in_parts, expected)


@each_direction
@pytest.mark.parametrize("kind", SEGMENTS)
@pytest.mark.parametrize("lengths", [(90, 90), (30, 90), (90, 30)], ids=lambda n: f"LQ{n[0]}-LK{n[1]}")
def test_several_steps(monkeypatch: pytest.MonkeyPatch, causal: bool, kind: str, lengths: tuple[int, int]) -> None:
    """Tiles worked on few at a time, with much outside of their windows."""
    monkeypatch.setitem(hybrid_plan.SCORE_NUMBERS, "cpu", 1 << 9)
    case = make(*lengths, kind, causal=causal, masked=True, horizon=3)
    linear, quadratic = (call(case, kept=7, causal=causal, algorithm=name) for name in ("linear", "quadratic"))
    assert_same(case, linear, quadratic)


@each_direction
def test_segments_of_all_lengths_in_one_batch(causal: bool) -> None:
    case = make(150, 150, causal=causal, batch=4, masked=True, horizon=3)
    rows = torch.cat([make_segments(kind, 1, 150) for kind in ("one-token", "single", "short", "long")])
    x = SegmentInputs(case.x.tokens, case.x.log_gate, rows, rows)
    case = Case(x, case.salience, case.recency)
    linear, quadratic = (call(case, kept=33, causal=causal, algorithm=name) for name in ("linear", "quadratic"))
    assert_same(case, linear, quadratic)


def test_all_that_is_far_may_be_kept() -> None:
    """Then it is torch's own softmax attention over the whole document, with what each key has of its own."""
    case = make(60, 60, "short", near=0)
    x = case.x
    distance = (x.key_segments[:, None] - x.query_segments[:, :, None]).clamp(-1, 1)  # (B, L_Q, L_K)
    bias = x.log_gate[:, distance + 1].transpose(0, 1) + (distance != 0)[:, None] * case.salience[:, :, None]
    expected = torch.nn.functional.scaled_dot_product_attention(x.tokens.q, x.tokens.k, x.tokens.v, bias)
    for algorithm in ("linear", "quadratic"):
        torch.testing.assert_close(call(case, kept=120, algorithm=algorithm), expected)


def test_a_fact_is_found_again_however_far_back_it_is() -> None:
    """One salient token among thousands that are not: a query a hundred segments later reads it exactly."""
    length, d = 2000, 8
    segments = (torch.arange(length) // 20)[None]
    k, v = torch.zeros(1, 1, length, d), torch.zeros(1, 1, length, 2)
    k[..., 25, 0], v[..., 25, 0] = 60.0, 1.0
    q = torch.zeros(1, 1, length, d)
    q[..., -1, 0] = 1.0
    salience = torch.zeros(1, 1, length)
    salience[..., 25] = 3.0
    gate, recency = torch.zeros(1, 5), torch.zeros(1)
    for algorithm in ("linear", "quadratic"):
        out = segment_recall_attention(
            q, k, v, None, gate, salience, recency, segments, segments, kept=1, causal=True, algorithm=algorithm
        )
        assert out[0, 0, -1, 0] > 0.99
        forgotten = segment_recall_attention(
            q, k, v, None, gate, -salience, recency, segments, segments, kept=1, causal=True, algorithm=algorithm
        )
        assert forgotten[0, 0, -1, 0] == 0


@each_algorithm
def test_exploring_draws_in_proportion_to_the_exponential_of_the_salience(algorithm: str) -> None:
    """One of three far keys is kept, in 3,000 rows: shares within four standard deviations."""
    torch.manual_seed(0)
    rows = 3000
    zeros = torch.zeros(rows, 1, 4, 1)
    v = torch.eye(4).expand(rows, 1, 4, 4)
    salience = torch.tensor([0.0, 1.0, 2.0, 0.0]).expand(rows, 1, 4)
    segments = torch.tensor([0, 0, 0, 1]).expand(rows, 4)
    gate, recency = torch.zeros(1, 3), torch.zeros(1)
    out = segment_recall_attention(
        zeros, zeros, v, None, gate, salience, recency, segments, segments,
        kept=1, causal=True, explore=1.0, algorithm=algorithm,
    )  # fmt: skip
    shares = (out[:, 0, 3, :3] > 0).float().mean(0)
    wanted = salience[0, 0, :3].softmax(-1)
    assert shares.sum() == pytest.approx(1)
    assert ((shares - wanted).abs() < 4 * (wanted * (1 - wanted) / rows).sqrt()).all()


@each_algorithm
def test_no_query_sees_later_keys(algorithm: str) -> None:
    case = make(21, 21, horizon=3, causal=True)
    options = {"kept": 3, "causal": True, "algorithm": algorithm}
    before = call(case, **options)
    x = case.x
    k, v = x.tokens.k.detach(), x.tokens.v.detach()
    for position in range(0, 20, 3):
        later_k, later_v, segments = k.clone(), v.clone(), x.key_segments.clone()
        later_k[:, :, position + 1 :] += 10.0
        later_v[:, :, position + 1 :] -= 10.0
        segments[:, position + 1 :] += 1
        salience = case.salience.detach().clone()
        salience[:, :, position + 1 :] += 5.0
        after = segment_recall_attention(
            x.tokens.q,
            later_k,
            later_v,
            x.tokens.rel,
            x.log_gate,
            salience,
            case.recency,
            segments,
            segments,
            **options,
        )  # type: ignore[arg-type]
        torch.testing.assert_close(after[:, :, : position + 1], before[:, :, : position + 1], rtol=0, atol=1e-12)


@each_algorithm
@each_direction
@pytest.mark.parametrize("content", [1e30, float("nan")])
def test_pads_hold_anything(content: float, causal: bool, algorithm: str) -> None:
    """In k, v, the saliences and the segment numbers."""
    case = make(19, 19, horizon=3, causal=causal, masked=True)
    x, options = case.x, {"kept": 4, "causal": causal, "algorithm": algorithm}
    out = call(case, **options)
    expected = gradients(out, case.leaves)
    assert x.tokens.key_mask is not None
    pads = ~x.tokens.key_mask
    k = x.tokens.k.detach().masked_fill(pads[:, None, :, None], content).requires_grad_()
    v = x.tokens.v.detach().masked_fill(pads[:, None, :, None], content).requires_grad_()
    salience = case.salience.detach().masked_fill(pads[:, None], content).requires_grad_()
    garbage = torch.randint(-5, 99, pads.shape, generator=torch.Generator().manual_seed(0))
    segments = torch.where(pads, garbage, x.key_segments)
    changed = segment_recall_attention(
        x.tokens.q, k, v, x.tokens.rel, x.log_gate, salience, case.recency, x.query_segments, segments,
        key_mask=~pads, **options,
    )  # type: ignore[arg-type]  # fmt: skip
    torch.testing.assert_close(changed, out, rtol=1e-12, atol=1e-12)
    for got, want in zip(gradients(changed, [x.tokens.q, k, v, *x.leaves[3:], salience]), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@each_algorithm
@each_direction
def test_no_key_gives_zeros(causal: bool, algorithm: str) -> None:
    case = make(9, 9, horizon=2, causal=causal)
    key_mask = torch.ones(2, 9, dtype=torch.bool)
    key_mask[0] = False
    key_mask[1, :4] = False
    out = call(case, kept=2, causal=causal, algorithm=algorithm, key_mask=key_mask)
    assert (out[0] == 0).all()
    assert (out[1, :, :4] == 0).all() == causal
    for gradient in gradients(out, case.leaves):
        assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kept": 0}, "kept is 0: it must be at least 1"),
        ({"explore": -1.0}, "explore is -1.0: it must be at least 0"),
        ({"algorithm": "memory"}, "choose one of auto, linear, quadratic"),
        ({"salience": torch.zeros(2, 2, 6)}, r"salience has shape \(2, 2, 6\): it must be \(2, 2, 5\)"),
        ({"recency": torch.zeros(3)}, r"recency has shape \(3,\): it must be \(2,\)"),
        ({"recency": torch.tensor([0.0, -0.5])}, r"recency is \[0.0, -0.5\]: it must be at least 0"),
        ({"log_gate": torch.zeros(2, 1)}, "log_gate has shape"),
        ({"rel": torch.zeros(4, 4)}, r"rel has shape \(4, 4\)"),
    ],
    ids=["kept", "explore", "algorithm", "salience", "recency", "falling", "gate", "rel"],
)
def test_wrong_arguments(change: dict[str, Any], message: str) -> None:
    arguments = {
        "q": torch.zeros(2, 2, 6, 4),
        "k": torch.zeros(2, 2, 5, 4),
        "v": torch.zeros(2, 2, 5, 3),
        "rel": None,
        "log_gate": torch.zeros(2, 5),
        "salience": torch.zeros(2, 2, 5),
        "recency": torch.zeros(2),
        "query_segments": torch.zeros(2, 6, dtype=torch.long),
        "key_segments": torch.zeros(2, 5, dtype=torch.long),
    }
    with pytest.raises(ValueError, match=message):
        segment_recall_attention(**{**arguments, **change})


@each_algorithm
def test_large_logits_are_no_trouble(algorithm: str) -> None:
    case = make(30, 30, horizon=3)
    for factor in (1e3, -1e3):
        tokens = replace(case.x.tokens, q=case.x.tokens.q.detach().abs() * factor)
        out = call(replace(case, x=replace(case.x, tokens=tokens)), kept=3, algorithm=algorithm)
        assert out.isfinite().all()
        assert torch.autograd.grad(out.sum(), case.x.tokens.k)[0].isfinite().all()


@each_algorithm
@each_direction
@pytest.mark.parametrize("column", [0, 1, 2], ids=["before", "own", "after"])
def test_a_gate_may_be_shut(algorithm: str, causal: bool, column: int) -> None:
    """With a gate of -inf a head never looks there, even where there is nothing else; the others see what they saw."""
    case = make(12, 12, near=0, causal=causal)
    open_, gate = call(case, kept=3, causal=causal, algorithm=algorithm), case.x.log_gate.detach().clone()
    gate[0, column] = -math.inf
    shut = replace(case, x=replace(case.x, log_gate=gate.requires_grad_()))
    out = call(shut, kept=3, causal=causal, algorithm=algorithm)
    torch.testing.assert_close(out[:, 1:], open_[:, 1:])
    gate = gate.detach().clamp(min=-1e9)
    almost = replace(case, x=replace(case.x, log_gate=gate.requires_grad_()))
    seen = torch.zeros_like(out[:, 0, :, 0], dtype=torch.bool)  # rows that may look somewhere else
    for b, i in torch.cartesian_prod(torch.arange(out.shape[0]), torch.arange(12)).tolist():
        distance = (case.x.key_segments[b] - case.x.query_segments[b, i]).clamp(-1, 1) + 1
        visible = torch.arange(12) <= i if causal else torch.ones(12, dtype=torch.bool)
        seen[b, i] = bool((visible & (distance != column)).any())
    expected = call(almost, kept=3, causal=causal, algorithm="quadratic")[:, 0]
    torch.testing.assert_close(out[:, 0][seen], expected[seen])
    assert (out[:, 0][~seen] == 0).all()
    assert not out.isnan().any()
    assert not any(x.isnan().any() for x in gradients(out, case.leaves[:3]))


@each_algorithm
@each_direction
def test_a_salience_may_be_shut(algorithm: str, causal: bool) -> None:
    """With a salience of -inf a key is not seen from afar; no other key or head is worse off."""
    case = make(30, 30, near=0, causal=causal, horizon=2)
    far, never = case.salience.detach().clone(), case.salience.detach().clone()
    far[0, 0, ::2], never[0, 0, ::2] = -1e6, -math.inf
    expected, out = (
        call(replace(case, salience=x.requires_grad_()), kept=5, causal=causal, algorithm=algorithm)
        for x in (far, never)
    )
    torch.testing.assert_close(out, expected)
    assert not any(x.isnan().any() for x in gradients(out, case.leaves[:4]))
