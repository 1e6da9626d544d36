"""Reads folders of Hugging Face transformers: Marian (OPUS-MT), M2M100 and NLLB-200. No code of theirs is run."""

from __future__ import annotations

import json
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from scaleformer.checkpoints.marian_npz import is_native
from scaleformer.checkpoints.marian_npz import read as read_native
from scaleformer.checkpoints.public_vocabularies import Vocabularies, m2m100, marian, native_marian, nllb
from scaleformer.vocabulary import PAD, SEP

CONFIG, INDEX = "config.json", ".index.json"
#: what a folder may have, as patterns of the Hub
FILES = (CONFIG, "*.json", "*.safetensors", "pytorch_model*.bin", "*.spm", "*.model")
READ = "scaleformer reads Marian (OPUS-MT), M2M100 and NLLB-200"
#: the output bias of tokens that the model cannot write: training raises it where they occur
NEVER = -30.0
#: that of a token which has no share in the softmax at all: Marian has no `<pad>` there
UNWRITTEN = -1e4
#: settings of transformers' search that ours has not, with what they are without a word
_UNREAD = {
    "do_sample": False, "early_stopping": False, "no_repeat_ngram_size": 0, "encoder_no_repeat_ngram_size": 0,
    "repetition_penalty": 1.0, "min_length": 0, "num_beam_groups": 1,
}  # fmt: skip
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_python": "gelu", "silu": "silu", "swish": "silu"}
#: the parts of a layer, there and here
PARTS = {
    "self_attn_layer_norm": "attention_norm",
    "encoder_attn_layer_norm": "cross_attention_norm",
    "self_attn": "attention",
    "encoder_attn": "cross_attention",
    "q_proj": "query",
    "k_proj": "key",
    "v_proj": "value",
    "out_proj": "output",
    "fc1": "feed_forward.expand",
    "fc2": "feed_forward.contract",
    "final_layer_norm": "feed_forward_norm",
}
_LANGUAGE = re.compile("(?!None)[a-z]{2,3}")
_LAYER = re.compile(r"model\.(encoder|decoder)\.layers\.(\d+)\.(.+)\.(weight|bias)")


class Public(NamedTuple):
    """The package of a model (`model_file.PACKAGE`, its tokenizers as bytes), its weights, and the files read."""

    package: dict[str, Any]
    weights: dict[str, Tensor]
    files: list[Path]


def is_public(folder: Path) -> bool:
    """Whether a folder has this layout."""
    return ((folder / CONFIG).is_file() or is_native(folder)) and not (folder / "config.yaml").is_file()


def read(folder: Path, dtype: torch.dtype = torch.float32) -> Public:
    """A model with our names and order of tokens, its weights in `dtype`: those that have it are mapped from the
    files, without a copy. Raises ValueError in one line for a folder that cannot be read."""
    native = is_native(folder)
    config = {"model_type": "marian"} if native else read_json(folder / CONFIG)
    kind = config.get("model_type")
    if config.get("auto_map"):
        raise ValueError(f"{folder}: the model brings code of its own (auto_map), which scaleformer never runs; {READ}")
    if kind not in ("marian", "m2m_100"):
        raise ValueError(f"{folder}: its architecture is {kind or 'not named in config.json'}: {READ}")
    try:
        if native:
            config, found, given, files = read_native(folder)
        else:
            found, files = _weights(folder)
            files = [folder / CONFIG, *files]
        search = _search(folder, config)
        settings = _settings(config)
        sizes = [len(found[name]) for name in _embeddings(config)]
        if native:
            vocabularies = native_marian(folder, settings["shared_vocabulary"], given, *sizes)
        else:
            read_vocabularies = marian if kind == "marian" else m2m100 if (folder / "vocab.json").is_file() else nllb
            vocabularies = read_vocabularies(folder, config, *sizes)
        package = {
            "model": {
                **settings,
                "source_vocabulary": len(vocabularies.source.rows),
                "target_vocabulary": len(vocabularies.target.rows),
            },
            "config": {
                "data": {"level": "segment"},
                "decoding": _decoding(search),
                "tokenizer": {"joint": settings["shared_vocabulary"]},
            },
            "segmentation": _languages(folder),
            "source_tokenizer": vocabularies.source_proto,
            "target_tokenizer": vocabularies.target_proto,
        }
        weights = _renamed(found, config, vocabularies, dtype)
        if native or search.get("renormalize_logits"):
            weights["output_bias"][PAD] = UNWRITTEN
    except KeyError as error:
        raise ValueError(f"{folder}: its config.json or weights lack {error}: use a complete folder") from error
    except (AttributeError, IndexError, TypeError) as error:
        raise ValueError(f"{folder}: its files do not fit together ({error}): use a complete folder") from error
    except OSError as error:
        raise ValueError(f"{folder}: cannot read {error.filename}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error
    return Public(package, weights, [*vocabularies.files, *files])


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises ValueError with its name."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not readable as JSON: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: wanted a JSON object")
    return content


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The `ModelConfig` without its vocabularies."""
    for name in ("ffn_dim", "attention_heads"):
        sides = config[f"encoder_{name}"], config[f"decoder_{name}"]
        if sides[0] != sides[1]:
            raise ValueError(f"its encoder and decoder differ in {name}, {sides[0]} and {sides[1]}: one size is read")
    given = str(config.get("activation_function"))
    if given not in _ACTIVATIONS:
        raise ValueError(f"its activation is {given}: one of {', '.join(_ACTIVATIONS)} is read")
    post = config["model_type"] == "marian"
    fixed = {"normalize_before": not post, "normalize_embedding": False, "static_position_embeddings": True}
    if wrong := [name for name, value in fixed.items() if config.get(name, value) != value]:
        raise ValueError(f"its {wrong[0]} is {config[wrong[0]]}: such a model is not read")
    return {
        "shared_vocabulary": bool(config.get("share_encoder_decoder_embeddings", True)),
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "width": config["d_model"],
        "feedforward": config["encoder_ffn_dim"],
        "heads": config["encoder_attention_heads"],
        "dropout": config.get("dropout", 0.1),
        "activation": _ACTIVATIONS[given],
        "tie_embeddings": bool(config.get("tie_word_embeddings", True)),
        "norm": "post" if post else "pre",
        "biases": True,
        "scale_embeddings": bool(config.get("scale_embedding")),
        "output_bias": True,
        "sinusoids": "marian" if post else "m2m100",
        "separate_segments": True,
        "attention": {"name": "softmax"},
    }


def _languages(folder: Path) -> dict[str, str | None]:
    """Source and target language, where the tokenizer names both."""
    path = folder / "tokenizer_config.json"
    given = read_json(path) if path.is_file() else {}
    names = {"source_language": given.get("source_lang"), "target_language": given.get("target_lang")}
    return {"grain": None, **names} if all(map(_LANGUAGE.fullmatch, map(str, names.values()))) else {}


def _search(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of its search, in `generation_config.json` or, of older models, among the others. Warns of those
    that ours has not."""
    path = folder / "generation_config.json"
    found = {**config, **(read_json(path) if path.is_file() else {})}
    if other := [
        f"{name}={found[name]}" for name, usual in _UNREAD.items() if found.get(name, usual) not in (usual, None)
    ]:
        what = "not read, so that texts may differ from those of transformers"
        warnings.warn(f"{folder}: {', '.join(other)}: {what}", stacklevel=2)
    return found


def _decoding(given: Mapping[str, Any]) -> dict[str, Any]:
    """The search that these settings ask for; nothing that only documents need."""
    beams = int(given.get("num_beams") or 1)
    found: dict[str, Any] = {
        "strategy": "beam" if beams > 1 else "greedy",
        "loop_ngram_size": 0,
        "merge_segments": False,
    }
    if beams > 1:
        penalty = float(1.0 if (given_penalty := given.get("length_penalty")) is None else given_penalty)
        if penalty < 0:
            raise ValueError(f"its length_penalty is {penalty}, which prefers short texts: one from 0 to 10 is read")
        found |= {"beam_size": beams, "length_penalty": penalty}
    return {**found, "max_length_ratio": 3.0, "max_length_offset": 50}


def _weights(folder: Path) -> tuple[dict[str, Tensor], list[Path]]:
    """All weights by their names there, and the files that have them."""
    for whole in ("model.safetensors", "pytorch_model.bin"):
        if (folder / whole).is_file():
            return _load(folder / whole), [folder / whole]
        if (folder / (whole + INDEX)).is_file():
            places = read_json(folder / (whole + INDEX)).get("weight_map", {})
            weights: dict[str, Tensor] = {}
            files = [folder / name for name in sorted(set(places.values()))]
            for file in files:
                if not file.is_file():
                    raise ValueError(f"the shard {file.name} is missing: copy all files of {whole + INDEX}")
                weights |= (shard := _load(file))
                if lacking := [name for name, at in places.items() if at == file.name and name not in shard]:
                    raise ValueError(f"the shard {file.name} lacks {lacking[0]}: it is not of {whole + INDEX}")
            return weights, files
    raise ValueError("no weights here: wanted model.safetensors or pytorch_model.bin, or their shards")


def _load(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        return dict(torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file)))
    except pickle.UnpicklingError as error:
        raise ValueError(f"{file.name} holds more than tensors, and scaleformer runs no code of a model") from error
    except (SafetensorError, RuntimeError, OSError, EOFError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{file.name} is cut or damaged: {reason}") from error


def _embeddings(config: Mapping[str, Any]) -> tuple[str, str]:
    """The names of source and target embeddings."""
    if config.get("share_encoder_decoder_embeddings", True):
        return ("model.shared.weight",) * 2
    return "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"


def _renamed(
    found: Mapping[str, Tensor], config: Mapping[str, Any], vocabularies: Vocabularies, dtype: torch.dtype
) -> dict[str, Tensor]:
    source, target = (torch.tensor(side.rows) for side in vocabularies[:2])
    names = _embeddings(config)
    weights = {"source_embedding.weight": found[names[0]][source].to(dtype)}
    weights["target_embedding.weight"] = weights["source_embedding.weight"]
    if names[0] != names[1]:
        weights["target_embedding.weight"] = found[names[1]][target].to(dtype)
    weights["output_weight"] = weights["target_embedding.weight"]
    if not config.get("tie_word_embeddings", True):
        weights["output_weight"] = found["lm_head.weight"][target].to(dtype)
    bias = found.get("final_logits_bias")
    bias = torch.zeros(len(target), dtype=dtype) if bias is None else bias.flatten()[target].to(dtype)
    bias[vocabularies.target.new] = NEVER
    weights["output_bias"] = bias
    for name, tensor in found.items():
        if match := _LAYER.fullmatch(name):
            side, number, part, kind = match.groups()
            weights[f"{side}.{number}.{'.'.join(PARTS.get(p, p) for p in part.split('.'))}.{kind}"] = tensor.to(dtype)
        elif match := re.fullmatch(r"model\.(encoder|decoder)\.layer_norm\.(weight|bias)", name):
            weights[f"{match[1]}_norm.{match[2]}"] = tensor.to(dtype)
    assert SEP not in vocabularies.target.new
    return weights
