"""Reads models as Marian itself saves them, such as OPUS-MT's own downloads: decoder.yml, .npz, vocabularies.

Weights become those of transformers for the same model. Its last row of zeros is `<pad>`, with which decoding begins.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from scaleformer.data.tokenizer_extension import parsed

DECODER = "decoder.yml"
SETTINGS, BIAS = "special:model.yml", "decoder_ff_logit_out_b"
#: what a model must say that its settings are, in words of Marian, where it says so at all
_FIXED = {
    "type": "transformer",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-ffn-depth": "2",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-train-position-embeddings": "false",
    "transformer-no-projection": "false",
    "layer-normalization": "false",
    "right-left": "false",
    "ulr": "false",
    "tied-embeddings": "true",
}
_LAYER = re.compile(r"(encoder|decoder)_l(\d+)_(.+)")
_KINDS = {"W": "weight", "b": "bias", "scale": "weight", "bias": "bias"}
_NAMES = {"self": "self_attn", "context": "encoder_attn", "ffn": "final"}


def is_native(folder: Path) -> bool:
    """Whether a folder has this layout."""
    return (folder / DECODER).is_file() and not (folder / "config.json").is_file()


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor], list[Path], list[Path]]:
    """The config.json and the weights that transformers would have, the vocabulary of each side, and all files read.
    Raises ValueError for settings, weights and files that cannot be read."""
    decoder = _yaml((folder / DECODER).read_text(encoding="utf-8"), DECODER)
    models, vocabularies = decoder.get("models") or [], decoder.get("vocabs") or []
    if len(models) != 1 or len(vocabularies) != 2:
        raise ValueError(f"{DECODER} names {len(models)} models and {len(vocabularies)} vocabularies: 1 and 2 are read")
    files = [folder / Path(name).name for name in (*models, *vocabularies)]
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file.name} of {DECODER} is missing: copy all files of the model")
    try:
        with np.load(files[0]) as content:
            arrays = dict(content)
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{files[0].name} is cut or damaged: {error}") from error
    settings = _yaml(bytes(arrays.pop(SETTINGS)).rstrip(b"\0").decode(), SETTINGS)
    shared = settings.get("tied-embeddings-all") == "true"
    settings["tied-embeddings"] = "true" if shared else settings.get("tied-embeddings", "true")
    for name, wanted in _FIXED.items():
        if (given := str(settings.get(name, wanted))) != wanted:
            raise ValueError(f"its {name} is {given or 'empty'}: {wanted or 'empty'} is read")
    weights = dict(_renamed(arrays, shared))
    config = {
        "model_type": "marian",
        "share_encoder_decoder_embeddings": shared,
        "encoder_layers": int(settings["enc-depth"]),
        "decoder_layers": int(settings["dec-depth"]),
        "d_model": int(settings["dim-emb"]),
        "activation_function": settings["transformer-ffn-activation"],
        "scale_embedding": True,
        "num_beams": int(decoder.get("beam-size", 1)),
        "length_penalty": float(decoder.get("normalize", 0)),
    }
    for side in ("encoder", "decoder"):
        config |= {f"{side}_ffn_dim": int(settings["transformer-dim-ffn"])}
        config |= {f"{side}_attention_heads": int(settings["transformer-heads"])}
    return config, weights, files[1:], [folder / DECODER, *files]


def numbers_of(path: Path) -> dict[str, int]:
    """The ids of the pieces of a vocabulary, YAML or a sentencepiece model, `<pad>` last."""
    if path.suffix == ".spm":
        numbers = {one.piece: n for n, one in enumerate(parsed(path.read_bytes()).pieces)}
    else:
        numbers = {str(piece): int(n) for piece, n in _yaml(path.read_text(encoding="utf-8"), path.name).items()}
    return {**numbers, "<pad>": len(numbers)}


def _renamed(arrays: Mapping[str, np.ndarray], shared: bool) -> Iterator[tuple[str, Tensor]]:
    """The weights by the names of transformers. Raises ValueError for those that are missing or unknown."""
    embeddings = {"Wemb": "model.shared.weight"}
    if not shared:
        embeddings = {f"{side}_Wemb": f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
    for name in (*embeddings, BIAS):
        if name not in arrays:
            raise ValueError(f"its weights have no {name}")
    for name, array in arrays.items():
        tensor = torch.from_numpy(array).float()
        found = _LAYER.fullmatch(name)
        part = found and _part(found[3])
        if name in embeddings:
            yield embeddings[name], torch.cat([tensor, torch.zeros(1, tensor.shape[1])])
        elif name == BIAS:
            yield "final_logits_bias", torch.cat([tensor, torch.zeros(1, 1)], 1)
        elif found is None or part is None:
            raise ValueError(f"its weights have {name}, which no transformer of OPUS-MT has")
        else:
            here = f"model.{found[1]}.layers.{int(found[2]) - 1}.{part}"
            yield here, tensor.flatten() if 1 in tensor.shape else tensor.T.contiguous()


def _part(name: str) -> str | None:
    """A part of a layer as transformers calls it; None if there is none."""
    if found := re.fullmatch(r"(self|context)_([Wb])([qkvo])", name):
        return f"{_NAMES[found[1]]}.{'out' if found[3] == 'o' else found[3]}_proj.{_KINDS[found[2]]}"
    if found := re.fullmatch(r"(self|context|ffn)_(?:Wo|ffn)_ln_(scale|bias)", name):
        return f"{_NAMES[found[1]]}_layer_norm.{_KINDS[found[2]]}"
    found = re.fullmatch(r"ffn_([Wb])([12])", name)
    return f"fc{found[2]}.{_KINDS[found[1]]}" if found else None


def _yaml(text: str, name: str) -> dict[str, Any]:
    """All values as text: `null` and `yes` are pieces."""
    try:
        found = yaml.load(text, getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    except yaml.YAMLError as error:
        raise ValueError(f"{name} is not readable as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{name}: wanted names and values")
    return found
