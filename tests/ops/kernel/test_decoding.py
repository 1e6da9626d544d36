"""Decoding token by token gives the results of the whole sequence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.ops import CausalState, causal_init, causal_step, cross_state, cross_step, relative_kernel_attention
from scaleformer.ops.kernel.decoding import values_with_ones
from tests.ops.inputs import Inputs, make_inputs
from tests.ops.kernel.naive import dense_attention, recurrent_attention

RELATIVE = {
    "no-rel": {},
    "shared-R1": {"horizon": 1},
    "shared-R3": {"horizon": 3},
    "per-head-R4": {"horizon": 4, "per_head": True},
    "per-head-R20": {"horizon": 20, "per_head": True},
}
each_relative = pytest.mark.parametrize("relative", RELATIVE.values(), ids=RELATIVE.keys())


def empty_state(x: Inputs, **options: Any) -> CausalState:
    batch, heads, _, d = x.q.shape
    return causal_init(batch, heads, d, x.v.shape[3], x.rel, dtype=torch.float64, **options)


def decode(
    x: Inputs, state: CausalState, first: int, last: int, feature_map: str = "elu1"
) -> tuple[Tensor, CausalState]:
    outputs = []
    for i in range(first, last):
        out, state = causal_step(x.q[:, :, i], x.k[:, :, i], x.v[:, :, i], x.rel, state, feature_map)
        outputs.append(out)
    return torch.stack(outputs, dim=2), state


@each_relative
@pytest.mark.parametrize("feature_map", ["elu1", "exp"])
def test_steps_equal_the_whole(relative: dict[str, Any], feature_map: str) -> None:
    x = make_inputs(15, 15, **relative).detached()
    out, _ = decode(x, empty_state(x, feature_map=feature_map), 0, 15, feature_map)
    torch.testing.assert_close(out, dense_attention(x.q, x.k, x.v, x.rel, causal=True, feature_map=feature_map))


@each_relative
@pytest.mark.parametrize("length", [1, 3, 4, 15])
def test_final_state(relative: dict[str, Any], length: int) -> None:
    """After these steps the state is that of the recurrence, and its ring has the last R tokens."""
    x = make_inputs(length, length, **relative).detached()
    _, stepped = decode(x, empty_state(x), 0, length)
    _, memory = recurrent_attention(x.q, x.k, x.v, x.rel)
    torch.testing.assert_close(stepped.memory, memory)
    assert stepped.position == length
    assert (stepped.ring is None) == (x.rel is None)
    if stepped.ring is not None:
        horizon = stepped.ring.shape[2]
        kept = range(max(length - horizon, 0), length)
        last = values_with_ones(x.v, None)[:, :, kept.start :]
        torch.testing.assert_close(stepped.ring[:, :, [i % horizon for i in kept]], last)


@each_relative
def test_reorder(relative: dict[str, Any]) -> None:
    """Rows that continue other rows, as in beam search: their states move along."""
    x = make_inputs(15, 15, batch=3, **relative).detached()
    index = torch.tensor([2, 0, 0, 1])
    _, state = decode(x, empty_state(x), 0, 7)
    state = state.reorder(index)
    q, k, v = (t[:4].repeat(2, 1, 1, 1)[:4] for t in (x.q, x.k, x.v))
    mixed = [torch.cat([old[index, :, :7], new[:, :, 7:]], dim=2) for old, new in ((x.q, q), (x.k, k), (x.v, v))]
    continued = Inputs(*mixed, x.rel, None)
    out, _ = decode(continued, state, 7, 15)
    torch.testing.assert_close(out, dense_attention(*mixed, x.rel, causal=True)[:, :, 7:])


def test_the_state_does_not_grow() -> None:
    x = make_inputs(40, 40, horizon=3).detached()
    _, early = decode(x, empty_state(x), 0, 2)
    assert early.ring is not None
    sizes = early.memory.shape, early.ring.shape
    _, late = decode(x, early, 2, 40)
    assert late.ring is not None
    assert (late.memory.shape, late.ring.shape) == sizes


@each_relative
@pytest.mark.parametrize("keys", [1, 6, 15])
def test_cross_steps_equal_the_whole(relative: dict[str, Any], keys: int) -> None:
    """Each hypothesis of a document is a query at the same position; positions run far past the end of the source."""
    x = make_inputs(50, keys, masked=True, batch=3, **relative).detached()
    beams = torch.randn(3, 2, 4, 50, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    state = cross_state(x.k, x.v, x.rel, x.key_mask)
    whole = [dense_attention(beams[:, :, beam], x.k, x.v, x.rel, key_mask=x.key_mask) for beam in range(4)]
    expected = torch.stack(whole, dim=2)  # (B, H, K, L, e)
    for position in range(50):
        out = cross_step(beams[:, :, :, position], position, x.rel, state)
        torch.testing.assert_close(out, expected[:, :, :, position])


@each_relative
def test_select_documents(relative: dict[str, Any]) -> None:
    x = make_inputs(4, 9, batch=3, **relative).detached()
    documents = torch.tensor([2, 0])
    state = cross_state(x.k, x.v, x.rel).reorder(documents)
    expected = dense_attention(x.q[documents], x.k[documents], x.v[documents], x.rel)
    for position in range(4):
        out = cross_step(x.q[documents, :, position : position + 1], position, x.rel, state)
        torch.testing.assert_close(out, expected[:, :, position : position + 1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_arguments(dtype: torch.dtype) -> None:
    """The state stays in float32 and the sums with it."""
    x = make_inputs(600, 600, horizon=4, batch=1, d=16, e=4).detached()
    low = [t.to(dtype) for t in x.leaves]
    low[2] = low[2] + 1
    state = causal_init(1, 2, 16, 4, low[3])
    source = cross_state(low[1], low[2], low[3])
    assert state.memory.dtype == source.memory.dtype == torch.float32
    exact = [t.double() for t in low]
    causal, cross = (relative_kernel_attention(*exact, causal=causal) for causal in (True, False))
    tolerance = 2 * torch.finfo(dtype).eps
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        for i in range(600):
            out, state = causal_step(low[0][:, :, i], low[1][:, :, i], low[2][:, :, i], low[3], state)
            assert out.dtype == dtype
            torch.testing.assert_close(out.double(), causal[:, :, i], rtol=tolerance, atol=tolerance)
        out = cross_step(low[0][:, :, 599:], 599, low[3], source)
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), cross[:, :, 599:], rtol=tolerance, atol=tolerance)


def test_wrong_arguments() -> None:
    x = make_inputs(4, 4, horizon=2).detached()
    assert x.rel is not None
    token = x.q[:, :, 0], x.k[:, :, 0], x.v[:, :, 0]
    with pytest.raises(ValueError, match="rel is None: the state was made with a table of horizon 2"):
        causal_step(*token, None, empty_state(x))
    for place, name in enumerate("qkv"):
        wrong = [t[:1] if n == place else t for n, t in enumerate(token)]
        with pytest.raises(ValueError, match=rf"{name} has shape \(1, 2, \d\): the state was made for \(2, 2, \d\)"):
            causal_step(*wrong, x.rel, empty_state(x))
    with pytest.raises(ValueError, match=r"q has shape \(1, 2, 4, 4\): the state was made for \(2, 2, K, 4\)"):
        cross_step(x.q[:1], 0, x.rel, cross_state(x.k, x.v, x.rel))
    with pytest.raises(ValueError, match="rel is a table of horizon 1: the state was made with a table of horizon 2"):
        cross_step(x.q, 0, x.rel[1:4], cross_state(x.k, x.v, x.rel))
    with pytest.raises(ValueError, match=r"rel has shape \(5, 3\)"):
        causal_init(2, 2, 4, 3, x.rel[:, :3])
    with pytest.raises(ValueError, match=r"v has shape \(2, 2, 3, 3\).*\(2, 2, 4, e\)"):
        cross_state(x.k, x.v[:, :, 1:])
    with pytest.raises(ValueError, match=r"k has shape \(2, 4, 4\)"):
        cross_state(x.k[0], x.v)
