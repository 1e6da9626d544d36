"""The explicit attention weights of one document, for any mechanism, and their files.

`scaleformer.model.attention_weights` computes them.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scaleformer.data.batching import Example, collate
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.model.attention import MECHANISMS
from scaleformer.model.attention_weights import attentions_of, recorded_weights
from scaleformer.system.files import replaced
from scaleformer.system.provenance import write_result
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import BOS, EOS

#: site -> names of its queries and keys
SIDES = {"encoder": ("source", "source"), "decoder": ("target", "target"), "cross": ("target", "source")}
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)  # errors of reading a damaged .npz


@dataclass(frozen=True)
class AttentionMaps:
    """The attention weights of a source and its given or generated translation, computed in one pass.

    source_pieces  S pieces that the encoder reads, with `<sep>` and `</s>`
    target_pieces  L pieces that the decoder reads: `<s>` and the translation. The row of a piece shows where the model
                   looks to write the next one
    weights        site -> (layers, H, queries, keys), each row sums to 1: "encoder" (S, S), "decoder" (L, L), "cross"
                   (L, S); sites whose mechanism has no explicit weights are left out
    mechanisms     site -> name of its attention
    """

    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]
    weights: dict[str, NDArray[np.float32]]
    mechanisms: dict[str, str]


@torch.inference_mode()
def attention_maps(
    translator: Translator, source: Sequence[str], target: Sequence[str] | None = None, *, max_tokens: int = 512
) -> AttentionMaps:
    """The weights for a document, a list of segments; without a target, the model translates it first.

    max_tokens  most tokens of either side: memory is their product times heads and layers. Raises ValueError beyond it.
    """
    if target is None:
        (target,) = translator.translate([source])
    tokens = [*translator.tag_tokens(), *translator.source_tokenizer.encode_segments(source), EOS]
    output = [*translator.target_tokenizer.encode_segments(target), EOS]
    longest = max(len(tokens), len(output))
    if longest > max_tokens:
        raise ValueError(
            f"{longest} tokens are too many for attention maps: wanted at most {max_tokens}: take fewer segments, or "
            "raise max_tokens"
        )
    example = Example("", np.array(tokens), np.array(output))
    batch = collate([example]).to(translator.device)
    model = translator.model
    with recorded_weights(model) as found:
        model(batch)
    weights = {
        site: np.stack([layer[0].float().cpu().numpy() for layer in layers]) for site, layers in found.items() if layers
    }
    names = {mechanism: name for name, mechanism in MECHANISMS.items()}
    return AttentionMaps(
        _pieces(translator.source_tokenizer, tokens),
        _pieces(translator.target_tokenizer, [BOS, *output[:-1]]),
        weights,
        {attention.site: names[type(attention)] for attention in attentions_of(model)},
    )


def _pieces(tokenizer: Tokenizer, tokens: Sequence[int]) -> tuple[str, ...]:
    return tuple(tokenizer.piece(token) for token in tokens)


def write_maps(path: Path, maps: AttentionMaps, conditions: Mapping[str, Any]) -> Path:
    """Write PATH.json with pieces and conditions, and PATH.npz with an array per site. Raises OSError."""
    arrays = path.with_suffix(".npz")
    with replaced(arrays) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **maps.weights)  # type: ignore[arg-type]
    payload = {
        **conditions,
        "kind": "attention",
        "source_pieces": maps.source_pieces,
        "target_pieces": maps.target_pieces,
        "mechanisms": maps.mechanisms,
        "weights": arrays.name,
    }
    return write_result(path.with_suffix(".json"), payload)


def read_maps(path: Path) -> AttentionMaps:
    """Read the files of `write_maps`. Raises ValueError where they are damaged or do not belong together."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        with np.load(path.parent / record["weights"]) as arrays:
            weights = {site: arrays[site] for site in arrays.files}
        maps = AttentionMaps(
            tuple(record["source_pieces"]), tuple(record["target_pieces"]), weights, record["mechanisms"]
        )
        sizes = {"source": len(maps.source_pieces), "target": len(maps.target_pieces)}
        for site, (queries, keys) in SIDES.items():
            if site in weights and weights[site].shape[2:] != (sizes[queries], sizes[keys]):
                raise ValueError(f"the weights of {site} belong to a different document")
    except (KeyError, TypeError, ValueError, OSError, *DAMAGED) as error:
        raise ValueError(f"{path}: not attention maps ({error})") from error
    return maps
