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


def comet_score(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    model: str | Path = "Unbabel/wmt22-comet-da",
    *,
    batch_size: int = 8,
    gpus: int = 0,
) -> CometScore:
    """Score lines with a COMET model: a name on Hugging Face (downloaded once by unbabel-comet) or a checkpoint file.

    Raises ValueError in one line where the package or the model is missing, without lines, and where counts differ.
    """
    sizes = {len(sources), len(hypotheses), len(references)}
    if len(sizes) != 1 or not sources:
        raise ValueError(
            f"COMET: {len(sources)} sources, {len(hypotheses)} hypotheses, {len(references)} references: the "
            "counts must be equal and at least 1"
        )
    comet = _package()
    try:
        path = str(model) if Path(model).is_file() else comet.download_model(str(model))
        loaded = comet.load_from_checkpoint(path)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"COMET model {model}: {reason} (wanted a name on Hugging Face or a checkpoint file)"
        ) from error
    data = [
        {"src": source, "mt": hypothesis, "ref": reference}
        for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True)
    ]
    output = loaded.predict(data, batch_size=batch_size, gpus=gpus)
    version = str(getattr(comet, "__version__", "unknown"))
    return CometScore(float(output.system_score), tuple(map(float, output.scores)), str(model), version)


def _package() -> Any:
    try:
        import comet
    except ImportError as error:
        raise ValueError(INSTALL) from error
    if not hasattr(comet, "load_from_checkpoint"):  # other packages share the name
        raise ValueError(INSTALL)
    return comet
