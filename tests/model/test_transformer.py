"""The encoder-decoder: causality, padding, and decoding proved equal to training, for every mechanism and mixture."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from scaleformer.model.attention.literature.auxiliary_loss import auxiliary_loss
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from tests.helpers import SEP, make_batch, make_model

SHIPPED = sorted((Path(__file__).parents[2] / "conf" / "model" / "attention").glob("*.yaml"))
MIXED = {
    "mixed": {
        "attention": {"name": "scaleformer", "horizon": 3},
        "sites": {"cross": {"name": "softmax"}, "encoder": {"name": "kernelized"}},
    },
    "scaleformer raw": {"attention": {"name": "scaleformer", "horizon": 3, "relative": "raw"}},
    "scaleformer symmetric": {"attention": {"name": "scaleformer", "horizon": 3, "symmetric": True}},
    "longformer narrow": {
        "attention": {"name": "longformer", "window": 2, "global_tokens": 2, "fallback": {"name": "softmax"}}
    },
    "longformer with all": {
        "attention": {
            "name": "longformer",
            "window": 3,
            "bottom_window": 1,
            "segment_tokens": True,
            "global_projections": True,
            "dilation": 2,
            "dilated_heads": 2,
            "fallback": {"name": "softmax"},
        }
    },
    "transformer_xl short": {
        "attention": {"name": "transformer_xl", "piece": 3, "memory": 2, "fallback": {"name": "softmax"}}
    },
    "compressive short": {
        "attention": {
            "name": "compressive",
            "piece": 2,
            "memory": 2,
            "compressed": 2,
            "rate": 2,
            "fallback": {"name": "softmax"},
        }
    },
    "bigbird small": {
        "attention": {"name": "bigbird", "block": 2, "random_blocks": 3, "fallback": {"name": "softmax"}}
    },
    "block_bert small": {
        "attention": {"name": "block_bert", "block": 2, "shifted": 0.75, "fallback": {"name": "softmax"}}
    },
    "bp_transformer small": {
        "attention": {"name": "bp_transformer", "near": 1, "levels": 4, "fallback": {"name": "softmax"}}
    },
    "sparse strided": {"attention": {"name": "sparse", "stride": 3, "summaries": 1, "fallback": {"name": "softmax"}}},
    "sparse fixed": {
        "attention": {"name": "sparse", "pattern": "fixed", "stride": 3, "summaries": 1},
        "sites": {"cross": {"name": "softmax"}},
    },
    "sparse layers": {
        "attention": {"name": "sparse", "pattern": "fixed", "stride": 3, "summaries": 1, "factors": "layers"},
        "sites": {"cross": {"name": "softmax"}},
    },
    "sparse merged": {
        "attention": {"name": "sparse", "stride": 3, "summaries": 1, "factors": "merged"},
        "sites": {"cross": {"name": "softmax"}},
    },
    "adaptive_span narrow": {
        "attention": {"name": "adaptive_span", "max_span": 8, "ramp": 3, "fallback": {"name": "softmax"}}
    },
    "adaptive_span dynamic": {
        "attention": {
            "name": "adaptive_span",
            "max_span": 8,
            "ramp": 3,
            "dynamic": True,
        },
        "sites": {"cross": {"name": "softmax"}},
    },
    "reformer small": {
        "attention": {"name": "reformer", "chunk": 2, "buckets": 4, "rounds": 2, "fallback": {"name": "softmax"}}
    },
    "routing small": {
        "attention": {"name": "routing", "window": 2, "clusters": 3, "members": 2, "shared": False},
        "sites": {"cross": {"name": "softmax"}},
    },
    "g_transformer one": {"attention": {"name": "g_transformer", "combined": 1}},
    "etc small": {"attention": {"name": "etc", "radius": 2, "horizon": 2, "fallback": {"name": "softmax"}}},
    "softmax learned": {"attention": {"name": "softmax", "positions": "learned"}},
    # options that give these short batches far segments
    "softmax_gated far": {"attention": {"name": "softmax_gated", "reach": 1}},
    "segment_recall far": {"attention": {"name": "segment_recall", "near": 0, "kept": 2}},
    "segment_recall top": {"attention": {"name": "segment_recall", "near": 0, "kept": 2, "document_layers": 1}},
    "segment_recall places": {"attention": {"name": "segment_recall", "near": 1, "kept": 2}, "sinusoids": "segments"},
    "softmax places": {"attention": {"name": "softmax"}, "sinusoids": "segments"},
}
CHOICES = {**{path.stem: {"attention": yaml.safe_load(path.read_text())} for path in SHIPPED}, **MIXED}


@pytest.fixture(params=CHOICES, ids=list(CHOICES))
def model(request: pytest.FixtureRequest) -> Transformer:
    model = make_model(**CHOICES[request.param])
    for name, parameter in model.named_parameters():
        if name.endswith(("salience", "span_weight")):  # initially zero
            torch.nn.init.normal_(parameter)
    return model


def test_no_target_position_sees_a_later_one(model: Transformer) -> None:
    batch = make_batch([([3, 2], [4, 3, 2])])
    before = model.logits(model(batch))
    for position in range(1, batch.target_input.shape[1]):
        changed = batch.target_input.clone()
        changed[0, position] = 5 + (changed[0, position] - 4) % 15  # another token
        after = model.logits(model(replace(batch, target_input=changed)))
        torch.testing.assert_close(after[:, :position], before[:, :position], rtol=0, atol=1e-10)
        assert (after[:, position:] - before[:, position:]).abs().amax() > 1e-6


def test_pads_never_matter_and_a_sentence_alone_equals_it_in_a_batch(model: Transformer) -> None:
    documents = [([5, 3], [4, 4]), ([1], [2]), ([2, 2, 9], [3, 7, 1])]
    together = make_batch(documents)
    logits = model.logits(model(together))
    noisy = replace(
        together,
        source=together.source.masked_fill(~together.source_mask, 11),
        target_input=together.target_input.masked_fill(~together.target_mask, 11),
    )
    noisy_logits = model.logits(model(noisy))
    for row, document in enumerate(documents):
        alone = make_batch([document], seeds=[row])
        length = alone.target_input.shape[1]
        expected = model.logits(model(alone))[0]
        torch.testing.assert_close(logits[row, :length], expected, rtol=0, atol=1e-10)
        torch.testing.assert_close(noisy_logits[row, :length], expected, rtol=0, atol=1e-10)


@torch.no_grad()
def test_steps_give_the_teacher_forced_logits(model: Transformer) -> None:
    batch = make_batch([([5, 3], [4, 30]), ([1], [2]), ([2, 2, 40], [3, 7, 1])])
    expected = model.logits(model(batch))
    beams = 2
    state = model.init_state(model.encode(batch.source, batch.source_mask, batch.source_segments), beams)
    for position in range(batch.target_input.shape[1]):
        tokens = batch.target_input[:, position].repeat_interleave(beams)
        segments = batch.target_segments[:, position].repeat_interleave(beams)
        logits, state = model.step(tokens, segments, state)
        for row in range(len(batch)):
            if batch.target_mask[row, position]:
                for beam in range(beams):
                    found = logits[row * beams + beam].double()
                    torch.testing.assert_close(found, expected[row, position], rtol=1e-6, atol=1e-6)


@torch.no_grad()
def test_places_count_from_the_start_of_a_segment() -> None:
    """A separator is the last token of its source segment, and the first that the decoder reads of a target segment."""
    model = make_model(sinusoids="segments")
    batch = make_batch([([5, 3], [4, 6]), ([1], [2])])
    read: list[torch.Tensor] = []
    for layers in (model.encoder_layers, model.decoder_layers):
        layers[0].register_forward_pre_hook(lambda _, inputs: read.append(inputs[0]))
    model(batch)
    for found, tokens, separators_last in ((read[0], batch.source, True), (read[1], batch.target_input, False)):
        for row, words in zip(found, tokens.tolist(), strict=True):
            place = 0
            for n, word in enumerate(words):
                before = words[n - 1] if n else None
                place = 0 if n == 0 or (before if separators_last else word) == SEP else place + 1
                angles = [place / 10_000 ** (k / 16) for k in range(16)]
                sines = torch.tensor([f(angle) for angle in angles for f in (math.sin, math.cos)])
                expected = model.source_embedding.weight[word] * 32**0.5 + sines
                torch.testing.assert_close(row[n], expected, rtol=1e-5, atol=1e-5, check_dtype=False)


@torch.no_grad()
def test_reorder_continues_the_chosen_hypotheses_and_drops_documents(model: Transformer) -> None:
    batch = make_batch([([5, 3], [4, 3]), ([4], [9]), ([2, 2], [3, 6])])
    prefix = [
        [2, 7, 8, 4],
        [2, 9, 4, 6],
        [2, 5, 5, 5],
        [2, 6, 4, 4],
        [2, 10, 11, 12],
        [2, 12, 4, 9],
    ]  # row = document*2+beam

    def run(rows: list[list[int]], state, positions):  # type: ignore[no-untyped-def]
        logits = None
        for position in positions:
            tokens = torch.tensor([row[position] for row in rows])
            segments = torch.tensor([row[: position + 1].count(4) for row in rows])
            logits, state = model.step(tokens, segments, state)
        return logits, state

    memory = model.encode(batch.source, batch.source_mask, batch.source_segments)
    _, state = run(prefix, model.init_state(memory, 2), range(3))
    chosen = [5, 5, 1, 0]  # document 2 with its second beam twice, then document 0 with its beams exchanged
    state = model.reorder(state, torch.tensor(chosen), torch.tensor([2, 0]))
    logits, _ = run([prefix[n] for n in chosen], state, [3])
    for n, old in enumerate(chosen):
        one = make_batch([([5, 3], [4, 3]), ([4], [9]), ([2, 2], [3, 6])])
        document = old // 2
        alone = model.encode(
            one.source[document : document + 1],
            one.source_mask[document : document + 1],
            one.source_segments[document : document + 1],
        )
        expected, _ = run([prefix[old]], model.init_state(alone, 1), range(4))
        torch.testing.assert_close(logits[n], expected[0], rtol=1e-6, atol=1e-6)


def test_gradient_checkpointing_changes_no_number(model: Transformer) -> None:
    batch = make_batch([([5, 3], [4, 4]), ([1], [2])])
    kept = Transformer(replace(model.config, gradient_checkpointing=True)).double()
    kept.load_state_dict(model.state_dict())
    gradients = []
    for m in (model.train(), kept.train()):
        torch.manual_seed(3)  # some draw features
        (m.logits(m(batch)).square().mean() + auxiliary_loss(m)).backward()
        gradients.append({name: p.grad for name, p in m.named_parameters()})
    for name, gradient in gradients[0].items():
        assert gradient is not None, name
        torch.testing.assert_close(gradients[1][name], gradient)


@torch.no_grad()
def test_a_bf16_model_decodes(model: Transformer) -> None:
    batch = make_batch([([5, 3], [4, 4]), ([1], [2])])
    expected = model.logits(model(batch))
    model = model.bfloat16()
    state = model.init_state(model.encode(batch.source, batch.source_mask, batch.source_segments), 1)
    errors = []
    for position in range(batch.target_input.shape[1]):
        logits, state = model.step(batch.target_input[:, position], batch.target_segments[:, position], state)
        errors.append((logits - expected[:, position])[batch.target_mask[:, position]].abs())
    assert torch.cat(errors).mean() < 0.1 * expected[batch.target_mask].std()


def test_bf16_is_near_fp32_and_trains(model: Transformer) -> None:
    batch = make_batch([([5, 3], [4, 4]), ([1], [2])])
    model = model.float()
    expected = model.logits(model(batch)).detach()
    with torch.autocast("cpu", torch.bfloat16):
        logits = model.logits(model(batch))
        loss = logits.float().square().mean() + auxiliary_loss(model)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    error = (logits.float() - expected)[batch.target_mask].abs().mean()
    assert error < 0.05 * expected[batch.target_mask].std()


def test_sites_may_differ() -> None:
    model = make_model(**MIXED["mixed"])
    names = {
        type(model.encoder[0].attention).__name__,
        type(model.decoder[0].attention).__name__,
        type(model.decoder[0].cross_attention).__name__,
    }
    assert names == {"KernelizedAttention", "ScaleformerAttention", "SoftmaxAttention"}
    assert model.source_positions
    assert model.target_positions


def test_vocabularies_and_embeddings_are_shared_as_configured() -> None:
    shared = make_model()
    assert shared.source_embedding.weight is shared.target_embedding.weight is shared.output_weight
    apart = Transformer(ModelConfig(20, 30, shared_vocabulary=False, width=16, feedforward=16))
    assert apart.source_embedding.weight.shape == (20, 16)
    assert apart.output_weight is apart.target_embedding.weight
    untied = Transformer(ModelConfig(20, 20, tie_embeddings=False, width=16, feedforward=16))
    assert untied.output_weight is not untied.target_embedding.weight


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 30}, "multiple of model.heads"),
        ({"activation": "tanh"}, "activation is 'tanh': it must be one of relu, gelu, silu"),
        ({"dropout": 1.0}, "model.dropout is 1.0"),
        ({"target_vocabulary": 21}, "tokenizer.joint=true"),
        ({"attention": {"name": "nonesuch"}}, "it must be one of scaleformer"),
        (
            {"attention": {"name": "softmax", "horizon": 3}},
            "no option horizon: its options are positions, max_positions",
        ),
        ({"attention": {"name": "alibi", "horizon": 3}}, "no option horizon: it has no options"),
        ({"attention": {"name": "scaleformer", "horizon": 0}}, "at least 1"),
        ({"sites": {"decode": {"name": "softmax"}}}, "the sites are encoder, decoder, cross"),
    ],
    ids=["width", "activation", "dropout", "vocabulary", "attention", "option", "no options", "horizon", "site"],
)
def test_wrong_settings_are_named(changes: dict, message: str) -> None:
    settings = {"source_vocabulary": 20, "target_vocabulary": 20, "width": 32, "feedforward": 16, **changes}
    with pytest.raises(ValueError, match=message):
        Transformer(ModelConfig(**settings))
