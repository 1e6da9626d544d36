"""The kernels for GPUs, run by Triton's interpreter, against the scores of all pairs in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is missing: pip install 'scaleformer[kernels]'")

from scaleformer.ops.recall import attention, fused
from tests.ops.inputs import gradients
from tests.ops.recall.inputs import Case, call, make


def in_single_precision(case: Case) -> Case:
    """The same numbers in fp32, as leaves."""
    x = case.x
    q, k, v, rel = (None if t is None else t.detach().float().requires_grad_() for t in tensors(case)[:4])
    assert q is not None
    assert k is not None
    assert v is not None
    tokens = type(x.tokens)(q, k, v, rel, x.tokens.key_mask)
    gate, salience = (t.detach().float().requires_grad_() for t in (x.log_gate, case.salience))
    single = type(x)(tokens, gate, x.query_segments, x.key_segments)
    return Case(single, salience, case.recency.float())


def tensors(case: Case) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    return case.x.tokens.q, case.x.tokens.k, case.x.tokens.v, case.x.tokens.rel


def assert_equal(case: Case, **options: Any) -> None:
    single = in_single_precision(case)
    exact = in_double_precision(single)
    out, expected = call(single, algorithm="fused", **options), call(exact, algorithm="quadratic", **options)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    unused = options.get("kept") == 0  # of which no salience has an effect
    found, wanted = gradients(out, single.leaves, unused), gradients(expected, exact.leaves, unused)
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x.double(), y, rtol=2e-5, atol=2e-5)


def in_double_precision(single: Case) -> Case:
    """The rounded numbers in float64, so that both forms choose between the same priorities."""
    x = single.x
    q, k, v = (t.detach().double().requires_grad_() for t in tensors(single)[:3])
    rel = None if x.tokens.rel is None else x.tokens.rel.detach().double().requires_grad_()
    tokens = type(x.tokens)(q, k, v, rel, x.tokens.key_mask)
    gate, salience = (t.detach().double().requires_grad_() for t in (x.log_gate, single.salience))
    return Case(type(x)(tokens, gate, x.query_segments, x.key_segments), salience, single.recency.double())


@pytest.mark.parametrize(
    ("causal", "relative", "masked", "kind", "shape"),
    [
        (True, {"horizon": 3}, False, "short", (70, 70, 1, 9)),  # queries, keys, near, kept
        (True, {"horizon": 40, "per_head": True}, True, "one-token", (33, 40, 2, 40)),
        (False, {}, True, "short", (40, 33, 0, 5)),
        (False, {"horizon": 3, "per_head": True}, False, "one-token", (33, 70, 2, 9)),
        (False, {"horizon": 40}, True, "long", (40, 40, 0, 5)),
        (True, {}, False, "short", (1, 1, 3, 4)),
        (True, {"horizon": 3}, True, "short", (70, 70, 0, 0)),
        (False, {}, True, "short", (33, 40, 0, 0)),
    ],
    ids=str,
)
def test_output_and_gradients_equal_the_scores_of_all_pairs(
    causal: bool, relative: dict[str, Any], masked: bool, kind: str, shape: tuple[int, int, int, int]
) -> None:
    queries, keys, near, kept = shape
    case = make(queries, keys, kind, near=near, causal=causal, masked=masked, **relative)
    assert_equal(case, kept=kept, causal=causal)


@pytest.mark.parametrize(("causal", "alike"), [(False, True), (True, False)], ids=["equal", "different"])
def test_keys_are_chosen_from_several_chunks(causal: bool, alike: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where many have the same priority, or a chunk has more keys than are kept."""
    monkeypatch.setattr(fused, "_CHUNK", 64)
    assert_equal(make(70, 70, near=0, causal=causal, masked=True, alike=alike), kept=6, causal=causal)


def test_it_is_refused_in_float64() -> None:
    with pytest.raises(ValueError, match=r"algorithm is 'fused' on cpu in torch\.float64: it must be auto"):
        call(make(12, 12), kept=3, algorithm="fused")


def test_without_a_compiler_the_other_forms_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda")
    attention._has_compiler.cache_clear()
    monkeypatch.setattr(attention, "which", lambda name: name == "gcc")
    assert attention.can_fuse(gpu, torch.bfloat16)
    attention._has_compiler.cache_clear()
    monkeypatch.setattr(attention, "which", lambda name: None)
    with pytest.warns(UserWarning, match="no C compiler"):
        assert not attention.can_fuse(gpu, torch.bfloat16)
    attention._has_compiler.cache_clear()
