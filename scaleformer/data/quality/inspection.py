"""Inspects a corpus: what is in it, what stands in it twice or in two splits, and what looks wrong, with examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from scaleformer.data.config import DataConfig
from scaleformer.data.quality.checks import BITS, UNSURE_BIT
from scaleformer.data.quality.config import FilterConfig
from scaleformer.data.quality.decisions import above_share, decide, duplicate_documents
from scaleformer.data.quality.survey import SPLITS, Split, Survey, survey
from scaleformer.data.sources import segmentation, split_sources
from scaleformer.system import html
from scaleformer.system.errors import DataError
from scaleformer.system.tables import plain_table

BOILERPLATE = 10  # documents in which a segment stands; and at least a hundredth of all
SIDES = ("source", "target")
TAKEN = tuple((way, what) for way in ("alone", "in_order") for what in ("segments", "documents"))
Examples = Mapping[str, Sequence[tuple[Any, ...]]]  # by what they show: split, document, segment, source, target


def inspect_corpus(
    data: DataConfig, config: FilterConfig, most: int = 10, processes: int = 1
) -> tuple[dict[str, Any], Examples]:
    """The numbers of a corpus, for JSON, and at most so many examples of each finding. Reads it four times. Raises
    DataError for a corpus that cannot be read or has no document, and where an optional library is missing."""
    sources = {name: source for name, source in split_sources(data).items() if name in SPLITS}

    def read() -> Iterator[Split]:
        return ((name, document) for name, source in sources.items() for document in source.read())

    known, filters = segmentation(data), config.active()
    looked = {**FilterConfig(usual=True).active(), **filters}
    found = survey(read, looked, [known[f"{side}_language"] for side in SIDES], True, processes)
    if not found.names:
        raise DataError(f"{data.place}: no document in {', '.join(sources)}")
    decisions = decide(found, config, filters)
    result, places = _result(found, list(sources), looked["leakage"])
    places |= {f"filter {n}": np.flatnonzero(decisions.reasons == k) for k, n in enumerate(decisions.names)}
    taken = {"filters": decisions.filters, "gaps": decisions.gaps}
    return {"place": data.place, **result, **taken}, _examples(read(), found, places, most)


def _result(found: Survey, splits: Sequence[str], share: float) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The numbers of a report, and for each kind of finding the segments that show it."""
    of, sources, faults, tokens = found.document_of, found["sources"], found["faults"], found["source_tokens"]
    faults = faults | np.where(faults & UNSURE_BIT > 0, BITS["language"], 0)
    place = np.unique(sources, return_inverse=True)[1].reshape(-1)
    times = np.bincount(np.unique(np.stack([place, of], axis=1), axis=0)[:, 0])  # documents that have a source
    boilerplate = (times >= max(BOILERPLATE, len(found.names) / 100))[place] & (tokens > 0)
    worst = np.argsort(np.array(found.stretches), kind="stable")
    worst = worst[np.sort(np.unique(of[worst], return_index=True)[1])]  # one of each document
    places = {name: np.flatnonzero(faults & bit) for name, bit in BITS.items()}
    places |= {"boilerplate": np.flatnonzero(boilerplate)[np.unique(sources[boilerplate], return_index=True)[1]]}
    places["misaligned"] = worst
    result: dict[str, Any] = {n: {} for n in ("splits", "duplicates", "leaks", "languages", "copies", "faults")}
    for split in splits:
        ours, documents = found.of_split(split), np.array(found.splits) == split
        lengths, words = np.diff(found.starts)[documents], found["source_tokens"][ours]
        total = {f"{side}_tokens": int(found[f"{side}_tokens"][ours].sum()) for side in SIDES}
        result["splits"][split] = {
            "documents": int(documents.sum()),
            "segments": int(ours.sum()),
            **total,
            "target_per_source_token": total["target_tokens"] / max(1, total["source_tokens"]),
            "median_segments_of_document": float(np.median(lengths)) if len(lengths) else 0.0,
            "most_segments_of_document": int(lengths.max(initial=0)),
            "median_tokens_of_segment": float(np.median(words)) if len(words) else 0.0,
            "most_tokens_of_segment": int(words.max(initial=0)),
        }
        result["languages"][split] = _languages(found, documents)
        exact, near = duplicate_documents(found, ours)
        places[f"duplicate documents of {split}"] = np.array(found.starts)[:-1][exact | near]
        result["duplicates"][split] = {
            "documents": int(exact.sum()),
            "near_documents": int((near & ~exact).sum()) if found.digests else None,
            "segments": int(ours.sum()) - len(np.unique(found["pairs"][ours])),
            "boilerplate_segments": int((boilerplate & ours).sum()),
        }
        result["faults"][split] = {name: int(np.count_nonzero(faults[ours] & bit)) for name, bit in BITS.items()}
        result["copies"][split] = result["faults"][split]["copies"]
        if split != "train":
            exact, near = found.seen(ours)
            both = np.flatnonzero(exact | near)
            places[f"{split} segments in train"] = both[np.argsort(-tokens[both], kind="stable")]
            result["leaks"][split] = {
                "segments": int(exact.sum()),
                "near_segments": int(near.sum()) if found.digests else None,
                "documents": int(above_share(found, exact | near, share).sum()),
                "share": len(both) / max(1, int(ours.sum())),
                "token_share": float(tokens[both].sum() / max(1, words.sum())),
            }
    stretches = [(found.names[of[n]], int(n - found.starts[of[n]]), float(found.stretches[n])) for n in worst[:10]]
    result["misaligned"] = [dict(zip(("document", "segment", "confidence"), s, strict=True)) for s in stretches]
    return result, places


def _languages(found: Survey, documents: np.ndarray) -> dict[str, dict[str, dict[str, int]]]:
    """Documents and tokens of some documents by side and language."""
    sides: dict[str, dict[str, dict[str, int]]] = {side: {} for side in SIDES}
    for side, (name, languages) in enumerate(sides.items()):
        tokens = np.bincount(found.document_of, found[f"{name}_tokens"], minlength=len(found.names))
        for number in np.flatnonzero(documents):
            counts = languages.setdefault(found.languages[number][side] or "unknown", {"documents": 0, "tokens": 0})
            counts["documents"] += 1
            counts["tokens"] += int(tokens[number])
    return sides


def _examples(documents: Iterator[Split], found: Survey, places: Mapping[str, np.ndarray], most: int) -> Examples:
    """The texts at the first places of each kind; of a misaligned one, with those around it."""
    wanted: dict[int, list[tuple[str, int]]] = {}
    for reason, numbers in places.items():
        for number in numbers[:most].tolist():
            wanted.setdefault(int(np.searchsorted(found.starts, number, "right")) - 1, []).append((reason, number))
    shown: dict[str, dict[int, tuple[Any, ...]]] = {reason: {} for reason in places}
    for number, (split, document) in enumerate(documents):
        for reason, segment in wanted.get(number, ()):
            at, around = segment - found.starts[number], 2 * (reason == "misaligned")
            some = document.parts()[max(0, at - around) : at + around + 1]
            texts = ("\n".join(" ".join(part[side]) for part in some) for side in (0, 1))
            shown[reason][segment] = (split, document.id, at, *texts)
    return {reason: [some[n] for n in places[reason][:most].tolist()] for reason, some in shown.items() if some}


def _rows(result: Mapping[str, Any]) -> Iterator[list[Any]]:
    """A name and a number for each split, of every number by split."""
    for group in ("splits", "duplicates", "leaks", "faults"):
        for key in next(iter(result.get(group, {}).values()), {}):
            title = key.replace("_", " ")
            row = [result[group].get(split, {}).get(key) for split in result["splits"]]
            yield [title if group == "splits" else f"{group}: {title}", *row]


def _taken(result: Mapping[str, Any]) -> list[list[Any]]:
    return [[name, *(counts[way][what] for way, what in TAKEN)] for name, counts in result["filters"].items()]


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """The numbers by split, without those that are 0 everywhere, and what filters take, for the terminal."""
    head = [f"{what} {way.replace('_', ' ')}" for way, what in TAKEN]
    taken = ("What the filters take of train", ["filter"], head), _taken(result)
    numbers = (result["place"], [""], list(result["splits"])), (row for row in _rows(result) if any(row[1:]))
    for shape, rows in (numbers, taken):
        table = plain_table(*shape)
        for name, *cells in rows:
            table.add_row(
                name, *("" if v is None else f"{v:,.3f}" if isinstance(v, float) else f"{v:,}" for v in cells)
            )
        yield table


def quality_page(result: Mapping[str, Any], examples: Examples) -> str:
    """The page of an inspection, or of the filters of `prepare` alone."""
    languages = [
        (split, side, language, *counts.values())
        for split, sides in result.get("languages", {}).items()
        for side, found in sides.items()
        for language, counts in found.items()
    ]
    columns = ("split", "document", "segment", *SIDES)
    shown = [html.folded(f"{kind}: {len(some)}", html.table(columns, some)) for kind, some in examples.items()]
    gaps = html.note(f"{result['gaps']:,} places in documents that stay where segments are left out or stand alone")
    head = ("filter", *(f"{what} {way.replace('_', ' ')}" for way, what in TAKEN))
    sections = {
        "Numbers": html.table(("", *result.get("splits", ())), _rows(result)) if languages else "",
        "Languages": html.table(("split", "side", "language", "documents", "tokens"), languages) if languages else "",
        "Filters": html.table(head, _taken(result)) + gaps,
        "Examples": "".join(shown),
    }
    return html.page("Corpus", sections.items())
