"""COMET [Rei 2020], a learned metric; needs the optional package `unbabel-comet`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTALL = "COMET is not installed: pip install unbabel-comet (a separate environment may be needed for its torch)"


@dataclass(frozen=True)
class CometScore:
    """score: mean over lines, as COMET gives it (mostly 0 to 1); model: its name; version: that of unbabel-comet."""

    score: float
    lines: tuple[float, ...]
    model: str
    version: str


def load_comet(model: str | Path = "Unbabel/wmt22-comet-da") -> Any:
    """A COMET model: a name on Hugging Face (downloaded once by unbabel-comet) or a checkpoint file. Raises ValueError
    in one line where the package or the model is missing."""
    comet = _package()
    try:
        return comet.load_from_checkpoint(str(model) if Path(model).is_file() else comet.download_model(str(model)))
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"COMET model {model}: {reason} (wanted a name on Hugging Face or a checkpoint file)"
        ) from error


def cut_lines(loaded: Any, *sides: Sequence[str]) -> int:
    """How many lines have more tokens than a model reads, and would be cut in silence; 0 if it does not tell. Most
    models read each text by itself, those with `concat_inputs` (unified ones) all texts of a line together."""
    if (encoder := getattr(loaded, "encoder", None)) is None:
        return 0
    counts = zip(*([len(ids) for ids in encoder.tokenizer(list(side))["input_ids"]] for side in sides), strict=True)
    if hasattr(loaded, "concat_inputs"):
        return sum(sum(line) > encoder.max_positions - 1 - len(sides) * encoder.size_separator for line in counts)
    return sum(max(line) > encoder.max_positions - 2 for line in counts)


def comet_score(
    loaded: Any, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str] | None,
    model: str | Path = "Unbabel/wmt22-comet-da", *, batch_size: int = 8, gpus: int = 0,
) -> CometScore:  # fmt: skip
    """Score lines with a loaded model of this name; without references it must be one that needs none [COMET-Kiwi, Rei
    2022]. Raises ValueError without lines, and where counts differ."""
    sides = {"src": sources, "mt": hypotheses, **({} if references is None else {"ref": references})}
    if len(set(map(len, sides.values()))) != 1 or not sources:
        counts = ", ".join(f"{len(texts)} {name}" for name, texts in sides.items())
        raise ValueError(f"COMET: {counts}: the counts must be equal and at least 1")
    data = [dict(zip(sides, line, strict=True)) for line in zip(*sides.values(), strict=True)]
    output = loaded.predict(data, batch_size=batch_size, gpus=gpus)
    scores, version = tuple(map(float, output.scores)), str(getattr(_package(), "__version__", "unknown"))
    return CometScore(float(output.system_score), scores, str(model), version)


def _package() -> Any:
    try:
        import comet
    except ImportError as error:
        raise ValueError(INSTALL) from error
    if not hasattr(comet, "load_from_checkpoint"):  # other packages share the name
        raise ValueError(INSTALL)
    return comet
