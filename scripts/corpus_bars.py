"""How well and how fast `scaleformer inspect` and the filters work: noise and leaks put into a corpus on purpose.

    python -m scripts.corpus_bars leaks CORPUS
    python -m scripts.corpus_bars noise CORPUS --foreign OTHER [--clean]
    python -m scripts.corpus_bars write CORPUS --foreign OTHER --output FOLDER
    python -m scripts.corpus_bars speed CORPUS --segments 1000000 --processes 2

leaks   test segments of five words and more, put into training as they are and with up to a fifth of the words
        changed: the share found of each
noise   5% of the training documents (and, in a second corpus, of the segments) each misaligned, repeated, untranslated
        and in the target language of OTHER: precision and recall of each filter. What a filter takes of the corpus as
        it is counts against its precision unless --clean, which begins with what the filters leave of it
write   the corpus with that noise in its training documents, to train on it as it is and after the filters
speed   a corpus of so many segments, made of CORPUS with words exchanged: time of the clock and of the processors, and
        the most memory that all processes have at once
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scaleformer.data.config import DataConfig
from scaleformer.data.quality.config import FilterConfig
from scaleformer.data.quality.decisions import decide
from scaleformer.data.quality.survey import Split, survey
from scaleformer.data.sources import split_sources
from scaleformer.text.documents import Document, from_parts
from scaleformer.text.words import hash_of_text, spaced
from scripts.quality.texts import write_lines

FILTERS = FilterConfig(usual=True)
KINDS = {"misaligned": "alignment", "repeated": "duplicates", "untranslated": "copies", "foreign": "language"}


def read(folder: str, split: str = "train") -> list[Document]:
    """The documents of a split that have a target."""
    return list(split_sources(DataConfig("jsonl", path=folder))[split].read())


def changed(text: str, vocabulary: Sequence[str], rng: random.Random) -> str:
    """A text with up to a fifth of its words replaced, left out or added to, one at least."""
    words = text.split()
    for place in sorted(rng.sample(range(len(words)), rng.randint(1, len(words) // 5)), reverse=True):
        words[place : place + 1] = rng.choice(
            ([rng.choice(vocabulary)], [], [words[place], rng.choice(vocabulary)]),
        )
    return " ".join(words)


def leaks(folder: str) -> None:
    """Print the share of planted test segments that is found."""
    rng = random.Random(1)
    train, test = read(folder), read(folder, "test")
    known = {spaced(s) for document in train for s in document.source}
    own = {spaced(s): s for document in test for s in document.source if len(s.split()) >= 5 and spaced(s) not in known}
    planted = rng.sample(sorted(own.values()), min(2000, len(own)))
    vocabulary = sorted({word for text in planted for word in text.split()})
    half = len(planted) // 2
    for name, texts in (
        ("none", []),
        ("equal", planted[:half]),
        ("changed", [changed(text, vocabulary, rng) for text in planted[half:]]),
    ):
        documents = [Document(f"planted {n}", (text,), ("x",)) for n, text in enumerate(texts)]
        splits: list[Split] = [("train", d) for d in (*train, *documents)] + [("test", d) for d in test]
        found = survey(lambda splits=splits: splits, {"leakage": 0.2}, ("", ""))  # type: ignore[misc]
        exact, near = found.seen(found.of_split("test"))
        sources = found["sources"]
        hit = {*sources[exact].tolist(), *sources[near].tolist()}
        asked = planted[half:] if name == "changed" else planted[:half]
        share = np.mean([hash_of_text(spaced(text)) in hit for text in asked])
        print(f"{name}: {share:.1%} of {len(asked):,} test segments found", flush=True)


def noisy(documents: Sequence[Document], foreign: Sequence[str], by_segment: bool, rng: random.Random) -> tuple[
    list[Document], dict[str, set[tuple[int, int]]]
]:  # fmt: skip
    """Documents with noise, and the (document, segment) of each kind."""
    places: dict[str, set[tuple[int, int]]] = {kind: set() for kind in KINDS}
    result: list[Document] = []
    draw = iter(foreign)
    for document in documents:
        kind = None if by_segment else rng.choices([*KINDS, None], [0.05] * 4 + [0.8])[0]
        parts = document.parts()
        if kind == "misaligned" and len(parts) < 3:
            kind = None
        number, made, others = len(result), [], [t for _, t in rng.choice(documents).parts()]
        for place, (source, target) in enumerate(parts):
            own = rng.choices([*KINDS, None], [0.05] * 4 + [0.8])[0] if by_segment else kind
            if own == "repeated" and by_segment:
                own = None  # segments are left out only where a run of them is repeated
            if own == "misaligned":
                target = others[place % len(others)] if by_segment else parts[place - max(1, len(parts) // 3)][1]
            elif own == "untranslated":
                target = source
            elif own == "foreign":
                target = tuple(next(draw) for _ in target)
            if own not in (None, "repeated"):
                places[str(own)].add((number, place))
            made.append((source, target))
        result.append(from_parts(document.id, made))
        if kind == "repeated":
            places[kind] |= {(len(result), place) for place in range(len(parts))}
            result.append(document)
    return result, places


def noise(folder: str, other: str, clean: bool) -> None:
    """Print precision and recall of each filter."""
    filters = FILTERS.active()
    documents = read(folder)
    if clean:
        found = survey(lambda: [("train", d) for d in documents], filters, (None, None))
        reasons = decide(found, FILTERS, filters).reasons
        hit = {int(n) for n in np.unique(found.document_of[reasons >= 0])}
        documents = [d for n, d in enumerate(documents) if n not in hit]
    foreign = [s for document in read(other) for s in document.target]
    for by_segment in (False, True):
        rng = random.Random(2)
        rng.shuffle(foreign)
        made, places = noisy(documents, foreign * 10, by_segment, rng)
        found = survey(lambda made=made: [("train", d) for d in made], filters, (None, None))  # type: ignore[misc]
        decisions = decide(found, FILTERS, filters)
        of = found.document_of
        rows = [(int(d), int(n - found.starts[d])) for n, d in enumerate(of)]
        taken = {rows[n] for n in np.flatnonzero(decisions.reasons >= 0)}
        injected = set().union(*places.values())
        unit = "segments" if by_segment else "documents"
        for kind in places if not by_segment else [k for k in places if k != "repeated"]:
            mine = places[kind]
            count, hits = len(mine), len(mine & taken)
            if not by_segment:
                whole = {int(n) for n in np.flatnonzero(decisions.whole >= 0)}
                ids = {document for document, _ in mine}
                count, hits = len(ids), len(ids & whole)
            print(f"{unit}, {kind}: recall {hits / max(1, count):.3f} of {count:,}", flush=True)
        ours = {d for d, _ in injected} if not by_segment else injected
        got = {int(n) for n in np.flatnonzero(decisions.whole >= 0)} if not by_segment else taken
        print(f"{unit}, all filters: precision {len(got & ours) / max(1, len(got)):.3f} of {len(got):,}", flush=True)
        for name, counts in decisions.filters.items():
            print(f"  {name}: {counts['in_order'][unit]:,} {unit} in order", flush=True)


def write(folder: str, other: str, output: str) -> None:
    """The corpus with noise in its training documents, in a folder of splits. Raises OSError."""
    rng = random.Random(2)
    foreign = [s for document in read(other) for s in document.target]
    rng.shuffle(foreign)
    splits = {split: list(source.read()) for split, source in split_sources(DataConfig("jsonl", path=folder)).items()}
    clean = len(splits["train"])
    # far more foreign segments than a twentieth of the corpus has
    splits["train"], places = noisy(splits["train"], foreign * 10, by_segment=False, rng=rng)
    Path(output).mkdir(parents=True)
    for split, documents in splits.items():
        write_lines(Path(output) / f"{split}.jsonl", [document.to_json() for document in documents])
    counts = ", ".join(f"{len({number for number, _ in found})} {kind}" for kind, found in places.items())
    print(f"{output}: {len(splits['train']):,} training documents ({clean:,} before): {counts}")


def memory(process: int) -> int:
    """Bytes of a process and all below it, shared pages counted once (Linux)."""
    total = 0
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            total += 1024 * int(line.split()[1]) if line.startswith("Pss:") else 0
        for task in Path(f"/proc/{process}/task").iterdir():
            total += sum(memory(int(child)) for child in (task / "children").read_text().split())
    except (OSError, ProcessLookupError):  # it ended meanwhile
        pass
    return total


def speed(folder: str, segments: int, processes: int) -> None:
    """Print the time and memory of `scaleformer inspect` on a large corpus."""
    rng = random.Random(3)
    documents, test = read(folder), read(folder, "test")
    vocabularies = [
        sorted({w for d in documents[:200] for s in side(d) for w in s.split()}) for side in (_source, _target)
    ]
    with tempfile.TemporaryDirectory() as temporary:
        count = 0
        with open(Path(temporary) / "train.jsonl", "w", encoding="utf-8") as file:
            while count < segments:
                for document in documents:
                    sides = [
                        [_exchanged(text, words, rng) for text in side(document)]
                        for side, words in zip((_source, _target), vocabularies, strict=True)
                    ]
                    record = Document(f"{document.id} {count}", tuple(sides[0]), tuple(sides[1]), beads=document.beads)
                    file.write(record.to_json() + "\n")
                    count += len(document.shapes)
        lines = "".join(document.to_json() + "\n" for document in test)
        (Path(temporary) / "test.jsonl").write_text(lines, encoding="utf-8")
        command = [sys.executable, "-m", "scaleformer", "inspect", f"data.path={temporary}", f"num_proc={processes}"]
        command.append(f"output={temporary}/out")
        before, start, most = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), 0
        running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while running.poll() is None:
            most = max(most, memory(running.pid))
            time.sleep(0.5)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
        found = json.loads((Path(temporary) / "out" / "report.json").read_text())["splits"]["train"]["segments"]
    print(
        f"{found:,} training segments: {time.perf_counter() - start:.0f} s of the clock, {used:.0f} s of processors in "
        f"{processes} processes, at most {most / 2**30:.2f} GiB"
    )


def _source(document: Document) -> tuple[str, ...]:
    return document.source


def _target(document: Document) -> tuple[str, ...]:
    return document.target


def _exchanged(text: str, vocabulary: Sequence[str], rng: random.Random) -> str:
    words = text.split()
    for place in range(len(words)):
        if rng.random() < 0.1:
            words[place] = rng.choice(vocabulary)
    return " ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("leaks", "noise", "write", "speed"))
    parser.add_argument("corpus")
    parser.add_argument("--foreign", default="")
    parser.add_argument("--output", default="runs/noisy", help="a new folder")
    parser.add_argument("--clean", action="store_true")
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    if given.what == "leaks":
        leaks(given.corpus)
    elif given.what == "noise":
        noise(given.corpus, given.foreign, given.clean)
    elif given.what == "write":
        write(given.corpus, given.foreign, given.output)
    else:
        speed(given.corpus, given.segments, given.processes)


if __name__ == "__main__":
    main()
