"""Small models with random weights in Hugging Face's layout, made by transformers, for tests of reading and writing."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sentencepiece as spm
import torch

from scaleformer.checkpoints import public_vocabularies
from scaleformer.checkpoints.model_file import LoadedModel, load_model
from scaleformer.checkpoints.public_vocabularies import Vocabularies
from scaleformer.decoding.config import DecodingConfig

transformers = pytest.importorskip("transformers")
CODES = ["ace_Arab", "deu_Latn", "eng_Latn", "fra_Latn"]
KINDS = ("marian", "tagged", "separate", "m2m100", "nllb")
#: of the models that want one
TAGS = {"tagged": "fr", "m2m100": "en-fr", "nllb": "eng_Latn-fra_Latn"}
MOST = 24
SEARCH = DecodingConfig(
    strategy="greedy", loop_ngram_size=0, merge_segments=False, max_length_ratio=0.0, max_length_offset=MOST
)


def lines(count: int = 400, seed: int = 0) -> tuple[list[str], list[str]]:
    """Sentences of made-up words, and the same in another spelling."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("bcdfghlmnprstvaeiouáéñß", k=draw.randint(2, 7))) for _ in range(150)]
    source = [" ".join(draw.choices(words, k=draw.randint(2, 9))) + draw.choice(".!?") for _ in range(count)]
    return source, [line.replace("a", "o").replace("b", "ch") for line in source]


def pieces(texts: list[str], size: int, kind: str = "unigram") -> bytes:
    model = io.BytesIO()
    settings: dict[str, Any] = {"vocab_size": size, "model_type": kind, "minloglevel": 2, "num_threads": 1}
    spm.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=model, **settings)
    return model.getvalue()


def make(folder: Path, kind: str, **settings: Any) -> tuple[Any, Any]:
    """Write a model of one of KINDS; returns what transformers loads of it, (model, tokenizer).

    settings  of its configuration that differ
    """
    folder.mkdir(parents=True)
    torch.manual_seed(3)
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "max_position_embeddings": 128, "init_std": 0.3}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_attention_heads": 4, f"{side}_ffn_dim": 64}
    if kind in ("m2m100", "nllb"):
        tokenizer, rows = _m2m100(folder) if kind == "m2m100" else _nllb(folder)
        config = transformers.M2M100Config(vocab_size=rows, **{**sizes, "scale_embedding": True, **settings})
        model = transformers.M2M100ForConditionalGeneration(config)
    else:
        tokenizer, rows, target = _marian(folder, kind)
        pad = 2 if kind == "separate" else rows - 1
        end: dict[str, Any] = {"eos_token_id": 0, "forced_eos_token_id": None, "bad_words_ids": [[pad]]}
        end |= {"pad_token_id": pad, "decoder_start_token_id": pad, "activation_function": "swish"}
        if kind == "separate":
            end |= {"decoder_vocab_size": target, "share_encoder_decoder_embeddings": False}
            end |= {"activation_function": "relu"}
        config = transformers.MarianConfig(vocab_size=rows, **{"scale_embedding": True, **sizes, **end, **settings})
        model = transformers.MarianMTModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.2 * torch.randn_like(parameter)
        if kind in ("m2m100", "nllb"):  # sentences end
            model.model.decoder.layer_norm.bias += 2.0 * model.model.shared.weight[config.eos_token_id]
        else:
            for side in (model.model.encoder, model.model.decoder):
                side.embed_positions.weight.copy_(side.embed_positions.create_weight())
            model.final_logits_bias.normal_()[0, config.eos_token_id] = 6.0
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def _marian(folder: Path, kind: str) -> tuple[Any, int, int]:
    protos = [pieces(texts, size) for texts, size in zip(lines(), (170, 160), strict=True)]
    special = {"</s>": 0, "<unk>": 1} | ({"<pad>": 2} if kind == "separate" else {})
    ids: list[dict[str, int]] = [{**special}]
    for name, proto in zip(("source", "target"), protos, strict=True):
        (folder / f"{name}.spm").write_bytes(proto)
        if kind == "separate" and name == "target":
            ids.append({**special})
        model = spm.SentencePieceProcessor(model_proto=proto)
        for piece in (model.id_to_piece(n) for n in range(3, model.vocab_size())):
            ids[-1].setdefault(piece, len(ids[-1]))
    if kind == "tagged":
        ids[0] |= {">>es<<": len(ids[0]), ">>fr<<": len(ids[0]) + 1}
    names = [folder / "vocab.json", folder / "target_vocab.json"]
    for path, side in zip(names, ids, strict=False):
        side.setdefault("<pad>", len(side))
        path.write_text(json.dumps(side))
    more = {"target_vocab_file": str(names[1]), "separate_vocabs": True} if len(ids) > 1 else {}
    tokenizer = transformers.MarianTokenizer(
        str(folder / "source.spm"), str(folder / "target.spm"), str(names[0]), **more
    )
    return tokenizer, len(ids[0]), len(ids[-1])


def _m2m100(folder: Path) -> tuple[Any, int]:
    proto = pieces(lines()[0], 200, "bpe")
    model = spm.SentencePieceProcessor(model_proto=proto)
    ids = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
    for n in range(3, model.vocab_size() - 3):  # some pieces are none of its vocabulary
        ids.setdefault(model.id_to_piece(n), len(ids))
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "sentencepiece.bpe.model").write_bytes(proto)
    files = str(folder / "vocab.json"), str(folder / "sentencepiece.bpe.model")
    return transformers.M2M100Tokenizer(*files, src_lang="en", tgt_lang="fr"), len(ids) + 100 + 8


def _nllb(folder: Path) -> tuple[Any, int]:
    proto = pieces(lines()[0], 200, "bpe")
    (folder / "sentencepiece.bpe.model").write_bytes(proto)
    (folder / "config.json").write_text(json.dumps({"model_type": "m2m_100"}))
    named = {"additional_special_tokens": CODES, "tokenizer_class": "NllbTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    tokenizer = transformers.NllbTokenizer.from_pretrained(folder, src_lang="eng_Latn", tgt_lang="fra_Latn")
    return tokenizer, 200 + 1 + len(CODES) + 1 + 2


class Pair(NamedTuple):
    """A model of transformers and the same as ours, with its tag; and how ids correspond."""

    folder: Path
    theirs: Any
    tokenizer: Any
    ours: LoadedModel
    vocabularies: Vocabularies
    kind: str


def source_of(pair: Pair, texts: list[str]) -> list[str]:
    """The texts as transformers wants them."""
    return [f">>{TAGS['tagged']}<<{text}" for text in texts] if pair.kind == "tagged" else texts


def make_pairs(factory: pytest.TempPathFactory) -> Callable[[str], Pair]:
    """Gives the pair of each of KINDS, made once."""
    made: dict[str, Pair] = {}

    def pair(kind: str) -> Pair:
        if kind not in made:
            folder = factory.mktemp("models") / kind
            theirs, tokenizer = make(folder, kind)
            read = getattr(public_vocabularies, kind if kind in ("m2m100", "nllb") else "marian")
            config = json.loads((folder / "config.json").read_text())
            rows = config["vocab_size"], config.get("decoder_vocab_size") or config["vocab_size"]
            loaded = load_model(folder)
            loaded = loaded.tagged(TAGS[kind]) if kind in TAGS else loaded
            made[kind] = Pair(folder, theirs, tokenizer, loaded, read(folder, config, *rows), kind)
        return made[kind]

    return pair
