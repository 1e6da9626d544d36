"""Names of runs and of their results: what tells them apart, and what they have in common."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from scaleformer.evaluation.corpus import result_label

Key = tuple[str, str]  # pattern of a name, sha256 of a test corpus


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


def _overrides(job: Path) -> list[str]:
    """What the command said of a job of a sweep; [] without Hydra's record of it."""
    with suppress(OSError, yaml.YAMLError):
        found = yaml.safe_load((job / ".hydra" / "overrides.yaml").read_text(encoding="utf-8"))
        return [re.sub(r"=(['\"])(.*)\1$", r"=\2", str(override)) for override in found or []]
    return []


def corpus_names(runs: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[dict[str, str]]:
    """For each run, a name for each of its results: one for all results on the same documents, whether they are the
    run's own (bleu-test) or not (bleu-CORPUS-test), and different ones for different documents.

    runs  the results of each run by their own names, which stay where they say enough
    """
    keys = [{name: _key(name, result) for name, result in run.items()} for run in runs]
    own: dict[Key, list[str]] = {}
    labels: dict[Key, str] = {}
    for run, of_run in zip(runs, keys, strict=True):
        for name, key in of_run.items():
            own.setdefault(key, []).append(name)
            corpus = run[name].get("corpus") or {}
            label = result_label(str(corpus.get("called") or corpus.get("name") or ""), str(corpus.get("split")))
            labels[key] = max(labels.get(key, ""), label, key=len)
    taken = Counter(name for found in own.values() for name in set(found))
    chosen = {
        key: found[0] if taken[found[0]] == len(set(found)) == 1 else key[0].replace("*", labels[key], 1)
        for key, found in own.items()
    }
    numbers: Counter[str] = Counter()
    for key, name in chosen.items():
        numbers[name] += 1
        chosen[key] = name if numbers[name] == 1 else f"{name}-{numbers[name]}"
    once = [Counter(of_run.values()) for of_run in keys]
    return [
        {name: chosen[key] if count[key] == 1 else name for name, key in of_run.items()}
        for of_run, count in zip(keys, once, strict=True)
    ]


def _key(name: str, result: Mapping[str, Any]) -> Key:
    """The name with a * in place of the corpus and split, and which documents these are; ("NAME", "") if unknown."""
    corpus = result.get("corpus")
    if not isinstance(corpus, Mapping) or not corpus.get("sha256"):
        return name, ""
    label = result_label(str(corpus.get("name") or ""), str(corpus.get("split")))
    head, _, tail = name.partition(f"-{label}")
    return f"{head}-*{tail}", str(corpus["sha256"])
