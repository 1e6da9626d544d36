"""`segment_recall_attention` in low precision: arguments of that type, and autocast."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.ops.inputs import gradients
from tests.ops.recall.inputs import Case, call, make

each_direction = pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
each_algorithm = pytest.mark.parametrize("algorithm", ["linear", "quadratic"])


def converted(case: Case, dtype: torch.dtype, parameters: torch.dtype) -> Case:
    """q, k and v in one type, all else in that of parameters."""
    tokens = case.x.tokens
    types = dict.fromkeys("qkv", dtype) | ({} if tokens.rel is None else {"rel": parameters})
    parts = {name: getattr(tokens, name).detach().to(kind).requires_grad_() for name, kind in types.items()}
    gate, salience = (x.detach().to(parameters).requires_grad_() for x in (case.x.log_gate, case.salience))
    return Case(replace(case.x, tokens=replace(tokens, **parts), log_gate=gate), salience, case.recency)


@each_direction
@each_algorithm
def test_sums_stay_in_float32(causal: bool, algorithm: str) -> None:
    """Arguments in bfloat16: the error is no larger than that of rounding them."""
    rounded = converted(make(150, 150, "short", horizon=3, causal=causal), *2 * [torch.bfloat16])
    out = call(rounded, kept=20, causal=causal, algorithm=algorithm)
    assert out.dtype is torch.bfloat16
    expected = call(converted(rounded, *2 * [torch.float64]), kept=20, causal=causal, algorithm=algorithm)
    torch.testing.assert_close(out.double(), expected, rtol=2**-8, atol=1e-4)


@each_direction
@each_algorithm
def test_autocast_costs_no_more_than_with_torchs_own_functions(causal: bool, algorithm: str) -> None:
    """Scores, softmax and means under autocast to bfloat16, in the output and in every gradient; values far from zero,
    whose means must cancel in the gradients of the scores."""
    case = make(150, 150, "short", causal=causal)
    case.x.tokens.v.data.add_(2)
    low = converted(case, torch.bfloat16, torch.float32)
    exact = converted(low, *2 * [torch.float64])
    x, distance = low.x, low.x.key_segments[:, None] - low.x.query_segments[:, :, None]  # (B, L, S)
    reach = x.log_gate.shape[1] // 2
    gates = x.log_gate[:, distance.clamp(-reach, reach) + reach].transpose(0, 1)  # (B, H, L, S)
    bias = gates + (distance.abs() >= reach)[:, None] * low.salience[:, :, None]
    if causal:
        bias = bias.masked_fill(torch.ones(150, 150, dtype=torch.bool).triu(1), float("-inf"))
    with torch.autocast("cpu", torch.bfloat16):
        ours = call(low, kept=150, causal=causal, algorithm=algorithm)
        scores = x.tokens.q @ x.tokens.k.transpose(2, 3) * x.tokens.q.shape[3] ** -0.5 + bias
        plain = scores.softmax(-1) @ x.tokens.v
    expected = call(exact, kept=150, causal=causal, algorithm=algorithm)
    truth = [expected, *gradients(expected, exact.leaves)]
    for found, other, wanted in zip(
        [ours, *gradients(ours, low.leaves)], [plain, *gradients(plain, low.leaves)], truth, strict=True
    ):
        error, torchs = ((y.double() - wanted).norm() / wanted.norm() for y in (found, other))
        assert 1e-4 < error < 1.25 * torchs + 1e-3, (error, torchs)


def test_autocast_to_float16_keeps_products_in_float32() -> None:
    """The range of float16 would be too small."""
    low = converted(make(40, 40, horizon=2), torch.float16, torch.float32)
    expected = call(converted(low, *2 * [torch.float64]), kept=5)
    with torch.autocast("cpu", torch.float16):
        out = call(low, kept=5)
    torch.testing.assert_close(out.double(), expected, rtol=2**-11, atol=1e-5)
