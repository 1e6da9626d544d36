"""Three methods are enough for an attention of all sites, in training and in decoding."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.search import decode
from scaleformer.model.attention import MECHANISMS
from scaleformer.model.attention.base import Attention
from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.model.attention.state import KeyValueCache, reorder
from scaleformer.model.transformer import Transformer
from scaleformer.ops.segments.layout import SegmentLayout
from scaleformer.vocabulary import EOS
from tests.helpers import make_batch, make_model
from tests.model import test_transformer as whole_model
from tests.model.attention.equation import assert_follows
from tests.trainings import Batches, make_module, make_trainer

CHOICE = {"name": "toy"}


class ToyAttention(Attention):
    """out_i = mean_j (Q_i . K_j) V_j over the keys that i sees."""

    absolute_positions = True

    def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
        key = key.masked_fill(~layout.mask[:, None, :, None], 0.0)
        count = layout.mask.sum(1).view(-1, 1, 1, 1)  # (B, 1, 1, 1)
        scores = query @ key.mT  # (B, H, L, S)
        if self.causal:
            scores, count = scores.tril(), torch.arange(1, query.shape[2] + 1, device=query.device)[:, None]
        return scores @ value / count

    def empty_state(self, rows: int, like: Tensor) -> Tensor:
        return like.new_zeros(rows, self.heads, self.head_width, self.head_width)

    def attend_step(
        self, query: Tensor, key: Tensor, value: Tensor, position: int, segments: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        state = state + key[..., None] * value[..., None, :]  # (B*K, H, d, d)
        return (query[..., None, :] @ state)[..., 0, :] / (position + 1), state


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, "toy", ToyAttention)


@pytest.fixture
def model() -> Transformer:
    return make_model(attention=CHOICE)


@pytest.mark.parametrize("site", ["encoder", "decoder", "cross"])
def test_it_follows_its_equation(site: str) -> None:
    def slow(query: Tensor, key: Tensor, value: Tensor, causal: bool) -> Tensor:
        rows = []
        for i in range(query.shape[1]):
            seen = range(i + 1 if causal else key.shape[1])
            terms = [(query[:, i] * key[:, j]).sum(-1, keepdim=True) * value[:, j] for j in seen]
            rows.append(torch.stack(terms).mean(0))
        return torch.stack(rows, dim=1)

    torch.manual_seed(1)
    assert_follows(ToyAttention(site, 8, 2), slow)


@pytest.mark.parametrize(
    "holds",
    [
        whole_model.test_no_target_position_sees_a_later_one,
        whole_model.test_pads_never_matter_and_a_sentence_alone_equals_it_in_a_batch,
        whole_model.test_steps_give_the_teacher_forced_logits,
        whole_model.test_reorder_continues_the_chosen_hypotheses_and_drops_documents,
        whole_model.test_gradient_checkpointing_changes_no_number,
        whole_model.test_bf16_is_near_fp32_and_trains,
    ],
)
def test_what_holds_of_every_mechanism_holds_of_it(holds, model: Transformer) -> None:
    holds(model)


def test_a_model_of_it_trains_and_translates(tmp_path: Path) -> None:
    module, batches = make_module(attention=CHOICE, label_smoothing=0.0), Batches(1)
    trainer = make_trainer(tmp_path, max_steps=60)
    trainer.validate(module, batches, verbose=False)
    before = float(trainer.callback_metrics["val/loss"])
    trainer.fit(module, Batches(0, list(batches)))
    trainer.validate(module, batches, verbose=False)
    assert trainer.callback_metrics["val/loss"] < 0.1 * before
    (batch,) = batches
    source = batch.source, batch.source_mask, batch.source_segments
    for strategy in ("greedy", "beam"):
        config = DecodingConfig(strategy=strategy, match_segments=False)
        for row, (best, *_) in enumerate(decode(module.model.eval(), *source, config)):
            assert [*best.tokens, EOS] == batch.target_output[row][batch.target_mask[row]].tolist()


def test_an_encoder_needs_one_method_and_decoding_says_what_is_missing() -> None:
    class Mean(Attention):
        def attend(self, query: Tensor, key: Tensor, value: Tensor, layout: SegmentLayout) -> Tensor:
            return value.mean(2, keepdim=True).expand_as(query)

    x = torch.randn(1, 3, 8)
    layout = SegmentLayout(*[torch.zeros(1, 3, dtype=torch.long)] * 2)
    assert Mean("encoder", 8, 2)(x, x, layout).shape == x.shape
    with pytest.raises(NotImplementedError, match="Mean has no empty_state"):
        Mean("decoder", 8, 2).init_state(x, layout.mask, layout.key_segments, 1)
    with pytest.raises(TypeError, match="attend"):
        Attention("encoder", 8, 2)  # type: ignore[abstract]


def test_states_of_every_kind_are_reordered() -> None:
    rows, numbers = torch.tensor([2, 0, 2]), torch.arange(3)
    key = torch.arange(3.0)[:, None, None, None].expand(3, 1, 4, 1).clone()
    state = (numbers, None, 7, (numbers * 10, KeyValueCache(key, key + 1, 2, segments=numbers[:, None])))
    first, none, constant, (second, cache) = reorder(state, rows)
    assert first.tolist() == [2, 0, 2]
    assert (none, constant) == (None, 7)
    assert second.tolist() == [20, 0, 20]
    assert cache.key[:, 0, :2, 0].tolist() == [[2, 2], [0, 0], [2, 2]]
    assert cache.value[:, 0, 1, 0].tolist() == [3, 1, 3]
    assert (cache.length, cache.mask, cache.segments.tolist()) == (2, None, [[2], [0], [2]])


@torch.no_grad()
def test_cross_attention_keeps_what_attend_needs(model: Transformer) -> None:
    """The default state, through `softmax`: beams in different segments, documents exchanged."""
    attention = SoftmaxAttention("cross", 8, 2).double()
    batch = make_batch([([5, 3], [4]), ([2], [1])])
    memory = torch.randn(*batch.source.shape, 8, dtype=torch.double)
    x = torch.randn(4, 8, dtype=torch.double)
    segments = torch.tensor([1, 0, 0, 1])
    state = reorder(attention.init_state(memory, batch.source_mask, batch.source_segments, 4), torch.tensor([1, 0]))
    found, _ = attention.step(x, 3, segments, state)
    layout = SegmentLayout(segments.view(2, 2), batch.source_segments.flip(0), batch.source_mask.flip(0))
    expected = attention(x.view(2, 2, 8), memory.flip(0), layout)
    torch.testing.assert_close(found, expected.view(4, 8))
