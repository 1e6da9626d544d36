"""Models as Marian saves them: the weights of transformers' folder of the same model, the texts of CTranslate2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece as spm
import torch
import yaml
from safetensors.torch import load_file

from scaleformer.checkpoints import public
from scaleformer.checkpoints.marian_npz import numbers_of
from scaleformer.checkpoints.model_file import load_model
from scaleformer.translation.translator import Translator
from scaleformer.vocabulary import PAD
from tests.public_models import MOST, SEARCH, lines, make, pieces

pytestmark = pytest.mark.filterwarnings("ignore:.*sacremoses")
LETTERS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
SETTINGS = {
    "type": "transformer",
    "tied-embeddings-all": True,
    "tied-embeddings": False,
    "enc-depth": 2,
    "dec-depth": 3,
    "dim-emb": 32,
    "transformer-heads": 4,
    "transformer-dim-ffn": 64,
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": 2,
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-train-position-embeddings": False,
    "transformer-no-projection": False,
    "transformer-guided-alignment-layer": "last",
    "layer-normalization": False,
}


def their_name(name: str) -> str:
    """Of a weight of a layer in transformers, what Marian calls it."""
    _, side, _, number, *part, kind = name.split(".")
    attention = {"self_attn": "self", "encoder_attn": "context"}.get(part[0])
    letter = {"weight": "W", "bias": "b"}[kind]
    norm = {"weight": "scale", "bias": "bias"}[kind]
    if attention:
        found = f"{attention}_{letter}{LETTERS[part[1]]}"
    elif part[0].startswith("fc"):
        found = f"ffn_{letter}{part[0][2]}"
    else:
        block = {
            "self_attn_layer_norm": "self_Wo",
            "encoder_attn_layer_norm": "context_Wo",
            "final_layer_norm": "ffn_ffn",
        }
        found = f"{block[part[0]]}_ln_{norm}"
    return f"{side}_l{int(number) + 1}_{found}"


def write(folder: Path, weights: dict[str, torch.Tensor], vocabulary: dict[str, int], **settings: Any) -> None:
    """The files of an OPUS-MT download, without the row of padding."""
    arrays = {
        "Wemb": weights["model.shared.weight"][:-1],
        "decoder_ff_logit_out_b": weights["final_logits_bias"][:, :-1],
    }
    for name, tensor in weights.items():
        if ".layers." in name:
            arrays[their_name(name)] = tensor.T if tensor.dim() == 2 else tensor[None]
    text = yaml.safe_dump({**SETTINGS, **settings}).encode() + b"\0"
    np.savez(
        folder / "model.npz",
        **{name: tensor.numpy() for name, tensor in arrays.items()},
        **{"special:model.yml": np.frombuffer(text, dtype=np.int8)},
    )
    kept = {piece: n for piece, n in vocabulary.items() if piece != "<pad>"}
    (folder / "opus.vocab.yml").write_text(yaml.safe_dump(kept, allow_unicode=True, width=10**6), encoding="utf-8")
    decoder = {"models": ["model.npz"], "vocabs": ["opus.vocab.yml"] * 2, "beam-size": 6, "normalize": 1}
    (folder / "decoder.yml").write_text(yaml.safe_dump(decoder))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model of transformers whose decoder begins with zeros, and the same as Marian saves it."""
    theirs, native = (tmp_path_factory.mktemp("marian") / name for name in ("transformers", "native"))
    model, _ = make(theirs, "marian")
    with torch.no_grad():
        model.model.shared.weight[-1] = 0
        model.final_logits_bias[0, -1] = 0
    model.save_pretrained(theirs)
    native.mkdir()
    for name in ("source.spm", "target.spm"):
        (native / name).write_bytes((theirs / name).read_bytes())
    write(native, model.state_dict(), json.loads((theirs / "vocab.json").read_text()))
    return theirs, native


def test_weights_and_tokens_are_those_of_transformers(folders: tuple[Path, Path]) -> None:
    theirs, ours = map(load_model, folders)
    assert ours.source_tokenizer.proto == theirs.source_tokenizer.proto
    assert ours.target_tokenizer.proto == theirs.target_tokenizer.proto
    wanted = theirs.model.state_dict()
    found = ours.model.state_dict()
    assert set(found) == set(wanted)
    assert found["output_bias"][PAD] == public.UNWRITTEN  # Marian's softmax has no such row
    wanted["output_bias"][PAD] = public.UNWRITTEN
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, wanted[name], msg=name)
    assert ours.model.config == theirs.model.config
    assert (ours.config["decoding"]["beam_size"], ours.config["decoding"]["length_penalty"]) == (6, 1.0)


def test_texts_are_those_of_ctranslate2(folders: tuple[Path, Path], tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    _, native = folders
    ctranslate2.converters.OpusMTConverter(str(native)).convert(str(tmp_path / "ct2"))
    loaded = load_model(native)
    source, target = loaded.source_tokenizer, loaded.target_tokenizer
    texts = lines(30, seed=9)[0]
    pieces = [[source.piece(n) for n in source.encode(text)] for text in texts]
    written = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32").translate_batch(
        pieces, beam_size=1, min_decoding_length=0, max_decoding_length=MOST, return_scores=True
    )
    numbers = {target.piece(n): n for n in range(target.vocab_size)}
    wanted = [target.decode([numbers[piece] for piece in result.hypotheses[0]]) for result in written]
    translator = Translator(loaded, SEARCH)
    found = translator.translate_documents(translator.request([[text] for text in texts], mode="segment"))
    assert [document.segments[0] for document in found] == wanted
    assert len(set(wanted)) > 4
    ended = [n for n, result in enumerate(written) if len(result.hypotheses[0]) < MOST]
    for n in ended:  # their score is the mean over the tokens of the text and its end
        total = written[n].scores[0] * (len(written[n].hypotheses[0]) + 1)
        assert found[n].hypotheses[0].log_probability == pytest.approx(total, abs=1e-3)
    assert len(ended) > 4


def test_each_side_may_have_a_vocabulary_and_weights_of_its_own(tmp_path: Path) -> None:
    theirs, native = tmp_path / "theirs", tmp_path / "native"
    model, _ = make(theirs, "separate")
    weights, numbers = model.state_dict(), []
    native.mkdir()
    for side, name in (("encoder", "vocab.json"), ("decoder", "target_vocab.json")):
        weight, vocabulary = weights[f"model.{side}.embed_tokens.weight"], json.loads((theirs / name).read_text())
        numbers.append({piece: n - (n > 2) for piece, n in vocabulary.items() if piece != "<pad>"})  # which is 2 there
        weights[f"{side}_Wemb"] = torch.cat([weight[:2], weight[3:]])
    bias = weights["final_logits_bias"]
    weights["final_logits_bias"] = torch.cat([bias[:, :2], bias[:, 3:], bias[:, 2:3]], 1)
    sizes = {"transformer-ffn-activation": "relu", "tied-embeddings-all": False, "tied-embeddings": True}
    weights["model.shared.weight"] = weights["encoder_Wemb"]
    write(native, weights, {**numbers[0], "<pad>": len(numbers[0])}, **sizes)
    arrays = dict(np.load(native / "model.npz"))
    del arrays["Wemb"]
    arrays |= {f"{side}_Wemb": weights[f"{side}_Wemb"].numpy() for side in ("encoder", "decoder")}
    np.savez(native / "model.npz", **arrays)
    for side, vocabulary in zip(("source", "target"), numbers, strict=True):
        (native / f"{side}.spm").write_bytes((theirs / f"{side}.spm").read_bytes())
        (native / f"{side}.yml").write_text(yaml.safe_dump(vocabulary, allow_unicode=True, width=10**6))
    decoder = {"models": ["model.npz"], "vocabs": ["source.yml", "target.yml"]}
    (native / "decoder.yml").write_text(yaml.safe_dump(decoder))
    found, wanted = load_model(native), load_model(theirs)
    rows = (found.source_tokenizer, wanted.source_tokenizer), (found.target_tokenizer, wanted.target_tokenizer)
    for name, (own, other) in zip(("source_embedding", "target_embedding"), rows, strict=True):
        places = {other.piece(n): n for n in range(other.vocab_size)}
        shared = [n for n in range(4, own.vocab_size) if own.piece(n) in places]  # all but <pad>, whose row is zeros
        ours, theirs_ = (one.model.state_dict()[f"{name}.weight"] for one in (found, wanted))
        torch.testing.assert_close(ours[shared], theirs_[[places[own.piece(n)] for n in shared]])
    assert found.model.config.encoder_layers == wanted.model.config.encoder_layers
    layers = {
        key: value for key, value in wanted.model.state_dict().items() if key.split(".")[0] in ("encoder", "decoder")
    }
    for key, value in layers.items():
        torch.testing.assert_close(found.model.state_dict()[key], value)


def test_a_sentencepiece_model_may_be_the_vocabulary(tmp_path: Path) -> None:
    proto = pieces(lines()[0], 150)
    (tmp_path / "vocab.spm").write_bytes(proto)
    model = spm.SentencePieceProcessor(model_proto=proto)
    assert numbers_of(tmp_path / "vocab.spm") == {
        **{model.id_to_piece(n): n for n in range(150)},
        "<pad>": 150,
    }
    (tmp_path / "vocab.spm").write_bytes(proto[:50])
    with pytest.raises(ValueError, match="its sentencepiece model is damaged"):
        numbers_of(tmp_path / "vocab.spm")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transformer-decoder-autoreg": "rnn"}, "its transformer-decoder-autoreg is rnn: self-attention is read"),
        ({"transformer-preprocess": "n"}, "its transformer-preprocess is n: empty is read"),
        ({"tied-embeddings-all": False}, "its tied-embeddings is false: true is read"),
        ("model.npz", "model.npz of decoder.yml is missing: copy all files of the model"),
        ("cut", "model.npz is cut or damaged"),
        ("pieces", "opus.vocab.yml has 3 pieces and its weights"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(
    change: Any, message: str, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    theirs, native = folders
    for file in native.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    if isinstance(change, dict):
        write(
            tmp_path, load_file(theirs / "model.safetensors"), json.loads((theirs / "vocab.json").read_text()), **change
        )
    elif change == "cut":
        (tmp_path / "model.npz").write_bytes((native / "model.npz").read_bytes()[:5000])
    elif change == "pieces":
        (tmp_path / "opus.vocab.yml").write_text("</s>: 0\n<unk>: 1\n")
    else:
        (tmp_path / change).unlink()
    with pytest.raises(ValueError, match=message) as raised:
        load_model(tmp_path)
    assert "\n" not in str(raised.value)
