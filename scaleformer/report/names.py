"""Names of runs and of their results: what tells them apart, and what they have in common."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from scaleformer.evaluation.corpus import result_label

_NAMES = ("name", "called")  # of a corpus for its own model, "", and for all


def run_names(folders: Sequence[Path]) -> list[str]:
    """A name for each run directory, all different: for jobs of a sweep, which are numbered, the settings in which they
    differ; otherwise the shortest end of its path that no other has. Raises ValueError for one that is given twice."""
    paths = [folder.resolve() for folder in folders]
    for path in paths:
        if paths.count(path) > 1:
            raise ValueError(f"{path}: given {paths.count(path)} times: give each run once")
    jobs = [_overrides(path) if path.name.isdecimal() else [] for path in paths]
    if len(paths) > 1 and all(jobs):
        shared = set.intersection(*map(set, jobs))
        names = [" ".join(override for override in job if override not in shared) for job in jobs]
        if all(names) and len({*names}) == len(names):
            return names
    found = []
    for path in paths:
        depths = range(1, len(path.parts))
        apart = (n for n in depths if sum(other.parts[-n:] == path.parts[-n:] for other in paths) == 1)
        depth = next(apart, len(path.parts))  # the whole path, if another one ends with it
        found.append(Path(*path.parts[-depth:]).as_posix())
    return found


def system_names(systems: Sequence[str | Path]) -> list[str]:
    """`run_names` of runs, checkpoints and files of translations; files in results/ of runs have the names of these."""
    paths = [path.with_suffix("") if path.is_file() else path for path in map(Path, systems)]
    if all(path.parent.name == "results" and path.name.startswith("bleu-") for path in paths):
        paths = [path.resolve().parents[1] for path in paths]
    return run_names(paths)


def _overrides(job: Path) -> list[str]:
    """What the command said of a job of a sweep; [] without Hydra's record of it."""
    with suppress(OSError, yaml.YAMLError):
        found = yaml.safe_load((job / ".hydra" / "overrides.yaml").read_text(encoding="utf-8"))
        return [re.sub(r"=(['\"])(.*)\1$", r"=\2", str(override)) for override in found or []]
    return []


def corpus_names(runs: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[dict[str, str]]:
    """For each run, a name for each of its results, from their own names: with the name of the corpus, whether it is
    the run's own (bleu-test) or not (bleu-CORPUS-test), so that results on the same documents have the same name."""
    labels: dict[str, str] = {}
    found = []
    for run in runs:
        names = {}
        for name, result in run.items():
            corpus = result.get("corpus") or {}
            own, called = (result_label(str(corpus.get(key) or ""), str(corpus.get("split"))) for key in _NAMES)
            if sha256 := corpus.get("sha256"):
                label = labels.get(sha256) or (called if called not in labels.values() else f"{called}-{len(labels)}")
                labels[sha256] = label
                head, _, tail = name.partition(f"-{own}")
                names[name] = f"{head}-{label}{tail}"
        alone = len(runs) == 1 or len({*names.values()}) < len(names)  # nothing to compare, or the same documents twice
        found.append({name: name if alone else names.get(name, name) for name in run})
    return found
