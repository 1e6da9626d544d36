"""Tables of extrapolation.json for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from scaleformer.system.tables import plain_table, print_table


def extrapolation_tables(payload: Mapping[str, Any]) -> list[Table]:
    """Tables of quality (loss, scores) and, with translations, of their other properties; a row per length, system and
    mode. A * marks a score that differs from the first system's in both tests (p < 0.05)."""
    trained = payload["systems"][0]["trained"]
    training = f"; trained on at most {trained['size']} {trained['unit']}" if trained else ""
    title = f"{payload['corpus']['split']}: {payload['corpus']['documents']} documents{training}"
    tables = [_table(payload, title, QUALITY, _quality)]
    if payload["settings"]["decode"]:
        tables.append(_table(payload, "the translations", REST, _rest))
    if any(test["p"] is not None for test in payload["length_tests"]):
        tables.append(_test_table(payload))
    return tables


QUALITY = ("loss", "d-BLEU", "s-BLEU", "chrF++", "BP", "ratio")
REST = ("rep-4/ref", "missing", "extra", "empty", "cut", "seconds", "MiB")


def _table(payload: Mapping[str, Any], title: str, columns: Sequence[str], cells: Any) -> Table:
    systems, modes = len(payload["systems"]) > 1, len(payload["settings"]["modes"]) > 1
    names = [name for name, shown in (("length", True), ("system", systems), ("mode", modes)) if shown]
    table = plain_table(title, names, ("docs", *columns))
    for length in payload["lengths"]:
        label = length["label"] + (f" x{length['times']:g}" if length["times"] else "")
        rows = _rows(payload, length["label"])
        for place, (row, own) in enumerate(rows):
            first, documents = (label, str(length["documents"])) if place == 0 else ("", "")
            who = [Text(text) for text, shown in ((row["system"], systems), (", ".join(own), modes)) if shown]
            line = [first, *who, documents, *cells(payload, row)]
            table.add_row(*line, end_section=len(rows) > 1 and place == len(rows) - 1)
    return table


def _test_table(payload: Mapping[str, Any]) -> Table:
    tests = payload["length_tests"]
    against = " and ".join(dict.fromkeys(test["against"] for test in tests))
    title = f"sentence BLEU of the original documents, against {against}: paired t-test"
    table = plain_table(title, ("length", "system", "mode"), ("docs", "mean", "difference", "t", "p"))
    for test in tests:
        if test["p"] is None:  # in mode segments, length has no effect
            continue
        numbers = [f"{test['mean']:.2f}", f"{test['mean'] - test['mean_against']:+.2f}"]
        numbers += [f"{test['t']:.2f}", "<0.0001" if test["p"] < 1e-4 else f"{test['p']:.4f}"]
        table.add_row(test["length"], Text(test["system"]), test["mode"], str(test["documents"]), *numbers)
    return table


def _rows(payload: Mapping[str, Any], label: str) -> list[tuple[Mapping[str, Any], list[str]]]:
    """The results of a length with their modes: modes that are the same measurement, because every document fits into
    one window, share a row."""
    rows: list[tuple[Mapping[str, Any], list[str]]] = []
    for row in payload["results"]:
        if row["length"] != label:
            continue
        costs = [part and part["cost"] for part in (row["loss"], row["decode"])]
        for other, modes in rows:
            if other["system"] == row["system"] and costs == [
                p and p["cost"] for p in (other["loss"], other["decode"])
            ]:
                modes.append(row["mode"])
                break
        else:
            rows.append((row, [row["mode"]]))
    return rows


def _quality(payload: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    cells = [f"{row['loss']['nats_per_token']:.3f}" if row["loss"] else ""]
    if not row["decode"]:
        return [*cells, *[""] * 5]
    scores = {score["metric"]: score for score in row["decode"]["scores"]}
    for name, (unit, metric) in SCORES.items():
        cells.append(f"{scores[name]['score']:.2f}{'*' if _differs(payload, row, unit, metric) else ''}")
    details = scores["d-BLEU"]["details"]
    return [*cells, f"{details['brevity_penalty']:.3f}", f"{details['length_ratio']:.3f}"]


SCORES = {"d-BLEU": ("document", "BLEU"), "s-BLEU": ("segment", "BLEU"), "chrF++": ("segment", "chrF++")}


def _differs(payload: Mapping[str, Any], row: Mapping[str, Any], unit: str, metric: str) -> bool:
    for comparison in payload["comparisons"]:
        if (comparison["mode"], comparison["length"], comparison["unit"]) == (row["mode"], row["length"], unit):
            for other in comparison["rows"]:
                if (other["system"], other["metric"]) == (row["system"], metric):
                    found = (other["bootstrap_p"], other["randomization_p"])
                    return all(p is not None and p < 0.05 for p in found)
    return False


def _rest(payload: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    decode = row["decode"]
    counts = [f"{decode[f'{name}_segments']}" for name in ("missing", "extra", "empty")]
    cost = decode["cost"]
    return [
        f"{decode['repeated_4grams']:.3f}/{decode['reference_repeated_4grams']:.3f}",
        *counts,
        f"{len(decode['unfinished'])}",
        f"{cost['seconds']:.1f}",
        f"{cost['memory_growth_bytes'] / 2**20:.0f}",
    ]


def print_tables(payload: Mapping[str, Any]) -> None:
    """Print the tables and remarks."""
    for table in extrapolation_tables(payload):
        print_table(table)
    print(*remarks(payload), sep="\n")


def remarks(payload: Mapping[str, Any]) -> list[str]:
    """The remarks below the tables, one per line."""
    lines = [f"{name}: {signature}" for name, signature in payload["signatures"].items()]
    lines.append("loss: nats per target token, teacher-forced")
    if payload["settings"]["decode"]:
        strategy = payload["settings"]["decoding"]["strategy"]
        lines.append(
            "rep-4: share of 4-grams that occurred earlier in the document, with that of the reference; missing, "
            "extra, empty: segments; cut: documents at the length limit; seconds and MiB (on top of what was held "
            f"before): of the translation, {strategy}"
        )
    if payload["comparisons"]:
        lines.append(f"*: differs from {payload['systems'][0]['name']} in both paired tests, p < 0.05")
    if any(s["tokenizer"] != payload["systems"][0]["tokenizer"] for s in payload["systems"]):
        lines.append("the systems have different tokenizers: their losses per token cannot be compared")
    for length in payload["lengths"]:
        if length["documents"] < length["available"]:
            lines.append(f"{length['label']}: {length['documents']} of {length['available']} documents, seeded sample")
        if length["overlong"]:
            lines.append(f"{length['label']}: {length['overlong']} documents are a single, longer segment")
    lines += [f"left out: {entry['label']} ({entry['reason']})" for entry in payload["left_out"]]
    for row in payload["results"]:
        if row["decode"] and (cut := row["decode"]["unfinished"]):
            shown = ", ".join(cut[:3]) + (" ..." if len(cut) > 3 else "")
            lines.append(
                f"cut at the length limit: {row['system']}, {row['mode']}, {row['length']}: {len(cut)}: {shown}"
            )
    return lines
