"""The kernelized mechanisms against their equations: feature maps, the paper's options, random and softmax features."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.kernelized import KernelizedAttention
from scaleformer.model.attention.literature.efficient import EfficientAttention
from scaleformer.model.attention.literature.performer import PerformerAttention
from scaleformer.model.attention.scaleformer import RAW_FLOOR, ScaleformerAttention
from scaleformer.ops.common.feature_maps import FEATURE_MAPS
from scaleformer.ops.softmax.random_features import orthogonal_projection, random_exponents
from tests.helpers import make_batch, make_model
from tests.model.attention.equation import assert_follows, one_segment, weighted_rows

SITES = ("encoder", "decoder", "cross")
MAPS = {
    "elu1": lambda x: torch.where(x > 0, x + 1, x.exp()),
    "relu": lambda x: x * (x > 0),
    "squared_relu": lambda x: x * x * (x > 0),
    "exp": torch.exp,
}


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", MAPS)
def test_kernelized_is_the_mean_by_products_of_features(name: str, site: str) -> None:
    phi = MAPS[name]

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        return weighted_rows(torch.einsum("hic,hjc->hij", phi(query), phi(key)), value, causal)

    assert_follows(KernelizedAttention(site, 16, 2, feature_map=name), slow)


@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_inverse_and_slope_belong_to_the_map(name: str) -> None:
    phi = FEATURE_MAPS[name]
    values = torch.tensor([1e-4, 0.3, 1.0, 2.5], dtype=torch.double)
    arguments = phi.inverse(values).requires_grad_()
    torch.testing.assert_close(phi(arguments), values)
    (slope,) = torch.autograd.grad(phi(arguments).sum(), arguments)
    torch.testing.assert_close(phi.slope_of_value(values), slope)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("feature_map", ["elu1", "exp"])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "two-sided"])
def test_raw_relative_embeddings_are_added_as_they_are(site: str, feature_map: str, symmetric: bool) -> None:
    torch.manual_seed(4)
    attention = ScaleformerAttention(site, 16, 2, 3, feature_map, relative="raw", symmetric=symmetric)
    assert attention.relative_embedding.shape[1] == (4 if symmetric else 7)
    assert attention.relative_embedding.min() > 0
    with torch.no_grad():
        attention.relative_embedding[0, 1, 2] = -0.5  # as training may leave it
    phi = MAPS[feature_map]

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        scores = torch.einsum("hic,hjc->hij", phi(query), phi(key))
        rows = []
        for i in range(query.shape[1]):
            distance = [max(-3, min(3, j - i)) for j in range(key.shape[1])]
            index = [abs(t) if symmetric else t + 3 for t in distance]
            table = attention.relative_embedding.clamp(min=RAW_FLOOR)[:, index]  # (H, S, d)
            rows.append((phi(query[:, i])[:, None] * table).sum(-1))
        return weighted_rows(scores + torch.stack(rows, dim=1), value, causal)

    assert_follows(attention, slow)


@pytest.mark.parametrize("site", SITES)
def test_performer_is_the_mean_by_random_features(site: str) -> None:
    attention = PerformerAttention(site, 16, 2, features=12).double()

    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        def phi(x: Tensor) -> Tensor:
            x = x / 8**0.25
            return torch.exp(
                torch.einsum("hld,md->hlm", x, attention.projection.double()) - (x * x).sum(-1, keepdim=True) / 2
            )

        return weighted_rows(torch.einsum("hic,hjc->hij", phi(query), phi(key)), value, causal)

    assert_follows(attention, slow)


def test_random_features_give_the_softmax_kernel_on_average() -> None:
    torch.manual_seed(5)
    query, key = (0.5 * torch.randn(20, 8, dtype=torch.double) for _ in range(2))  # the variance grows with their norms
    projection = orthogonal_projection(40_000, 8, seed=1).double()
    found = random_exponents(query, projection).exp() @ random_exponents(key, projection).exp().T / 40_000
    torch.testing.assert_close(found, (query @ key.T / math.sqrt(8)).exp(), rtol=0.05, atol=0.0)
    block = projection[:8] / projection[:8].norm(dim=1, keepdim=True)
    torch.testing.assert_close(block @ block.T, torch.eye(8, dtype=torch.double), atol=1e-6, rtol=0)
    assert projection.norm(dim=1).std() > 0.1


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("name", ["performer", "efficient", "kernelized"])
@pytest.mark.parametrize("kind", ["deviation 4", "deviation 8", "deviation 20", "first key", "rising"])
def test_large_keys_are_as_in_float64(name: str, site: str, kind: str) -> None:
    """Exponents whose exponentials overflow float32: the whole text, its gradients, and step by step."""
    torch.manual_seed(6)
    options = {"feature_map": "exp"} if name == "kernelized" else {}
    attention = build_attention({"name": name, **options}, site, 128, 2).eval()
    query, key, value = (torch.randn(2, 2, 70, 64) for _ in range(3))
    if kind.startswith("deviation"):
        key *= float(kind.split()[1])
    elif kind == "first key":
        key[:, :, 0] *= 12
    else:
        key += torch.linspace(0, 120, 70)[:, None]
    layout = one_segment(torch.ones(2, 70, dtype=torch.bool))
    leaves = [x.requires_grad_() for x in (query, key, value)]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    out, truth = attention.attend(*leaves, layout), _by_exponents(attention, *exact)
    weights = torch.randn_like(out)
    torch.testing.assert_close(out.double(), truth, rtol=1e-3, atol=1e-3)
    found, wanted = (torch.autograd.grad((x * weights).sum(), y) for x, y in ((out, leaves), (truth, exact)))
    for one, other in zip(found, wanted, strict=True):
        assert (one.double() - other).norm() < 1e-2 * other.norm().clamp(min=1)
    with torch.no_grad():
        segments = torch.zeros(2, dtype=torch.long)
        if site == "decoder":
            state, steps = attention.empty_state(2, query), []
            for i in range(70):
                step, state = attention.attend_step(query[:, :, i], key[:, :, i], value[:, :, i], i, segments, state)
                steps.append(step)
            torch.testing.assert_close(torch.stack(steps, dim=2), out, rtol=1e-3, atol=1e-3)
        elif site == "cross":
            state = attention.encoded_state(key, value, layout.mask, layout.key_segments)
            torch.testing.assert_close(attention.attend_encoded(query[:, :, 3], 3, segments, state), out[:, :, 3])


@pytest.mark.parametrize("site", SITES)
def test_a_common_offset_of_a_querys_exponents_cancels(site: str) -> None:
    torch.manual_seed(6)
    attention = build_attention({"name": "scaleformer", "feature_map": "exp"}, site, 16, 2).eval()
    query, key, value = (torch.randn(2, 2, 9, 8) for _ in range(3))
    layout, segments = one_segment(torch.ones(2, 9, dtype=torch.bool)), torch.zeros(2, dtype=torch.long)
    with torch.no_grad():
        out = attention.attend(query, key, value, layout)
        torch.testing.assert_close(attention.attend(query + 300, key, value, layout), out, rtol=1e-3, atol=1e-4)
        if site == "decoder":
            state = attention.empty_state(2, query)
            for i in range(9):
                args = query[:, :, i] + 300, key[:, :, i], value[:, :, i], i, segments, state
                step, state = attention.attend_step(*args)
            torch.testing.assert_close(step, out[:, :, 8], rtol=1e-3, atol=1e-4)
        elif site == "cross":
            state = attention.encoded_state(key, value, layout.mask, layout.key_segments)
            found = attention.attend_encoded(query[:, :, 3] + 300, 3, segments, state)
            torch.testing.assert_close(found, out[:, :, 3], rtol=1e-3, atol=1e-4)


def _by_exponents(attention: KernelizedAttention, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The equation by logarithms, feature by feature and pair by pair: all (B, H, L, d)."""
    past = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
    hidden = ~past if attention.causal else torch.zeros_like(past)
    if isinstance(attention, EfficientAttention):
        shares = key[:, :, None].masked_fill(hidden[..., None], float("-inf")).softmax(3)  # (B, H, L, L, d)
        return torch.einsum("bhic,bhijc,bhje->bhie", query.softmax(-1), shares, value)
    if isinstance(attention, PerformerAttention):
        query, key = (
            x / 64**0.25 @ attention.projection.double().T - (x * x).sum(-1, keepdim=True) / 16 for x in (query, key)
        )
    scores = (query[:, :, :, None] + key[:, :, None]).logsumexp(-1)  # (B, H, L, L)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ value


@pytest.mark.parametrize("checkpointing", [False, True], ids=["plain", "checkpointed"])
def test_random_features_are_drawn_anew_on_schedule_and_from_the_state_alone(checkpointing: bool) -> None:
    choice = {"name": "performer", "features": 8, "redraw_every": 2}
    model = make_model(attention=choice, gradient_checkpointing=checkpointing).train()
    attention = model.encoder_layers[0].attention
    batch = make_batch([([3], [2])])
    drawn = []
    for _ in range(5):
        model.logits(model(batch)).square().mean().backward()
        drawn.append(attention.projection.clone())
    assert [torch.equal(a, b) for a, b in pairwise(drawn)] == [True, False, True, False]
    again = make_model(attention=choice)
    again.load_state_dict(model.state_dict())
    for one in (model, again):
        one.train()
        one.logits(one(batch)).square().mean().backward()
        one.logits(one(batch))
    assert not torch.equal(attention.projection, drawn[-1])
    assert torch.equal(attention.projection, again.encoder_layers[0].attention.projection)
    model.eval()
    model.logits(model(batch))
    assert attention.passes == 6


@pytest.mark.parametrize("site", SITES)
def test_efficient_normalises_queries_over_features_and_keys_over_positions(site: str) -> None:
    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        rows = []
        for i in range(query.shape[1]):
            seen = slice(0, i + 1) if causal else slice(None)
            summaries = functional.softmax(key[:, seen], dim=1).transpose(1, 2) @ value[:, seen]  # (H, d, d)
            rows.append((functional.softmax(query[:, i], dim=-1)[:, None] @ summaries)[:, 0])
        return torch.stack(rows, dim=1)  # (H, L, d)

    assert_follows(EfficientAttention(site, 16, 2), slow)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"name": "kernelized", "feature_map": "mapped"}, "it must be one of elu1, relu, exp, squared_relu"),
        ({"name": "scaleformer", "relative": "plain"}, "it must be one of mapped, raw"),
        ({"name": "performer", "features": 0}, "features is 0"),
        ({"name": "performer", "redraw_every": -1}, "redraw_every is -1"),
    ],
    ids=["feature_map", "relative", "features", "redraw_every"],
)
def test_wrong_options_are_named(choice: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_attention(choice, "encoder", 16, 2)
