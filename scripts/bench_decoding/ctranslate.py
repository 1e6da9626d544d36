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

from scaleformer.checkpoints.other_formats import MOST, ctranslate2_spec
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.vocabulary import SEP, SPECIAL_PIECES, UNK
from scripts.bench_training.models import Sizes

CTRANSLATE2, PACKAGE = "CTranslate2", "ctranslate2"


class CTranslate2:
    """Sentences of random pieces, translated by CTranslate2 with one batch and a given number of threads.

    precision  "float32", "int8" or, on a GPU, "float16", of the weights. Raises ModuleNotFoundError where the
    package is not installed.
    """

    def __init__(self, sizes: Sizes, threads: int, precision: str = "float32", device: str = "cpu") -> None:
        library = importlib.import_module(PACKAGE)
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
    shape: dict[str, Any] = {"width": sizes.width, "feedforward": sizes.feedforward, "heads": sizes.heads}
    layers: dict[str, Any] = {"encoder_layers": sizes.layers, "decoder_layers": sizes.layers}
    config = ModelConfig(sizes.vocabulary, sizes.vocabulary, **shape, **layers, attention={"name": "softmax"})
    pieces = ["<pad>", *SPECIAL_PIECES[UNK:SEP], *(f"w{n}" for n in range(4, sizes.vocabulary))]
    spec = ctranslate2_spec(Transformer(config), pieces, pieces)
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=None if precision == "float32" else precision)
    return spec
