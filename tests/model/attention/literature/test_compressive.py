"""Compressed memories against [Rae 2020] algorithm 1 by loops, and the loss against algorithm 2."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scaleformer.model.attention import build_attention
from scaleformer.model.attention.literature.auxiliary_loss import auxiliary_loss
from scaleformer.model.attention.literature.compression import COMPRESSIONS, most_used
from scaleformer.model.attention.literature.compressive import CompressiveAttention
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.training.carried_memory import carrying
from tests.helpers import make_batch, make_model
from tests.model.attention.equation import assert_steps_follow, one_segment
from tests.model.attention.literature.test_transformer_xl import (
    Compress,
    assert_equal_piece_by_piece,
    assert_remembers,
    consecutive_batches,
)

#: piece, memory, compressed, rate
SHAPES = [(2, 2, 3, 2), (2, 4, 1, 2), (4, 2, 5, 2), (3, 0, 2, 3), (3, 3, 4, 1), (4, 4, 9, 2), (6, 3, 2, 3)]
LEARNED = ("convolution", "dilated")

each_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)
each_compression = pytest.mark.parametrize("compression", COMPRESSIONS)


def make(shape: tuple[int, int, int, int], compression: str = "mean", **options: Any) -> CompressiveAttention:
    """A seeded one in float64, its convolutions far from means."""
    torch.manual_seed(1)
    attention = CompressiveAttention("decoder", 8, 2, *shape, compression=compression, **options).double()
    for weight in attention.compress.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return attention


def by_loops(attention: CompressiveAttention) -> Compress:
    r, layers = attention.rate, [layer.weight for layer in attention.compress.layers]

    def compress(states: Tensor, usage: list[float]) -> list[Tensor]:
        n = len(states)
        if attention.compression == "most_used":
            best = sorted(range(n), key=lambda j: -usage[j])[: n // r]
            return [states[j] for j in sorted(best)]
        if attention.compression == "dilated":
            rows = list(states)
            for level, weight in enumerate(layers):
                apart = 2**level
                rows = [
                    weight[..., 1] @ row + (weight[..., 0] @ rows[j - apart] if j >= apart else 0)
                    for j, row in enumerate(rows)
                ]
            return rows[r - 1 :: r]
        groups = [states[g : g + r] for g in range(0, n, r)]
        if attention.compression == "convolution":
            return [sum(layers[0][..., t] @ group[t] for t in range(r)) for group in groups]
        return [g.mean(0) if attention.compression == "mean" else g.amax(0) for g in groups]

    return compress


@each_compression
@each_shape
def test_all_pieces_at_once_equal_one_after_another(shape: tuple[int, int, int, int], compression: str) -> None:
    attention = make(shape, compression, reconstruction=0.0)
    assert_equal_piece_by_piece(attention, by_loops(attention))


@each_compression
@each_shape
@torch.no_grad()
def test_steps_follow_and_their_state_does_not_grow(shape: tuple[int, int, int, int], compression: str) -> None:
    state = assert_steps_follow(make(shape, compression), 23).inner
    piece, memory, compressed, _ = shape
    assert state.key.shape == (2, 2, piece + memory + compressed, 4)


def test_what_is_most_used_is_ranked_by_the_mean_over_the_queries_that_saw_it() -> None:
    usage = torch.tensor([[7.0, 6.0, 3.0, 4.0], [1.0, 1.0, 5.0, 1.0]])  # seen by 6, 5, 4 and 3 queries
    assert most_used(usage, memory=2, rate=2).tolist() == [[1, 3], [2, 3]]


@pytest.mark.parametrize("compression", LEARNED)
def test_convolutions_begin_as_means(compression: str) -> None:
    attention = CompressiveAttention("decoder", 8, 2, compressed=3, rate=4, compression=compression).double()
    states = torch.randn(2, 16, 8, dtype=torch.double)
    found, reach = attention.compress(states), 8 if compression == "dilated" else 4
    torch.testing.assert_close(found[:, -1], states[:, -reach:].mean(1))


def reconstruction(
    attention: CompressiveAttention, x: Tensor, lengths: tuple[int, ...], former: list[Tensor] | None = None
) -> Tensor:
    """Algorithm 2 by loops, over the pieces that a token of x follows; of what leaves, whole groups count."""
    C, M, H, d, r = attention.piece, attention.memory, attention.heads, attention.head_width, attention.rate
    compress, errors = by_loops(attention), [torch.zeros((), dtype=x.dtype)]

    def attend(h: Tensor, states: Tensor) -> Tensor:
        heads = []
        for n in range(H):
            own = slice(n * d, (n + 1) * d)
            q, k, v = (f.weight[own].detach() for f in (attention.query, attention.key, attention.value))
            heads.append(((q @ h) @ (states @ k.T).T / d**0.5).softmax(0) @ (states @ v.T))
        return torch.cat(heads)

    for row, length, before in zip(x.detach(), lengths, former or [x[0, :0].detach()] * len(x), strict=True):
        text, begin = torch.cat([before, row[:length]]), len(before)
        for start in range(begin % C if begin < C else begin - C, len(text) - C, C):
            first, end = max(0, start - M), start - M + C
            extra = max(0, end - first) % r  # tokens of a group that begins before the text
            if end > first + extra:
                old = text[first + extra : end]
                padded = torch.cat([text.new_zeros(-extra % r, text.shape[1]), text[first:end]])
                new = torch.stack(compress(padded, [])[extra > 0 :])
                errors += [(attend(h, old) - attend(h, new)).norm() for h in text[start : start + C]]
    return attention.reconstruction * torch.stack(errors).sum() / max(1, len(errors) - 1)


@pytest.mark.parametrize("compression", ["mean", "max", *LEARNED])
@each_shape
def test_an_example_remembers_those_before_it(shape: tuple[int, int, int, int], compression: str) -> None:
    attention = make(shape, compression, reconstruction=0.0)
    assert_remembers(attention, by_loops(attention))


@pytest.mark.parametrize("compression", LEARNED)
@each_shape
def test_the_loss_sees_what_is_carried(shape: tuple[int, int, int, int], compression: str) -> None:
    attention, counted = make(shape, compression), 0
    for x, mask, examples in consecutive_batches(attention):
        attention(x, x, one_segment(mask))
        loss = attention.auxiliary_loss()
        expected = reconstruction(attention, x, tuple(mask.sum(1).tolist()), [old for _, old in examples])
        torch.testing.assert_close(loss, expected)
        loss.backward()
        assert all(parameter.grad.isfinite().all() for parameter in attention.compress.parameters())
        counted += bool(loss > 0)
    assert counted >= (2 if shape[3] > 1 else 0)


@each_compression
def test_all_but_most_used_are_carried(compression: str) -> None:
    choice = {"name": "compressive", "compression": compression, "fallback": "softmax"}
    model = make_model(attention=choice)
    own = [] if compression == "most_used" else [layer.attention for layer in model.decoder_layers]
    assert carrying(model) == own


@pytest.mark.parametrize("compression", LEARNED)
@each_shape
def test_the_loss_follows_the_algorithm_and_trains_the_compression_alone(
    shape: tuple[int, int, int, int], compression: str
) -> None:
    attention, lengths = make(shape, compression, reconstruction=0.5), (17, 3, 13)
    x = torch.randn(3, 17, 8, dtype=torch.double, requires_grad=True)
    mask = torch.arange(17) < torch.tensor(lengths)[:, None]
    out = attention(x, x, SegmentLayout(mask.long(), mask.long(), mask))
    loss, expected = attention.auxiliary_loss(), reconstruction(attention, x, lengths)
    torch.testing.assert_close(loss, expected)
    leaves = {"x": x, **dict(attention.named_parameters())}
    alone = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, retain_graph=True)
    wanted = torch.autograd.grad(expected, list(attention.compress.parameters()))
    inner = [g for name, g in zip(leaves, alone, strict=True) if name.startswith("compress.")]
    for one, other in zip(inner, wanted, strict=True):
        torch.testing.assert_close(one, other)
        assert shape[3] == 1 or one.abs().amax() > 1e-4
    assert all(g is None for name, g in zip(leaves, alone, strict=True) if not name.startswith("compress."))
    without = torch.autograd.grad(out.sin().sum(), list(leaves.values()), allow_unused=True, retain_graph=True)
    both = torch.autograd.grad(out.sin().sum() + loss, list(leaves.values()), allow_unused=True)
    for name, one, other, inside in zip(leaves, both, without, alone, strict=True):
        if name.startswith("compress."):
            assert other is None  # the output does not train it
            torch.testing.assert_close(one, inside)
        else:
            torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert attention.auxiliary_loss() is None  # nothing new was read


@pytest.mark.parametrize(
    ("compression", "reconstruction"), [("mean", 1.0), ("max", 1.0), ("most_used", 1.0), ("convolution", 0.0)]
)
def test_no_loss_without_something_to_learn_or_with_weight_0(compression: str, reconstruction: float) -> None:
    attention = make((2, 2, 2, 2), compression, reconstruction=reconstruction)
    x = torch.randn(1, 11, 8, dtype=torch.double)
    attention(x, x, one_segment(torch.ones(1, 11, dtype=torch.bool)))
    assert attention.auxiliary_loss() is None


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_loss_of_all_layers_reaches_the_training_of_a_model(checkpointing: bool) -> None:
    """Of the gradients of the whole model it changes those of the compressions alone."""
    options = {"name": "compressive", "piece": 2, "memory": 2, "compressed": 2, "rate": 2, "fallback": "softmax"}
    model = make_model(attention={**options, "compression": "convolution"}, gradient_checkpointing=checkpointing)
    batch = make_batch([([5, 3], [4, 4]), ([1], [2])])
    gradients = []
    for weight in (0.0, 1.0):
        model.train().zero_grad()
        loss = model.logits(model(batch)).square().mean()
        (loss + weight * auxiliary_loss(model)).backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, before in gradients[0].items():
        if ".compress." in name:
            assert not before.any()
            assert gradients[1][name].abs().amax() > 1e-4
        else:
            torch.testing.assert_close(gradients[1][name], before, rtol=0, atol=0)


def test_a_text_whose_pieces_none_follows_gives_no_loss() -> None:
    attention = make((4, 4, 2, 2), "dilated")
    x = torch.randn(1, 8, 8, dtype=torch.double)
    attention(x, x, one_segment(torch.ones(1, 8, dtype=torch.bool)))
    loss = attention.auxiliary_loss()
    loss.backward()
    assert loss == 0
    assert all(p.grad is not None and not p.grad.any() for p in attention.compress.parameters())


@pytest.mark.parametrize(
    ("option", "value"),
    [("piece", 0), ("memory", -1), ("compressed", 0), ("rate", 0), ("compression", "'sum'"), ("reconstruction", -1.0)],
)
def test_wrong_options_are_named(option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"model.attention.{option} is {value}"):
        build_attention({"name": "compressive", option: str(value).strip("'") if option == "compression" else value},
                        "decoder", 16, 2)  # fmt: skip


def test_groups_must_fill_the_pieces() -> None:
    with pytest.raises(ValueError, match="rate is 3: it must divide piece, 6, and memory, 4"):
        CompressiveAttention("decoder", 16, 2, piece=6, memory=4, compressed=2, rate=3)
