"""Reads the result files of runs, and summarizes them in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaleformer.report.names import corpus_names, run_names

Record = Mapping[str, Any]


@dataclass(frozen=True)
class RunFiles:
    """The contents of a run directory: its results by name (`corpus_names`), and their files without extension."""

    name: str
    path: Path
    results: dict[str, Record]
    files: dict[str, Path]

    def of(self, start: str) -> dict[str, Record]:
        """The results whose names begin with `start`."""
        return {name: result for name, result in self.results.items() if name.startswith(start)}


def read_runs(runs: Sequence[str | Path]) -> list[RunFiles]:
    """The files of runs. Raises ValueError for a directory that is not a run or is given twice, and for other files."""
    paths = [Path(run).resolve() for run in runs]
    names = run_names(paths)
    for path in paths:
        if not path.is_dir() or not ((path / "metrics.csv").is_file() or (path / "results").is_dir()):
            raise ValueError(f"{path}: not a run: wanted a directory with metrics.csv or results/")
    read = [_read_results(path / "results") for path in paths]
    found = []
    for name, path, results, called in zip(names, paths, read, corpus_names(read), strict=True):
        files = {called[own]: path / "results" / own for own in results}
        found.append(RunFiles(name, path, {called[own]: result for own, result in results.items()}, files))
    return found


def _read_results(folder: Path) -> dict[str, Record]:
    """By file name without .json."""
    results: dict[str, Record] = {}
    for file in sorted(folder.glob("*.json")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{file}: not a result file ({error})") from error
        if isinstance(record, dict):
            results[file.stem] = record
    return results


def by_name(runs: Sequence[RunFiles], start: str) -> dict[str, dict[str, Record]]:
    """The results whose names begin with `start`: name of the result -> name of the run -> content."""
    found: dict[str, dict[str, Record]] = {}
    for run in runs:
        for name, result in run.of(start).items():
            found.setdefault(name, {})[run.name] = result
    return found


def told_apart(signatures: Mapping[str, Sequence[tuple[str, str]]]) -> dict[str, str]:
    """Signature -> which results have it, "" if all do; with a warning where runs differ in one split."""
    splits = [split for found in signatures.values() for split in {split for _, split in found}]
    caution = ", not comparable with the others" if len(set(splits)) < len(splits) else ""
    if len(signatures) == 1:
        return dict.fromkeys(signatures, "")
    return {
        signature: f" of {', '.join(f'{run} ({split})' for run, split in found)}{caution}"
        for signature, found in signatures.items()
    }


def several_checkpoints(run: RunFiles) -> str:
    """Which results belong to which checkpoint, if there are several; otherwise ""."""
    found: dict[str, list[str]] = {}
    for name, result in run.results.items():
        checkpoint = result.get("checkpoint")
        if isinstance(checkpoint, dict) and checkpoint.get("sha256"):
            which = f"{Path(str(checkpoint['path'])).name} ({checkpoint['sha256'][:8]})"  # files may be copies
            found.setdefault(checkpoint["sha256"], [which]).append(name)
    parts = "; ".join(f"{which}: {', '.join(names)}" for which, *names in found.values())
    return f"has results of several checkpoints: {parts}" if len(found) > 1 else ""


def details(score: Record) -> tuple[str, str, str]:
    """Precisions, brevity penalty and length ratio, for scores that have them."""
    found = score["details"]
    if not found:
        return "", "", ""
    precisions = "/".join(f"{p:.1f}" for p in found["precisions"])
    return precisions, f"{found['brevity_penalty']:.3f}", f"{found['length_ratio']:.3f}"


def facts(name: str, result: Record) -> str:
    """Counts of segments, the corpus, and truncated documents."""
    text = (
        f"{name}: segment count differs from the reference in {result['count_mismatches']} of "
        f"{result['documents']} documents"
    )
    cut = result["unfinished"]
    if corpus := (result.get("corpus") or {}).get("where"):
        text += f"; {corpus}"
    return f"{text}; cut at the length limit: {len(cut)}{' (' + ', '.join(cut[:5]) + ')' if cut else ''}"
