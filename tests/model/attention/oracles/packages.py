"""Small packages of one mechanism each, with the weights of ours."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from scaleformer.ops.segments.layout import SegmentLayout
from tests.model.attention.oracles.comparison import additive, heads_of, oracle, output_of, seen_by

Module = Any  # an attention: each case knows which


@oracle("rotary", "rotary-embedding-torch", "`RotaryEmbedding`", "encoder decoder", tolerance=1e-6)
def rotary(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    from rotary_embedding_torch import RotaryEmbedding

    query, key, value = heads_of(attention, x, memory)
    turn = RotaryEmbedding(attention.head_width).double().rotate_queries_or_keys
    mask = seen_by(attention, x, layout)
    return output_of(attention, functional.scaled_dot_product_attention(turn(query), turn(key), value, mask))


@oracle("alibi", "x-transformers", "`AlibiPositionalBias`", "encoder decoder")
def alibi(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    from x_transformers.x_transformers import AlibiPositionalBias

    bias = AlibiPositionalBias(attention.heads)(x.shape[1], x.shape[1]) + additive(seen_by(attention, x, layout))
    return output_of(attention, functional.scaled_dot_product_attention(*heads_of(attention, x, memory), bias))


def draw_projection(attention: Module, generator: np.random.RandomState) -> None:
    attention.projection = torch.from_numpy(generator.standard_normal(attention.projection.shape))


@oracle(
    "performer",
    "performer-pytorch",
    "`softmax_kernel` and its linear attention, without its epsilons",
    "encoder decoder cross",
    pads=False,
    prepare=draw_projection,
    options={"features": 6},
)
def performer(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    from performer_pytorch.performer_pytorch import softmax_kernel

    query, key, value = heads_of(attention, x, memory)
    options = {"projection_matrix": attention.projection, "eps": 0.0}
    query, key = softmax_kernel(query, is_query=True, **options), softmax_kernel(key, is_query=False, **options)
    return output_of(attention, linear_attention(attention, query, key, value))


@oracle(
    "kernelized",
    "performer-pytorch",
    "its linear attention, of `torch.nn.functional.elu` plus 1",
    "encoder decoder cross",
    pads=False,
)
def kernelized(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    query, key, value = heads_of(attention, x, memory)
    return output_of(attention, linear_attention(attention, functional.elu(query) + 1, functional.elu(key) + 1, value))


def linear_attention(attention: Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    from performer_pytorch.performer_pytorch import causal_linear_attention_noncuda, linear_attention

    if not attention.causal:
        return linear_attention(query, key, value)
    return causal_linear_attention_noncuda(query, key, value, eps=0.0)


@oracle("efficient", "linear-attention-transformer", "`linear_attn`, times the root of d", "encoder cross")
def efficient(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    from linear_attention_transformer.linear_attention_transformer import linear_attn

    query, key, value = (y.clone() for y in heads_of(attention, x, memory))  # it masks in place
    out = linear_attn(query, key, value, layout.mask) * attention.head_width**0.5
    return output_of(attention, out)


@oracle(
    "linformer",
    "linformer",
    "`LinformerSelfAttention`",
    "encoder cross",
    pads=False,
    options={"rank": 5, "max_length": 20},
)
def linformer(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    from linformer import LinformerSelfAttention

    peer = LinformerSelfAttention(x.shape[2], seq_len=20, k=5, heads=attention.heads).double()
    names = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out": "output"}
    weights = {f"{theirs}.weight": getattr(attention, own).weight for theirs, own in names.items()}
    weights |= {"proj_k": attention.key_projection.T, "proj_v": attention.value_projection.T}
    weights["to_out.bias"] = torch.zeros(x.shape[2], dtype=torch.double)
    return functional_call(peer, weights, (x,), {"context": None if memory is x else memory})


def draw_rotations(attention: Module, generator: np.random.RandomState) -> None:
    """One for all heads, as the package has it."""
    attention.rotations.copy_(torch.from_numpy(generator.standard_normal(attention.rotations.shape[1:])))


# Half of the text is a chunk there, and sees the one before; so a chunk of ours that is the whole text sees as much: in
# the encoder with one round, for its first chunk looks back to the last of all rounds.
LSH = {"pads": False, "prepare": draw_rotations}


@oracle(
    "reformer",
    "reformer-pytorch",
    "`LSHAttention`, one round of two buckets",
    "encoder",
    **LSH,
    options={"chunk": 12, "buckets": 2, "rounds": 1},
)
@oracle(
    "reformer",
    "reformer-pytorch",
    "`LSHAttention`, three rounds of two buckets",
    "decoder",
    tolerance=1e-6,
    **LSH,
    options={"chunk": 12, "buckets": 2, "rounds": 3},
)
def reformer(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    from reformer_pytorch import LSHAttention

    options = {"causal": attention.causal, "attend_across_buckets": False, "allow_duplicate_attention": False}
    peer = LSHAttention(bucket_size=x.shape[1] // 2, n_hashes=attention.rounds, **options).eval()
    query, _, value = (y.flatten(0, 1) for y in heads_of(attention, x, memory))  # (B H, L, d)
    rotations = attention.rotations[0].transpose(0, 1)[None]  # (1, d, rounds, 1)
    with mock.patch.object(torch, "randn", return_value=rotations):
        out, *_ = peer(query, value)
    return output_of(attention, out.unflatten(0, (len(x), attention.heads)))


@oracle(
    "longformer",
    "local-attention",
    "`LocalAttention`, exact window, no global token",
    "decoder",
    options={"window": 3, "global_tokens": 0},
)
def local(attention: Module, x: Tensor, memory: Tensor, layout: SegmentLayout) -> Tensor:
    from local_attention import LocalAttention

    peer = LocalAttention(3, causal=True, exact_windowsize=True, use_rotary_pos_emb=False)
    return output_of(attention, peer(*heads_of(attention, x, memory), mask=layout.mask))
