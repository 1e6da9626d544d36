"""The tokenizer, the translator and the configuration, fed with hostile texts and values."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import torch

from scaleformer.checkpoints.model_file import LoadedModel
from scaleformer.cli.line import typed
from scaleformer.commands import prepare as prepare_command
from scaleformer.data.config import DataConfig, HubConfig
from scaleformer.data.prepare import prepare
from scaleformer.data.prepare_config import PrepareConfig
from scaleformer.data.sources import split_sources
from scaleformer.data.tokenizer import Tokenizer, TokenizerConfig
from scaleformer.decoding.config import DecodingConfig
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.system.schema import from_mapping
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import SEP
from tests.fuzz.checks import Finding, answer, same
from tests.fuzz.inputs import PIECES, VALUES, Rng, segment

SETTINGS: tuple[Any, ...] = (DataConfig, HubConfig, TokenizerConfig, PrepareConfig, DecodingConfig)


@cache
def tokenizers() -> list[Tokenizer]:
    texts = [f"{a} {b} the quick brown fox" for a in PIECES for b in ("word", "words", "text")]
    return [Tokenizer.train(texts, 352, model_type) for model_type in ("unigram", "bpe")]


def tokenizer(rng: Rng, folder: Path) -> None:
    text = rng.choice((segment(rng), segment(rng) + "\n" + segment(rng)))
    for model in tokenizers():
        tokens = model.encode(text)
        if not set(tokens).isdisjoint(range(SEP + 1)):
            raise Finding(f"{text[:100]!r} has special tokens")
        same(model.decode(tokens), text)
        same(model.decode_segments(model.encode_segments([text, "", text])), [text, "", text])


@cache
def translator() -> Translator:
    model = tokenizers()[0]
    torch.manual_seed(1)
    size = ModelConfig(model.vocab_size, model.vocab_size, encoder_layers=1, decoder_layers=1, width=16, heads=2)
    decoding = {"strategy": "greedy", "max_length_ratio": 0.2, "max_length_offset": 3}
    loaded = LoadedModel(Transformer(size).eval(), model, model, {"decoding": decoding}, "", Path("fuzz"))
    return Translator(loaded)


def translate(rng: Rng, folder: Path) -> None:
    documents = [[segment(rng)[:300] for _ in range(rng.randrange(1, 4))] for _ in range(rng.randrange(1, 4))]
    documents.append([rng.choice(("", " ", "a", "😀", "\u3000", "😀😀 😀", "<sep>", "</s>", "\u202e", "\0"))])
    match = rng.random() < 0.5
    settings = {"match_segments": match, "beam_size": 1, "loop_ngram_size": rng.randrange(3)}
    found = translator().translate(documents, **settings)
    same(len(found), len(documents))
    if match:
        same([len(d) for d in found], [len(d) for d in documents])


def configuration(rng: Rng, folder: Path) -> None:
    kind = rng.choice(SETTINGS)
    names = [*kind.__dataclass_fields__, "nothing", ""]
    values = {rng.choice(names): rng.choice(VALUES) for _ in range(rng.randrange(1, 4))}
    if kind is PrepareConfig and rng.random() < 0.8:
        values = {"format": "jsonl", "input": str(folder / "none"), "output": str(folder / "out"), **values}
        for key, value in values.items():
            typed(f"{key}={value}", prepare_command)
    read = partial(from_mapping, kind, where="decoding" if kind is DecodingConfig else "data")
    found = answer(lambda: read(values))
    for name in getattr(found, "__dataclass_fields__", {}):
        value = getattr(found, name)
        for number in value if isinstance(value, tuple) else [value]:
            if isinstance(number, (int, float)) and not abs(number) <= 2**63:
                raise Finding(f"{kind.__name__} takes {name}={str(number)[:20]}")
    if isinstance(found, DataConfig):
        answer(lambda: split_sources(found))
    elif isinstance(found, PrepareConfig):
        answer(lambda: prepare(found))
