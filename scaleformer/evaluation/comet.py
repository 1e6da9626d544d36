"""COMET [Rei 2020], a learned metric, where the optional package `unbabel-comet` is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INSTALL = "COMET is not installed: pip install unbabel-comet (a separate environment may be needed for its own torch)"


@dataclass(frozen=True)
class CometScore:
    """score is the mean over lines, as COMET gives it (mostly 0 to 1); model its name, version of unbabel-comet."""

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
    """Score lines by a COMET model: its name at Hugging Face (fetched once by unbabel-comet) or a checkpoint file.

    Raises ValueError in one line: the package is not there, no lines or not as many, a model that cannot be had.
    """
    sizes = {len(sources), len(hypotheses), len(references)}
    if len(sizes) != 1 or not sources:
        raise ValueError(
            f"COMET: {len(sources)} sources, {len(hypotheses)} hypotheses, {len(references)} references: wanted as "
            "many of each, at least one"
        )
    comet = _package()
    try:
        path = str(model) if Path(model).is_file() else comet.download_model(str(model))
        loaded = comet.load_from_checkpoint(path)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"COMET model {model}: {reason} (wanted a name at Hugging Face or a checkpoint file)"
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
    if not hasattr(comet, "load_from_checkpoint"):  # there are other packages of that name
        raise ValueError(INSTALL)
    return comet
