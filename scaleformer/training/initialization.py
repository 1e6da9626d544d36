"""`init_from`: begins training with the weights and tokenizers of an existing model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from scaleformer.checkpoints.model_file import LoadedModel, load_model
from scaleformer.checkpoints.run_config import trained_mode
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.data.tokenizer_extension import Extension, extend, read_words
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.training.resume import is_free

# Tokenizer settings that do not matter once the vocabulary is built.
FREE = ("max_segments", "extend")
SHOWN = 3  # weights named in an error


@dataclass(frozen=True)
class Transfer:
    """How the parent's weights were used. new, left: modules or weights that only the child or the parent has."""

    taken: int
    new: tuple[str, ...]
    left: tuple[str, ...]

    def describe(self) -> str:
        """A line for the user."""
        new, left = (", ".join(names) or "none" for names in (self.new, self.left))
        return f"{self.taken} weights copied; new, initialized as usual: {new}; not used from the parent: {left}"


def load_parent(path: str) -> LoadedModel:
    """The model to begin with: a run, checkpoint, exported model, or a name on the Hugging Face Hub. Raises ValueError
    in one line where it cannot be read."""
    try:
        return load_model(path)
    except ValueError as error:
        raise ValueError(f"init_from: {error}") from error


def tokenizer_settings(parent: LoadedModel) -> dict[str, Any]:
    """The group `tokenizer` of a model, as far as known."""
    joint = parent.source_tokenizer.proto == parent.target_tokenizer.proto
    return {"joint": joint, **(parent.config.get("tokenizer") or {})}


def inherited(
    config: Mapping[str, Any], model: Mapping[str, Any], tokenizer: Mapping[str, Any], given: Iterable[str] | None
) -> tuple[dict[str, Any], list[str]]:
    """A configuration with the sizes and tokenizers of a model to begin with, and what it took, in words.

    given  overrides of the command line: `model.width=64`, and all below the group in `model=small`, stay as they are.
           The options of an attention are taken where it is the same. None: all is given
    """
    if given is None:
        return dict(config), []
    keys, taken = {override.lstrip("+").partition("=")[0].replace("/", ".") for override in given}, []

    def take(own: Any, theirs: Any, name: str) -> Any:
        if name in keys or is_free(name) or name.partition("tokenizer.")[2] in FREE:
            return own
        if isinstance(own, Mapping) and isinstance(theirs, Mapping) and own.get("name") == theirs.get("name"):
            return {key: take(value, theirs.get(key, value), f"{name}.{key}") for key, value in own.items()}
        if own == theirs or isinstance(own, Mapping) or isinstance(theirs, Mapping):
            return own
        taken.append(f"{name}={json.dumps(theirs)}")
        return theirs

    groups = {"model": model, "tokenizer": tokenizer}
    made = {group: take(config[group], theirs, group) for group, theirs in groups.items()}
    return {**config, **made}, [f"init_from {config['init_from']}: as there: {', '.join(taken)}"] if taken else []


def shut_gates(
    config: Mapping[str, Any], single: bool, given: Iterable[str] | None
) -> tuple[dict[str, Any], list[str]]:
    """A configuration whose gates of other segments begin shut where a model of single segments goes on with documents,
    and a note: what it has learned of them, from its separators alone, says nothing about other segments.

    single  whether the parent is such a model, or the run that is resumed began with one
    """
    key, attention = "model.attention.shut", config["model"]["attention"]
    named = given is None or any(override.lstrip("+").partition("=")[0] == key for override in given)
    apart = config["model"]["separate_segments"]  # its gates begin shut anyway
    if not single or named or apart or trained_mode(config) != "document" or attention.get("shut") is not False:
        return dict(config), []
    model = {**config["model"], "attention": {**attention, "shut": True}}
    return {**config, "model": model}, [f"init_from {config['init_from']}: a model of sentences: {key}=true"]


def check_tokenizers(parent: LoadedModel, config: TokenizerConfig) -> None:
    """Raises ValueError in one line where `config` asks for other tokenizers than those of the model to begin with."""
    path, saved = parent.path, tokenizer_settings(parent)
    wanted = {name: value for name, value in asdict(config).items() if name not in FREE}
    if differing := {n: saved[n] for n, value in wanted.items() if n in saved and saved[n] != value}:
        here = ", ".join(f"tokenizer.{name}={json.dumps(wanted[name])}" for name in differing)
        give = " ".join(f"tokenizer.{name}={json.dumps(value)}" for name, value in differing.items())
        raise ValueError(f"init_from={path}: its tokenizers differ from {here}: set {give}")


def extend_parent(parent: LoadedModel, config: TokenizerConfig) -> tuple[LoadedModel, str]:
    """The model with the terms of `config.extend` added to its vocabulary, and a line for the user.

    Embeddings and output weights of a new piece are the mean of those of its former pieces, on its side. Raises
    ValueError where the vocabulary has every term already, or the file cannot be read.
    """
    assert config.extend is not None
    terms, theirs = read_words(config.extend), (parent.source_tokenizer, parent.target_tokenizer)
    source = extend(theirs[0], terms, config.model_type)
    target = source if theirs[1] is theirs[0] else extend(theirs[1], terms, config.model_type)
    if not source.split and not target.split:
        raise ValueError(
            f"tokenizer.extend={config.extend}: the vocabulary already has all of its {len(terms)} terms: leave it "
            "out, or give other terms"
        )
    sizes = source.tokenizer.vocab_size, target.tokenizer.vocab_size
    model = Transformer(replace(parent.model.config, source_vocabulary=sizes[0], target_vocabulary=sizes[1]))
    sides = {"source_embedding.weight": source, "target_embedding.weight": target, "output_weight": target}
    sides["output_bias"] = target
    weights = parent.model.state_dict().items()
    model.load_state_dict({name: _widened(w, sides[name]) if name in sides else w for name, w in weights})
    extended = replace(parent, model=model, source_tokenizer=source.tokenizer, target_tokenizer=target.tokenizer)
    names = {"": source} if source is target else {"source ": source, "target ": target}
    counts = [
        f"{name}{len(side.split)} pieces added, {side.tokenizer.vocab_size:,} in total, {len(terms) - len(side.split)} "
        "already there"
        for name, side in names.items()
    ]
    return extended, f"tokenizer.extend {config.extend}: {'; '.join(counts)}"


def _widened(weight: Tensor, side: Extension) -> Tensor:
    """Append a row for each new piece: (V, ...) -> (V + new, ...)."""
    return torch.stack([*weight, *(weight[ids].mean(0) for ids in side.split)])  # (V + new, ...)


def origin_of(parent: LoadedModel) -> dict[str, Any]:
    """What a run records of its parent: path, hash, and the same of the parent's own parent."""
    return {"path": str(parent.path), "sha256": parent.sha256, "parent": parent.parent}


def transfer_weights(parent: LoadedModel, model: Transformer) -> Transfer:
    """Copy the weights of the parent into `model` by name; weights that the parent lacks stay as they are. Raises
    ValueError and leaves the model alone where shapes differ, where the model ties two weights that differ in the
    parent, and where the number of heads differs."""
    if parent.model.config.heads != model.config.heads:  # no shape shows this
        heads = parent.model.config.heads, model.config.heads
        raise ValueError(
            f"init_from={parent.path} has {heads[0]} heads, this model has {heads[1]}: set model.heads={heads[0]}"
        )
    theirs, own = parent.model.state_dict(), model.state_dict()
    taken = [name for name in own if name in theirs]
    wrong = [
        f"{name} is {tuple(theirs[name].shape)} there and {tuple(own[name].shape)} here"
        for name in taken
        if theirs[name].shape != own[name].shape
    ]
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise ValueError(
            f"init_from={parent.path} does not fit: {', '.join(wrong[:SHOWN])}{more}"
            f"{_differing(parent.model.config, model.config)}"
        )
    _check_tied(parent, {name: own[name] for name in taken}, theirs)
    model.load_state_dict({name: theirs.get(name, tensor) for name, tensor in own.items()})
    return Transfer(len(taken), _modules(own.keys() - theirs, own), _modules(theirs.keys() - own, theirs))


def _differing(theirs: ModelConfig, own: ModelConfig) -> str:
    """The settings that match the parent's model, without those of attentions, which are many."""
    skipped = ("attention", "sites", "dropout", "gradient_checkpointing", "source_vocabulary", "target_vocabulary")
    values = {name: value for name, value in asdict(theirs).items() if name not in (*skipped, "shared_vocabulary")}
    give = " ".join(f"model.{name}={value}" for name, value in values.items() if getattr(own, name) != value)
    return f": set {give}" if give else ": set the options of its attention"


def _check_tied(parent: LoadedModel, own: Mapping[str, Tensor], theirs: Mapping[str, Tensor]) -> None:
    first: dict[int, str] = {}
    for name, tensor in own.items():
        other = first.setdefault(tensor.data_ptr(), name) if tensor.numel() else name
        if other != name and not torch.equal(theirs[name], theirs[other]):
            setting = "model.tie_embeddings=false" if "output_weight" in (name, other) else "tokenizer.joint=false"
            raise ValueError(
                f"init_from={parent.path} does not fit: {other} and {name}, of shape {tuple(theirs[name].shape)} each, "
                f"differ there but are tied here: set {setting}"
            )


def _modules(names: Iterable[str], everything: Iterable[str]) -> tuple[str, ...]:
    """Names of weights; where all weights of a module are listed, only the name of the module."""
    chosen = set(names)
    others = {prefix for name in everything if name not in chosen for prefix in _prefixes(name)}
    found = (next((prefix for prefix in _prefixes(n) if prefix not in others), n) for n in everything if n in chosen)
    return tuple(dict.fromkeys(found))


def _prefixes(name: str) -> list[str]:
    """a.b.c -> a, a.b, a.b.c"""
    parts = name.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]
