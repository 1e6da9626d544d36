"""What a training should know of its corpus before the first step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

from scaleformer.data.config import DataConfig
from scaleformer.data.quality.checks import can_tell
from scaleformer.data.quality.survey import usual_language
from scaleformer.data.sources import SplitSource, segmentation
from scaleformer.system.errors import DataError
from scaleformer.text.languages import base_language
from scaleformer.text.words import spaced

LOOKED_AT = 300  # segments by which the language of a split is told
MANY_COPIES = 0.2  # share of the training segments


@dataclass
class TrainingFacts:
    """Of a training split: its documents, segments, those equal to their source, segments of the largest document; and
    those of the wanted source segments that it has."""

    documents: int = 0
    segments: int = 0
    copies: int = 0
    largest: int = 0
    found: set[str] = field(default_factory=set)


def training_facts(training: SplitSource, wanted: Collection[str]) -> TrainingFacts:
    """Read a split once, and keep nothing of it. wanted: source segments (`spaced`), of which those that are not empty
    are looked for. Raises DataError where the split cannot be read."""
    facts, looked_for = TrainingFacts(), {*wanted} - {""}
    for document in training.read():
        sources = [(spaced(" ".join(source)), spaced(" ".join(target))) for source, target in document.parts()]
        facts.documents += 1
        facts.segments += len(sources)
        facts.copies += sum(source == target != "" for source, target in sources)
        facts.largest = max(facts.largest, len(sources))
        facts.found |= looked_for.intersection(source for source, _ in sources)
    return facts


def corpus_warnings(
    corpora: Mapping[str, tuple[DataConfig, Mapping[str, SplitSource]]],
) -> tuple[dict[str, dict[str, float]], list[str]]:
    """By valid and test, the number and share of their segments that stand in training; and lines of warning. What
    stands in the training split of another corpus counts, too.

    corpora: by name, "" for a single one, which is named nowhere. Reads all splits once; of a corpus that streams none.
    Raises DataError where a split cannot be read.
    """
    corpora = {n: some for n, some in corpora.items() if "train" in some[1] and not some[1]["train"].streaming}
    held_out = {
        (corpus, name): [spaced(" ".join(part[0])) for document in splits[name].read() for part in document.parts()]
        for corpus, (_, splits) in corpora.items()
        for name in ("valid", "test")
        if name in splits
    }
    wanted = {source for sources in held_out.values() for source in sources}
    facts = {corpus: training_facts(splits["train"], wanted) for corpus, (_, splits) in corpora.items()}
    found = set[str]().union(*(one.found for one in facts.values()))
    leaks, lines = {}, []
    for (corpus, split), sources in held_out.items():
        name, seen = f"{corpus}: {split}" if corpus else split, sum(source in found for source in sources)
        leaks[name] = {"segments": seen, "share": seen / max(1, len(sources))}
        if seen:
            of = f"{seen:,} of {len(sources):,} segments ({seen / len(sources):.1%})"
            lines.append(f"{name}: {of} stand in the training split: scaleformer inspect shows them")
    for corpus, (config, splits) in corpora.items():
        some = _warnings(config, splits, facts[corpus])
        lines += [f"{corpus}: {line}" if corpus else line for line in some]
    return leaks, lines


def _warnings(config: DataConfig, splits: Mapping[str, SplitSource], facts: TrainingFacts) -> Iterator[str]:
    where = splits["train"].where
    if facts.documents > 2 and facts.largest >= facts.segments / 2:
        share = facts.largest / facts.segments
        yield f"{where}: one of {facts.documents:,} documents has {share:.0%} of the segments"
    if facts.copies > MANY_COPIES * facts.segments:
        share = facts.copies / facts.segments
        yield f"{where}: {share:.0%} of the targets are equal to their source: are they translated?"
    if "test" in splits and config.format != "synthetic":
        with suppress(DataError):  # without py3langid
            spoken, wanted = _target_language(splits["test"]), segmentation(config)["target_language"]
            if not wanted or not can_tell(wanted):
                wanted = _target_language(splits["train"])
            if spoken and wanted and base_language(wanted) != spoken:
                yield f"{splits['test'].where}: its targets look like {spoken}, those of training are {wanted}"


def _target_language(source: SplitSource) -> str:
    return usual_language(islice((text for document in source.read() for text in document.target), LOOKED_AT))
