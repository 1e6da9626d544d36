"""`segment_recall_attention` against the loop of its equation, and properties that hold for any input."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.ops import SegmentLayout, segment_recall_attention
from scaleformer.ops.recall import quadratic
from tests.ops.inputs import gradients
from tests.ops.recall.inputs import Case, call, make
from tests.ops.recall.naive import segment_recall_loop
from tests.ops.segments.inputs import SEGMENTS, SegmentInputs, make_segments
from tests.pairwise import pairwise

RELATIVE: tuple[dict[str, Any], ...] = ({}, {"horizon": 1}, {"horizon": 3, "per_head": True})
each_direction = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
each_algorithm = pytest.mark.parametrize("algorithm", ["linear", "quadratic"])
BOTH = False, True
ALGORITHMS = "linear", "quadratic"


def assert_same(case: Case, out: Tensor, expected: Tensor, unused: bool = False) -> None:
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-11)
    for found, wanted in zip(*(gradients(x, case.leaves, unused) for x in (out, expected)), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-11)


def assert_forms_agree(case: Case, **options: Any) -> None:
    linear, quadratic = (call(case, algorithm=name, **options) for name in ALGORITHMS)
    assert_same(case, linear, quadratic)


SHAPES = (  # queries, keys, near, kept
    (12, 12, 0, 3),
    (12, 12, 1, 2),
    (5, 13, 1, 4),
    (13, 5, 0, 1),
    (12, 13, 0, 0),
    (13, 12, 1, 0),
)


@pytest.mark.parametrize(
    ("causal", "algorithm", "relative", "masked", "shape"), pairwise(BOTH, ALGORITHMS, RELATIVE, BOTH, SHAPES), ids=str
)
def test_equals_the_equation(
    causal: bool, algorithm: str, relative: dict[str, Any], masked: bool, shape: tuple[int, int, int, int]
) -> None:
    queries, keys, near, kept = shape
    case = make(queries, keys, near=near, causal=causal, masked=masked, **relative)
    expected = call(case, function=segment_recall_loop, kept=kept, causal=causal)
    found = call(case, kept=kept, causal=causal, algorithm=algorithm)
    assert_same(case, found, expected, unused=kept == 0)  # of which no salience has an effect


@pytest.mark.parametrize(("causal", "algorithm", "kind"), pairwise(BOTH, ALGORITHMS, ("short", "one-token")), ids=str)
def test_of_equal_priorities_the_nearest_are_kept(causal: bool, algorithm: str, kind: str) -> None:
    case = make(40, 40, kind, near=0, causal=causal, alike=True, batch=1)
    expected = call(case, function=segment_recall_loop, kept=5, causal=causal)
    assert_same(case, call(case, kept=5, causal=causal, algorithm=algorithm), expected)


@pytest.mark.parametrize(
    ("causal", "relative", "kind", "ranges", "lengths"),
    pairwise(
        BOTH,
        ({}, {"horizon": 40, "per_head": True}),
        SEGMENTS,
        ((0, 1), (1, 40), (3, 9)),
        ((1, 1), (100, 100), (30, 110), (110, 30)),
    ),
    ids=str,
)
def test_linear_equals_quadratic(
    causal: bool, relative: dict[str, Any], kind: str, ranges: tuple[int, int], lengths: tuple[int, int]
) -> None:
    """Segments from one token to all of them; more of them in the queries than in the keys, or fewer."""
    near, kept = ranges
    case = make(*lengths, kind, near=near, causal=causal, masked=lengths[0] > 1, **relative)
    assert_forms_agree(case, kept=kept, causal=causal)


@pytest.mark.parametrize(("queries", "keys", "horizon"), [(96, 96, 1), (99, 70, 3), (70, 99, 50), (99, 70, 50)])
def test_causal_scores_made_in_parts(monkeypatch: pytest.MonkeyPatch, queries: int, keys: int, horizon: int) -> None:
    case = make(queries, keys, near=1, horizon=horizon, causal=True, masked=True)
    monkeypatch.setitem(quadratic.FEWEST_ROWS, "cpu", 20)
    assert_forms_agree(case, kept=9, causal=True)


@each_algorithm
@each_direction
def test_a_layout_serves_several_calls(causal: bool, algorithm: str) -> None:
    """Exactly the results of separate segments and mask."""
    case = make(70, 70, causal=causal, masked=True, horizon=3)
    x = case.x
    options: dict[str, Any] = {"kept": 5, "causal": causal, "algorithm": algorithm}
    layout = SegmentLayout(x.query_segments, x.key_segments, x.tokens.key_mask)
    arguments = x.tokens.q, x.tokens.k, x.tokens.v, x.tokens.rel, x.log_gate, case.salience, case.recency
    expected = call(case, **options)
    for _ in range(2):
        assert torch.equal(segment_recall_attention(*arguments, layout=layout, **options), expected)


@each_direction
def test_segments_of_all_lengths_in_one_batch(causal: bool) -> None:
    case = make(150, 150, causal=causal, batch=4, masked=True, horizon=3)
    rows = torch.cat([make_segments(kind, 1, 150) for kind in ("one-token", "single", "short", "long")])
    x = SegmentInputs(case.x.tokens, case.x.log_gate, rows, rows)
    case = Case(x, case.salience, case.recency)
    assert_forms_agree(case, kept=33, causal=causal)


def test_all_that_is_far_may_be_kept() -> None:
    """Then it is torch's own softmax attention over the whole document, plus each key's own terms."""
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
    """One of three far keys is kept, in 3,000 rows: the shares are within four standard deviations."""
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kept": -1}, "kept is -1: it must be at least 0"),
        ({"explore": -1.0}, "explore is -1.0: it must be at least 0"),
        ({"algorithm": "memory"}, "it must be one of auto, linear, quadratic"),
        ({"salience": torch.zeros(2, 2, 6)}, r"salience has shape \(2, 2, 6\): it must be \(2, 2, 5\)"),
        ({"recency": torch.zeros(3)}, r"recency has shape \(3,\): it must be \(2,\)"),
        ({"recency": torch.tensor([0.0, -0.5])}, r"recency is \[0.0, -0.5\]: it must be at least 0"),
        ({"log_gate": torch.zeros(2, 1)}, "log_gate has shape"),
        ({"rel": torch.zeros(4, 4)}, r"rel has shape \(4, 4\)"),
        ({"key_segments": None}, "give both, or a layout"),
        (
            {"layout": SegmentLayout(torch.zeros(2, 6), torch.zeros(2, 5))},
            "layout was given with query_segments, key_segments or key_mask",
        ),
    ],
    ids=["kept", "explore", "algorithm", "salience", "recency", "falling", "gate", "rel", "no segments", "both"],
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
    """With a gate of -inf a head never sees these keys, even if there are no others; other heads do not change."""
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
