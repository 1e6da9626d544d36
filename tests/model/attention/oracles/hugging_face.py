"""Mechanisms of Hugging Face transformers, with the weights of ours. C length, M memory of a piece."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from scaleformer.ops.segments.layout import SegmentLayout
from tests.model.attention.oracles.comparison import additive, oracle, seen_by

Module = Any  # an attention: each case knows which


@oracle("softmax", "transformers", "`MarianAttention`, eager", "encoder decoder cross")
def marian(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    from transformers.models.marian.modeling_marian import MarianAttention, MarianConfig

    config = MarianConfig(attn_implementation="eager")
    peer = MarianAttention(x.shape[2], attention.heads, bias=False, config=config).double()
    names = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
    weights = {f"{theirs}.weight": getattr(attention, own).weight for theirs, own in names.items()}
    mask = additive(seen_by(attention, x, layout))
    others = {"attention_mask": mask, "key_value_states": None if memory is x else memory}
    return functional_call(peer, weights, (x,), others)[0]


@oracle(
    "shaw",
    "transformers",
    "`Wav2Vec2BertSelfAttention`, `relative_key`, one head",
    "encoder decoder",
    heads=1,
    options={"horizon": 3},
)
def shaw(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertConfig, Wav2Vec2BertSelfAttention

    config = Wav2Vec2BertConfig(
        hidden_size=x.shape[2],
        num_attention_heads=1,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=3,
        right_max_position_embeddings=3,
        attention_dropout=0.0,
        attn_implementation="eager",
    )
    peer = Wav2Vec2BertSelfAttention(config).double()
    names = {"linear_q": "query", "linear_k": "key", "linear_v": "value", "linear_out": "output"}
    weights = {f"{theirs}.weight": getattr(attention, own).weight for theirs, own in names.items()}
    weights |= {f"{theirs}.bias": torch.zeros(x.shape[2], dtype=torch.double) for theirs in names}
    weights["distance_embedding.weight"] = attention.relative_embedding[0]
    return functional_call(peer, weights, (x,), {"attention_mask": additive(seen_by(attention, x, layout))})[0]


@oracle(
    "longformer",
    "transformers",
    "`LongformerSelfAttention`, one global token with projections of its own",
    "encoder",
    tolerance=1e-5,
    options={"window": 2, "global_tokens": 1, "global_projections": True},
)
def longformer(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    from transformers.models.longformer.modeling_longformer import LongformerConfig, LongformerSelfAttention

    config = LongformerConfig(hidden_size=x.shape[2], num_attention_heads=attention.heads, attention_window=[4])
    peer = LongformerSelfAttention(config, 0).double().eval()
    weights = {
        f"{name}{kind}.weight": getattr(attention, f"global_{name}" if kind else name).weight
        for name in ("query", "key", "value")
        for kind in ("", "_global")
    }
    weights |= {name.replace("weight", "bias"): x.new_zeros(x.shape[2]) for name in weights}
    marks = torch.where(layout.mask, 0.0, -10000.0).double()  # (B, L)
    marks[:, 0] = 10000.0
    told = {"attention_mask": marks, "is_index_masked": marks < 0, "is_index_global_attn": marks > 0}
    out = functional_call(peer, weights, (x,), {**told, "is_global_attn": True})[0]
    return out @ attention.output.weight.T


@oracle(
    "transformer_xl",
    "transformers",
    "`XLNetRelativeAttention`, piece by piece with `mems`",
    "decoder",
    tolerance=1e-6,
    options={"piece": 4, "memory": 3},
)
@oracle(
    "compressive",
    "transformers",
    "`XLNetRelativeAttention`, piece by piece, means in its `mems`",
    "decoder",
    tolerance=1e-6,
    options={"piece": 4, "memory": 2, "compressed": 3, "rate": 2},
)
def xlnet(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    from transformers.models.xlnet.modeling_xlnet import XLNetConfig, XLNetModel, XLNetRelativeAttention

    D, H = x.shape[2], attention.heads
    peer = XLNetRelativeAttention(XLNetConfig(d_model=D, n_head=H, d_inner=D, dropout=0.0)).double()
    peer.layer_norm = torch.nn.Identity()
    apart = [*range(0, D, 2), *range(1, D, 2)]  # its sines come before its cosines
    inward = {"q": attention.query, "k": attention.key, "v": attention.value, "r": attention.position}
    weights = {name: f.weight.T.reshape(D, H, -1) for name, f in inward.items()}
    weights |= {"r": weights["r"][apart], "o": attention.output.weight.view(D, H, -1)}
    weights |= {"r_w_bias": attention.content_bias, "r_r_bias": attention.position_bias}
    rates = 10000.0 ** (-torch.arange(0, D, 2).double() / D)
    outputs = []
    for start in range(0, x.shape[1], attention.piece):
        left = max(0, start - attention.memory)  # what is before has left the memory
        old = x[:, : left - left % attention.rate] if attention.compressed else x[:, :0]
        means = old.unflatten(1, (-1, attention.rate)).mean(2)[
            :, max(0, left // attention.rate - attention.compressed) :
        ]
        mems = torch.cat([means, x[:, left:start]], dim=1).detach().transpose(0, 1)  # (M, B, D)
        h = x[:, start : start + attention.piece].transpose(0, 1)  # (C, B, D)
        total = len(mems) + len(h)
        hidden = torch.ones(len(h), total).triu(len(mems) + 1)[:, :, None, None].double()  # (C, M + C, 1, 1)
        r = XLNetModel.positional_embedding(torch.arange(total, -1, -1).double(), rates, len(x))  # (M + C + 1, B, D)
        out, _ = functional_call(peer, weights, (h, None, hidden, None, r, None, mems))
        outputs.append(out - h)  # it adds the residual
    return torch.cat(outputs).transpose(0, 1)
