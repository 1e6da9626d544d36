"""The model card of an exported model: its training data, its scores and their conditions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import yaml

from scaleformer.checkpoints.model_file import LoadedModel

CARD = "README.md"


def model_card(loaded: LoadedModel, name: str, licence: str | None, results: Path | None) -> str:
    """Markdown with the metadata that the Hugging Face Hub reads.

    name     the model's name on the Hub
    licence  an identifier of the Hub (apache-2.0, cc-by-4.0 ...); None if unknown
    results  the folder with the results of its run; results of other weights are left out. None for no results
    """
    data, model = loaded.config.get("data") or {}, loaded.model.config
    source, target = map(_language, _sides(data))
    languages = [code for code in (source, data.get("target_language") or target) if code]
    metadata = {
        "license": licence or "unknown",
        "library_name": "scaleformer",
        "pipeline_tag": "translation",
        "tags": ["document-translation", model.attention["name"]],
        **({"language": list(dict.fromkeys(languages))} if languages else {}),
    }
    parameters = sum(p.numel() for p in loaded.model.parameters())
    lines = [
        f"---\n{yaml.safe_dump(metadata, sort_keys=False).strip()}\n---\n",
        f"# {name}\n",
        "A scaleformer model that translates whole documents.\n",
        f'    from scaleformer import Translator\n\n    Translator.load("{name}")'
        '.translate([["A document", "of two segments."]])\n',
        "## Model\n",
        f"* {parameters:,} parameters: {model.encoder_layers} encoder and {model.decoder_layers} decoder layers of "
        f"width {model.width}, attention `{model.attention['name']}`",
        f"* vocabularies of {model.source_vocabulary:,} and {model.target_vocabulary:,} pieces",
        f"* exported from the checkpoint with sha256 `{loaded.sha256}`",
        *_lineage(loaded.parent),
        "\n## Data\n",
        *_data(data, _read(results, "data")),
        "\n## Scores\n",
        *_scores(loaded, results),
        "\n## Licence\n",
        licence or "Not given: ask the publisher of the model.",
    ]
    return "\n".join(lines) + "\n"


def without_folders(value: Any) -> Any:
    """Settings to publish: absolute paths shortened to their last part."""
    if isinstance(value, Mapping):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_folders(item) for item in value]
    return PurePath(value).name if isinstance(value, str) and PurePath(value).is_absolute() else value


def _lineage(parent: Mapping[str, Any] | None) -> list[str]:
    lines = []
    while parent is not None:
        lines.append(f"* training started from a model with sha256 `{parent['sha256']}`")
        parent = parent.get("parent")
    return lines


def _sides(data: Mapping[str, Any]) -> tuple[Any, Any]:
    if data.get("format") == "hub":
        return tuple((data.get("hub") or {}).get(side) for side in ("source", "target"))  # type: ignore[return-value]
    return (data.get("source_suffix"), data.get("target_suffix")) if data.get("format") == "text" else (None, None)


def _language(name: Any) -> str | None:
    """The language code at the end of a column name or file suffix, if there is one."""
    code = str(name or "").rpartition(".")[2]
    return code if code.isalpha() and len(code) in (2, 3) else None


def _data(data: Mapping[str, Any], report: Mapping[str, Any]) -> list[str]:
    place = data.get("path") or (data.get("hub") or {}).get("name") or data.get("format") or "not known"
    lines = [f"`{PurePath(str(place)).name if data.get('path') else place}`"]
    splits = report.get("splits") or {}
    if splits:
        lines += ["\n| split | documents | segments | source tokens | target tokens |", "|---|---|---|---|---|"]
        counts = ("documents", "segments", "source_tokens", "target_tokens")
        lines += [f"| {split} | {' | '.join(f'{found[c]:,}' for c in counts)} |" for split, found in splits.items()]
    prints = (report.get("fingerprint") or {}).items()
    return [*lines, *(["", *(f"* sha256 of {split}: `{digest}`" for split, digest in prints)] if prints else [])]


def _scores(loaded: LoadedModel, results: Path | None) -> list[str]:
    lines = []
    for path in sorted(results.glob("bleu-*.json")) if results is not None else []:
        found = _read(results, path.stem)
        if (found.get("checkpoint") or {}).get("sha256") != loaded.sha256 or not found.get("scores"):
            continue
        corpus = found.get("corpus") or {}
        title = " ".join(str(part) for part in (corpus.get("name") or corpus.get("where"), found.get("split")) if part)
        lines += [f"{title}, {found['documents']:,} documents:\n", "| metric | score | signature |", "|---|---|---|"]
        lines += [f"| {s['metric']} | {s['score']:.2f} | `{s['signature']}` |" for s in found["scores"]]
        decoding = ", ".join(f"{key} {value}" for key, value in found["decoding"].items())
        versions = ", ".join(f"{key} {value}" for key, value in found["versions"].items())
        lines += [
            f"\n* decoding: {decoding}, mode {found['mode']}",
            f"* documents cut at the length limit: {len(found['unfinished'])}",
            f"* seed {found['seed']}; {versions}; device: {found['device']['name']}\n",
        ]
    return lines or ["None are known for these weights."]


def _read(folder: Path | None, name: str) -> dict[str, Any]:
    """The result of that name, {} if there is none."""
    try:
        content = json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) if folder is not None else {}
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
