"""CTranslate2 as a peer for whole translations: a softmax transformer of given sizes, with random weights.

Optional (`pip install scaleformer[bench]`); nothing is downloaded.
"""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from scaleformer.benchmarks.models import Sizes
from scaleformer.model.attention.positions import sinusoids
from scaleformer.vocabulary import SEP, SPECIAL_PIECES, UNK

CTRANSLATE2 = "CTranslate2"
#: the longest text, in tokens, that its position table holds
MOST = 4096


class CTranslate2:
    """Sentences of random pieces, translated by CTranslate2 with one batch and a given number of threads.

    precision  "float32", "int8" or, on a GPU, "float16", of the weights. Raises ModuleNotFoundError where the
    package is not installed.
    """

    def __init__(self, sizes: Sizes, threads: int, precision: str = "float32", device: str = "cpu") -> None:
        library = importlib.import_module("ctranslate2")
        with TemporaryDirectory() as folder:
            _make_spec(sizes, precision).save(folder)
            self._translator = library.Translator(
                str(Path(folder)), device=device, compute_type=precision, inter_threads=1, intra_threads=threads
            )

    def seconds(self, source: torch.Tensor, tokens: int, beams: int) -> float:
        """The seconds to translate source (B, S) to exactly so many tokens per text."""
        texts = [[f"w{token}" for token in row] for row in source.tolist()]
        start = time.perf_counter()
        found = self._translator.translate_batch(
            texts,
            max_batch_size=0,
            beam_size=beams,
            min_decoding_length=tokens,
            max_decoding_length=tokens,
            max_input_length=MOST,
        )
        seconds = time.perf_counter() - start
        assert all(len(one.hypotheses[0]) == tokens for one in found)
        return seconds


def _make_spec(sizes: Sizes, precision: str) -> Any:
    specs = importlib.import_module("ctranslate2.specs")
    activation = specs.common_spec.Activation.RELU
    layers, D, F = (sizes.layers, sizes.layers), sizes.width, sizes.feedforward
    spec = specs.TransformerSpec.from_config(layers, sizes.heads, pre_norm=True, activation=activation)
    embeddings = torch.randn(sizes.vocabulary, D) * D**-0.5
    positions = sinusoids(torch.arange(MOST), D).numpy()

    def fill(map_: Any, outputs: int, inputs: int) -> None:
        map_.weight = (torch.randn(outputs, inputs) * inputs**-0.5).numpy()
        map_.bias = torch.zeros(outputs).numpy()

    def norm(layer: Any) -> None:
        layer.gamma, layer.beta = torch.ones(D).numpy(), torch.zeros(D).numpy()

    for side in (spec.encoder, spec.decoder):
        table = side.embeddings[0] if isinstance(side.embeddings, list) else side.embeddings
        table.weight = embeddings.numpy()
        side.scale_embeddings = True
        side.position_encodings.encodings = positions
        norm(side.layer_norm)
        for layer in side.layer:
            norm(layer.self_attention.layer_norm)
            fill(layer.self_attention.linear[0], 3 * D, D)
            fill(layer.self_attention.linear[1], D, D)
            norm(layer.ffn.layer_norm)
            fill(layer.ffn.linear_0, F, D)
            fill(layer.ffn.linear_1, D, F)
            if side is spec.decoder:
                norm(layer.attention.layer_norm)
                fill(layer.attention.linear[0], D, D)
                fill(layer.attention.linear[1], 2 * D, D)
                fill(layer.attention.linear[2], D, D)
    spec.decoder.projection.weight = embeddings.numpy()
    pieces = [*SPECIAL_PIECES[UNK:SEP], *(f"w{n}" for n in range(3, sizes.vocabulary))]
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    return spec
