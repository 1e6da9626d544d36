"""Transformers of other libraries, built from scratch in our sizes: Hugging Face transformers and JoeyNMT.

Both are optional (`pip install scaleformer[bench]`, and `make bench`); nothing is downloaded.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from scaleformer.batch import Batch
from scaleformer.model.attention.positions import sinusoids
from scaleformer.vocabulary import BOS, EOS, PAD, SEP, UNK
from scripts.bench_training.models import Sizes

MARIAN, T5, JOEYNMT = "Marian (transformers)", "T5 (transformers)", "JoeyNMT"
#: the package of each peer
PACKAGES = {MARIAN: "transformers", T5: "transformers", JOEYNMT: "joeynmt"}

Loss = Callable[[Batch], Tensor]


def peer_versions(packages: Iterable[str] = tuple(PACKAGES.values())) -> dict[str, str]:
    """The versions of those packages that are installed, by default of the peers of training."""
    found = {}
    for package in sorted(set(packages)):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def make_marian(sizes: Sizes, positions: int, dropout: float = 0.1) -> Any:
    """Marian's encoder-decoder: sinusoidal positions, post-norm, fused softmax attention, shared embeddings."""
    library = importlib.import_module("transformers")
    config = library.MarianConfig(
        vocab_size=sizes.vocabulary,
        decoder_vocab_size=sizes.vocabulary,
        max_position_embeddings=8,
        d_model=sizes.width,
        encoder_layers=sizes.layers,
        decoder_layers=sizes.layers,
        encoder_attention_heads=sizes.heads,
        decoder_attention_heads=sizes.heads,
        encoder_ffn_dim=sizes.feedforward,
        decoder_ffn_dim=sizes.feedforward,
        activation_function="relu",
        dropout=dropout,
        scale_embedding=True,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
    )
    model = library.MarianMTModel(config)
    table = sinusoids(torch.arange(positions), sizes.width)  # its own takes milliseconds a position
    table = torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)
    for part in (model.model.encoder, model.model.decoder):
        part.embed_positions.weight = torch.nn.Parameter(table.clone(), requires_grad=False)
    model.config.max_position_embeddings = positions
    return model


def make_t5(sizes: Sizes, positions: int, dropout: float = 0.1) -> Any:
    """T5's encoder-decoder: relative position biases, pre-norm, shared embeddings."""
    library = importlib.import_module("transformers")
    config = library.T5Config(
        vocab_size=sizes.vocabulary,
        d_model=sizes.width,
        d_kv=sizes.width // sizes.heads,
        d_ff=sizes.feedforward,
        num_layers=sizes.layers,
        num_decoder_layers=sizes.layers,
        num_heads=sizes.heads,
        dropout_rate=dropout,
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
    )
    return library.T5ForConditionalGeneration(config)


def transformers_loss(model: Any) -> Loss:
    """Mean cross-entropy of a model of Hugging Face transformers."""

    def loss(batch: Batch) -> Tensor:
        labels = batch.target_output.masked_fill(~batch.target_mask, -100)
        return model(
            input_ids=batch.source,
            attention_mask=batch.source_mask.long(),
            decoder_input_ids=batch.target_input,
            labels=labels,
            use_cache=False,
        ).loss

    return loss


def make_joeynmt(sizes: Sizes, positions: int, dropout: float = 0.1) -> Any:
    """JoeyNMT's transformer: sinusoidal positions, pre-norm, its own softmax attention, all embeddings tied."""
    library = importlib.import_module("joeynmt.model")
    library.logger.setLevel(logging.WARNING)
    positional = importlib.import_module("joeynmt.transformer_layers").PositionalEncoding
    vocabulary_class = importlib.import_module("joeynmt.vocabulary").Vocabulary
    # Its special tokens are ordered differently, with unk before pad: the batches have neither.
    specials = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token="<sep>", lang_tags=[],
        unk_id=PAD, pad_id=UNK, bos_id=BOS, eos_id=EOS, sep_id=SEP,
    )  # fmt: skip
    vocabulary = vocabulary_class([f"t{i}" for i in range(SEP + 1, sizes.vocabulary)], specials)
    side = {
        "type": "transformer",
        "num_layers": sizes.layers,
        "num_heads": sizes.heads,
        "hidden_size": sizes.width,
        "ff_size": sizes.feedforward,
        "dropout": dropout,
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": sizes.width, "scale": True, "dropout": dropout},
    }
    model = library.build_model(
        {
            "encoder": side,
            "decoder": side,
            "tied_embeddings": True,
            "tied_softmax": True,
            "initializer": "xavier_uniform",
            "embed_initializer": "normal",
        },
        vocabulary,
        vocabulary,
    )
    for part in (model.encoder, model.decoder):  # its position table ends at 5,000
        part.pe = positional(sizes.width, max_len=positions)
    model.loss_function = ("crossentropy", 0.0)
    return model


def joeynmt_loss(model: Any) -> Loss:
    """Mean cross-entropy of a JoeyNMT model."""

    def loss(batch: Batch) -> Tensor:
        total = model(
            return_type="loss",
            src=batch.source,
            trg_input=batch.target_input,
            trg=batch.target_output,
            src_mask=batch.source_mask[:, None],
            src_length=batch.source_mask.sum(1),
            trg_mask=batch.target_mask[:, None],
        )[0]
        return total / batch.target_mask.sum()

    return loss
