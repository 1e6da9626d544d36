"""Translations next to source and reference, for reading."""

from __future__ import annotations

from collections.abc import Iterable

from scaleformer.evaluation.alignment import align_segments
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.system.display import counted


def format_samples(samples: Iterable[TranslatedDocument], max_segments: int = 20) -> str:
    """Source, reference and hypothesis segment by segment; at most `max_segments` per document, with a note.

    A hypothesis whose segment count differs is aligned as for s-BLEU (`scaleformer.evaluation.alignment`).
    """
    blocks = []
    for sample in samples:
        note = f"{counted(len(sample.source), 'segment')}, {len(sample.hypothesis)} in the hypothesis"
        if not sample.finished:
            note += ", cut at the length limit"
        lines = [f"=== {sample.id} ({note})"]
        rows = zip(sample.source, sample.target, align_segments(sample.hypothesis, sample.target), strict=True)
        for number, (source, reference, hypothesis) in enumerate(rows, 1):
            if number > max_segments:
                lines.append(f"({counted(len(sample.source) - max_segments, 'more segment')})")
                break
            lines += [f"source      {source}", f"reference   {reference}", f"hypothesis  {hypothesis}".rstrip(), ""]
        blocks.append("\n".join(lines).rstrip() + "\n")
    return "\n".join(blocks)
