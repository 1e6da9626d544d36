"""The parts of a trained model, and how they are saved and loaded without running foreign code."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import save_file

from scaleformer.checkpoints import public
from scaleformer.checkpoints.hub import fetch_model, is_hub_name
from scaleformer.checkpoints.package import (
    EXPORTED,
    FORMAT,
    PACKAGE,
    SIDES,
    bytes_to_tensor,
    plain,
    read_checkpoint,
    read_export,
    read_tokenizers,
)
from scaleformer.checkpoints.run_config import all_tagged
from scaleformer.data.tokenizer import Tokenizer
from scaleformer.data.tokenizer_import import prefixes, tagged
from scaleformer.model.adapter import AdapterConfig, add_adapters, merge_adapters
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.system.schema import shown


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model ready to translate, with its tokenizers and the configuration of its run.

    sha256           of its checkpoint file, or of all files of an exported model
    longest_segment  the most tokens of a segment in its training data; None if unknown
    parent           path and hash of the model that its training started from, and that model's parent
    segmentation     grain and languages of its segments
    """

    model: Transformer
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    config: dict[str, Any]
    sha256: str
    path: Path
    longest_segment: int | None = None
    parent: dict[str, Any] | None = None
    segmentation: dict[str, str | None] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.model.parameters()).device

    def tagged(self, tag: str) -> LoadedModel:
        """The model with a tag of an imported vocabulary before every segment. ValueError for an unknown one."""
        source, target = tagged(self.source_tokenizer, self.target_tokenizer, tag)
        own = {field.name: getattr(self, field.name) for field in fields(LoadedModel)}
        return LoadedModel(**{**own, "source_tokenizer": source, "target_tokenizer": target})

    def tag_tokens(self, tag: str | None) -> list[int]:
        """The tokens before the first source segment: the id of a tag, `2es` or `<2es>`; none without a tag. Raises
        ValueError if the vocabulary lacks the tag, and without one if all training data had a tag."""
        known = self.source_tokenizer.tags
        if self.source_tokenizer.imported:  # its tag stands before every segment, as the tokenizers' prefix
            if tag is not None and prefixes(self.source_tokenizer, tag)[0] != self.source_tokenizer.prefix:
                raise ValueError(f"tag={shown(tag)}: the model was loaded with another tag: call Translator.of")
            if known and not self.source_tokenizer.prefix:
                prefixes(self.source_tokenizer, None)
            return []
        if tag is not None:
            name = tag[1:-1] if tag[:1] + tag[-1:] == "<>" else tag
            if name not in known:
                there = f"it knows {', '.join(known)}" if known else "it was trained without tags"
                raise ValueError(f"tag={shown(tag)}: the model knows no such tag; {there}")
            return [known[name]]
        if known and all_tagged(self.config):
            one = f"one of {', '.join(known)}; data.tag= for a corpus"
            raise ValueError(f"all training data of the model had a tag: give tag=, {one}")
        return []


def load_model(path: str | Path, device: str | torch.device = "cpu", dtype: torch.dtype = torch.float32) -> LoadedModel:
    """Load a run directory (its best checkpoint, else its last), a checkpoint file, an exported model directory, or a
    model on the Hugging Face Hub by its name. dtype: of the weights. Raises ValueError in one line if the file is
    missing, truncated, of another format, or inconsistent."""
    path = find_checkpoint(path)
    foreign = path.is_dir() and public.is_public(path)
    if foreign:
        settings, weights, files = public.read(path, dtype)
        package = {**dict.fromkeys(PACKAGE), **settings}
        for side in SIDES:
            package[f"{side}_tokenizer"] = bytes_to_tensor(package[f"{side}_tokenizer"])
    elif path.is_dir():
        package, weights = read_export(path)
        files = [path / name for name in EXPORTED]
    else:
        content = read_checkpoint(path, mmap=True)
        package = content["scaleformer"]
        weights = {
            name.removeprefix("model."): tensor
            for name, tensor in content["state_dict"].items()
            if name.startswith("model.")
        }
        files = [path]
    try:
        tokenizers = read_tokenizers(package)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    try:
        model_config = ModelConfig(**package["model"])
        with torch.device("meta" if foreign else "cpu"):  # a large one is not made before it is read
            model = Transformer(model_config)
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: this version of scaleformer cannot build its model: {reason}") from error
    for side, tokenizer in zip(SIDES, tokenizers, strict=True):
        wanted = getattr(model_config, f"{side}_vocabulary")
        if tokenizer.vocab_size != wanted:
            raise ValueError(
                f"{path}: the {side} tokenizer has {tokenizer.vocab_size} pieces and the model {wanted}: "
                "they come from different runs"
            )
    try:
        if any(".parametrizations." in name for name in weights):  # adapters, without the weights of their parent
            theirs = load_origin(package, path).model.state_dict()
            model.load_state_dict({name: theirs.get(name, tensor) for name, tensor in model.state_dict().items()})
            weights = add_adapters(model, theirs, AdapterConfig(**package["config"]["adapter"])) | weights
        model.load_state_dict(weights, assign=foreign)
    except (RuntimeError, KeyError, TypeError) as error:
        first = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise ValueError(f"{path}: the weights do not fit the model configuration of the file: {first}") from error
    if foreign and model_config.tie_embeddings:
        model.output_weight = model.target_embedding.weight
    merge_adapters(model)
    model.to(device, dtype).eval()
    known = (package[name] for name in ("longest_segment", "parent", "segmentation"))
    return LoadedModel(model, *tokenizers, package["config"], _sha256(files), path, *known)


def load_origin(package: Mapping[str, Any], path: str | Path) -> LoadedModel:
    """The parent of the adapters in the checkpoint `path`, of which `package` is a part. Raises ValueError in one line
    if it is missing, or not the same as in the training."""
    origin = package["parent"]
    try:
        parent = load_model(Path(package["config"].get("folder", ""), origin["path"]))
    except ValueError as error:
        raise ValueError(f"{path}: its adapters need their parent: {error}: put it back there") from error
    if parent.sha256 != origin["sha256"]:
        raise ValueError(
            f"{path}: its adapters belong to another {parent.path}: its sha256 was {origin['sha256']} and is "
            f"{parent.sha256} now: put the former one back"
        )
    return parent


def export_model(loaded: LoadedModel, directory: str | Path) -> None:
    """Write a model without any pickle: model.safetensors, config.yaml, source.model and target.model.

    The folder appears only once it is complete. Raises ValueError if it exists and is not empty, OSError with its name
    if it cannot be written.
    """
    with new_folder(directory) as folder:
        _write_export(loaded, folder)


def _write_export(loaded: LoadedModel, folder: Path) -> None:
    # a state dict names a tied weight twice; safetensors takes each tensor once
    weights = dict(loaded.model.state_dict())
    seen: dict[tuple[Any, ...], str] = {}
    tied = {}
    for name, tensor in list(weights.items()):
        first = seen.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), name)
        if first != name and tensor.numel():
            tied[name] = first
            del weights[name]
    description = {
        "format": FORMAT,
        "model": plain(asdict(loaded.model.config)),
        "tied": tied,
        "config": loaded.config,
        "longest_segment": loaded.longest_segment,
        "segmentation": loaded.segmentation,
        "parent": loaded.parent,
    }
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "model.safetensors")
    (folder / "source.model").write_bytes(loaded.source_tokenizer.proto)
    shutil.copymode(folder / "source.model", folder / "model.safetensors")  # written as 0600
    (folder / "target.model").write_bytes(loaded.target_tokenizer.proto)
    text = yaml.safe_dump(description, sort_keys=False, allow_unicode=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")


@contextmanager
def new_folder(directory: str | Path) -> Iterator[Path]:
    """A folder to write a model into, which gets its name once it is complete. Raises ValueError if there is one that
    is not empty, OSError with its name if it cannot be written."""
    directory = Path(directory)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir()) or not directory.name):
        raise ValueError(f"{directory}: already exists and is not an empty folder: name an empty folder or a new one")
    temporary = directory.with_name(f".{directory.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        os.replace(temporary, directory)
    except (OSError, SafetensorError) as error:  # safetensors raises its own error on a full disk
        number, reason = getattr(error, "errno", None) or errno.EIO, getattr(error, "strerror", None) or str(error)
        raise OSError(number, f"the model cannot be written ({reason})", str(directory)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def find_checkpoint(path: str | Path) -> Path:
    """The checkpoint file or exported model directory that a user means by `path`; for a name on the Hugging Face Hub,
    the model's folder in the local cache. Raises ValueError if there is none."""
    given, path = str(path), Path(path)
    if path.is_dir():
        if (path / "model.safetensors").is_file() or public.is_public(path):
            return path
        for name in ("best.ckpt", "last.ckpt", "previous.ckpt"):
            if (path / "checkpoints" / name).is_file():
                return path / "checkpoints" / name
        raise ValueError(
            f"{path}: no model here: wanted checkpoints/best.ckpt or checkpoints/last.ckpt (a run), "
            "model.safetensors (an exported model), or config.json (a Marian, M2M100 or NLLB model)"
        )
    if not path.is_file():
        if is_hub_name(given):
            return fetch_model(given, EXPORTED, public.FILES)
        raise ValueError(f"{path}: no such run directory, checkpoint file or exported model")
    return path


def _sha256(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
