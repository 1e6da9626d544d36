"""Writes models with softmax attention for other programs: as a Marian folder of transformers, and for CTranslate2."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from scaleformer.checkpoints.model_file import LoadedModel, new_folder
from scaleformer.checkpoints.public import PARTS
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.model.attention.positions import FORMS
from scaleformer.model.attention.softmax import SoftmaxAttention
from scaleformer.model.transformer import Transformer
from scaleformer.vocabulary import BOS, EOS, SEP, SPECIAL_PIECES, UNK

MOST = 4096  # tokens of the longest text that CTranslate2 then takes
_PADDING = 2  # the id of `<pad>` in a Marian folder, with which its decoder begins


def check_softmax(model: Transformer, path: Path | str, format: str) -> None:
    """Raise ValueError unless the attention of all sites is softmax over absolute positions without parameters."""
    layers = [*model.encoder_layers, *model.decoder_layers]
    attentions = [one for layer in layers for one in layer.modules() if hasattr(one, "site")]
    plain = all(type(one) is SoftmaxAttention and one.positions == "sinusoidal" for one in attentions)
    own = "sinusoids that begin anew with each segment" if plain else model.config.attention["name"]
    if not plain or model.config.sinusoids == "segments":
        raise ValueError(
            f"{path}: {format} has softmax attention with sinusoids alone, this model has {own}: train one with "
            "model/attention=softmax model.sinusoids=auto on its translations and export that"
        )


def write_transformers(loaded: LoadedModel, folder: Path) -> None:
    """A folder that `MarianMTModel` and `MarianTokenizer` read. Raises ValueError where it cannot hold the model,
    and as `new_folder`."""
    config = loaded.model.config
    check_softmax(loaded.model, loaded.path, "transformers' Marian")
    if config.norm != "post" or config.sinusoids != "marian":
        raise ValueError(
            f"{loaded.path}: Marian has model.norm=post and model.sinusoids=marian, this model {config.norm} and "
            f"{config.sinusoids}: train with them, or take format=ctranslate2"
        )
    with new_folder(folder) as temporary:
        _write_marian(loaded, temporary)


def _write_marian(loaded: LoadedModel, folder: Path) -> None:
    config, weights = loaded.model.config, loaded.model.state_dict()
    end, first = (SEP, len(SPECIAL_PIECES)) if config.separate_segments else (EOS, SEP)
    rows = {s: [end, UNK, BOS, *range(first, getattr(config, f"{s}_vocabulary"))] for s in ("source", "target")}
    found: dict[str, Tensor] = {"final_logits_bias": torch.zeros(1, len(rows["target"]))}
    if config.output_bias:
        found["final_logits_bias"] = weights["output_bias"][rows["target"]][None]
    if config.shared_vocabulary:
        found["model.shared.weight"] = weights["source_embedding.weight"][rows["source"]]
    else:
        found["model.encoder.embed_tokens.weight"] = weights["source_embedding.weight"][rows["source"]]
        found["model.decoder.embed_tokens.weight"] = weights["target_embedding.weight"][rows["target"]]
    if not config.tie_embeddings:
        found["lm_head.weight"] = weights["output_weight"][rows["target"]]
    parts = sorted(((ours, theirs) for theirs, ours in PARTS.items()), key=lambda pair: -len(pair[0]))
    for name, tensor in weights.items():
        side, _, rest = name.partition(".")
        if side in ("encoder", "decoder"):
            number, _, rest = rest.partition(".")
            for ours, theirs in parts:
                rest = f".{rest}".replace(f".{ours}.", f".{theirs}.")[1:]
            found[f"model.{side}.layers.{number}.{rest}"] = tensor
            if rest.endswith("_proj.weight"):
                found.setdefault(f"model.{side}.layers.{number}.{rest[:-6]}bias", torch.zeros(len(tensor)))
    save_file(
        {name: tensor.contiguous() for name, tensor in found.items()}, folder / "model.safetensors", {"format": "pt"}
    )
    names = [folder / "vocab.json", folder / "target_vocab.json"]
    for side, path, tokenizer in zip(rows, names, (loaded.source_tokenizer, loaded.target_tokenizer), strict=True):
        if side == "source" or not config.shared_vocabulary:
            _write(path, {_piece(tokenizer, token, end): n for n, token in enumerate(rows[side])})
        (folder / f"{side}.spm").write_bytes(tokenizer.proto)
    _write(folder / "config.json", _marian(loaded.model, *map(len, rows.values())))
    ids: dict[str, Any] = {"eos_token_id": 0, "pad_token_id": _PADDING, "decoder_start_token_id": _PADDING}
    search = loaded.config.get("decoding") or {}
    if search.get("strategy") == "beam":
        ids |= {"num_beams": search.get("beam_size", 5), "length_penalty": search.get("length_penalty", 1.0)}
    _write(folder / "generation_config.json", {**ids, "bad_words_ids": [[_PADDING]], "max_length": 512})
    separate = {"separate_vocabs": not config.shared_vocabulary}
    _write(folder / "tokenizer_config.json", {"tokenizer_class": "MarianTokenizer", **separate})


def write_ctranslate2(loaded: LoadedModel, folder: Path) -> None:
    """A folder that `ctranslate2.Translator` reads, with the tokenizers. Raises ValueError as `check_softmax`
    and `new_folder`, and without the package."""
    check_softmax(loaded.model, loaded.path, "CTranslate2")
    pieces = [
        [tokenizer.piece(n) for n in range(tokenizer.vocab_size)]
        for tokenizer in (loaded.source_tokenizer, loaded.target_tokenizer)
    ]
    spec = ctranslate2_spec(loaded.model, *pieces)
    spec.validate()
    spec.optimize()
    with new_folder(folder) as temporary:
        spec.save(str(temporary))
        for name, tokenizer in (("source", loaded.source_tokenizer), ("target", loaded.target_tokenizer)):
            (temporary / f"{name}.model").write_bytes(tokenizer.proto)


def ctranslate2_spec(model: Transformer, source: Sequence[str], target: Sequence[str]) -> Any:
    """CTranslate2's specification of a model with the pieces of both sides. Raises ValueError without the package."""
    try:
        specs = importlib.import_module("ctranslate2.specs")
    except ModuleNotFoundError as error:
        raise ValueError(
            "format=ctranslate2 needs the package ctranslate2: pip install 'scaleformer[bench]'"
        ) from error
    config, kinds = model.config, specs.common_spec.Activation
    activation = {"relu": kinds.RELU, "gelu": kinds.GELU, "silu": kinds.SWISH}[config.activation]
    layers = config.encoder_layers, config.decoder_layers
    spec = specs.TransformerSpec.from_config(layers, config.heads, pre_norm=config.norm == "pre", activation=activation)
    positions = FORMS[config.sinusoids](torch.arange(MOST), config.width).numpy()

    def linear(there: Any, *ours: Any) -> None:
        there.weight = torch.cat([one.weight for one in ours]).detach().numpy()
        if ours[0].bias is not None:
            there.bias = torch.cat([one.bias for one in ours]).detach().numpy()

    def norm(there: Any, ours: Any) -> None:
        there.gamma, there.beta = ours.weight.detach().numpy(), ours.bias.detach().numpy()

    def attention(there: Any, ours: Any, norm_: Any, cross: bool = False) -> None:
        norm(there.layer_norm, norm_)
        groups = [(ours.query,), (ours.key, ours.value)] if cross else [(ours.query, ours.key, ours.value)]
        for place, group in zip(there.linear, [*groups, (ours.output,)], strict=True):
            linear(place, *group)

    sides = ("encoder", model.source_embedding), ("decoder", model.target_embedding)
    for side, embedding in sides:
        there = getattr(spec, side)
        table = there.embeddings[0] if isinstance(there.embeddings, list) else there.embeddings
        table.weight = embedding.weight.detach().numpy()
        there.scale_embeddings = config.scale_embeddings
        there.position_encodings.encodings = positions
        if config.norm == "pre":
            norm(there.layer_norm, getattr(model, f"{side}_norm"))
        for place, layer in zip(there.layer, getattr(model, f"{side}_layers"), strict=True):
            attention(place.self_attention, layer.attention, layer.attention_norm)
            if side == "decoder":
                attention(place.attention, layer.cross_attention, layer.cross_attention_norm, cross=True)
            norm(place.ffn.layer_norm, layer.feed_forward_norm)
            linear(place.ffn.linear_0, layer.feed_forward.expand)
            linear(place.ffn.linear_1, layer.feed_forward.contract)
    spec.decoder.projection.weight = model.output_weight.detach().numpy()
    if model.output_bias is not None:
        spec.decoder.projection.bias = model.output_bias.detach().numpy()
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    spec.config.bos_token, spec.config.unk_token, spec.config.decoder_start_token = "<s>", "<unk>", "<s>"
    spec.config.eos_token = SPECIAL_PIECES[SEP if config.separate_segments else EOS]
    spec.config.add_source_eos = True
    return spec


def _marian(model: Transformer, source: int, target: int) -> dict[str, Any]:
    config = model.config
    sides: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        sides |= {f"{side}_layers": getattr(config, f"{side}_layers"), f"{side}_attention_heads": config.heads}
        sides |= {f"{side}_ffn_dim": config.feedforward}
    return {
        "model_type": "marian", "architectures": ["MarianMTModel"], "d_model": config.width, **sides,
        "dropout": config.dropout, "activation_function": {"silu": "swish"}.get(config.activation, config.activation),
        "vocab_size": source, "decoder_vocab_size": target,
        "share_encoder_decoder_embeddings": config.shared_vocabulary, "tie_word_embeddings": config.tie_embeddings,
        "scale_embedding": config.scale_embeddings, "max_position_embeddings": 1024, "eos_token_id": 0,
        "forced_eos_token_id": None, "pad_token_id": _PADDING, "decoder_start_token_id": _PADDING,
    }  # fmt: skip


def _piece(tokenizer: Tokenizer, token: int, end: int) -> str:
    """Its name in a Marian vocabulary."""
    names = {number: f">>{name}<<" for name, number in tokenizer.tags.items()} if tokenizer.imported else {}
    return {end: "</s>", BOS: "<pad>"}.get(token) or names.get(token) or tokenizer.piece(token)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
