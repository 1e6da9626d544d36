"""Save and draw where a model looks while it translates a few segments.

scaleformer attention-maps checkpoint=RUN text='A sentence.'
scaleformer attention-maps checkpoint=RUN input=FILE [document=0] [first=0] [segments=3]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scaleformer.evaluation.attention_maps import attention_maps, write_maps
from scaleformer.evaluation.translation_run import provenance_of, results_folder
from scaleformer.formats.lines import Input
from scaleformer.report.attention import plot_attention
from scaleformer.system.schema import Positive
from scaleformer.translation.files.lines import LinesFormat, choose_format, read_documents
from scaleformer.translation.translator import Translator


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/attention_maps.yaml describes them."""

    checkpoint: str
    text: str | None
    input: str | None
    format: LinesFormat
    document: int
    first: int
    segments: Positive | None
    max_tokens: Positive
    tag: str | None
    name: str
    output: str | None
    device: str
    threads: Positive | None


def main(options: Options, given: Sequence[str]) -> None:
    translator = Translator.load(options.checkpoint, options.device, options.tag)
    source, target, where = _segments(options)
    maps = attention_maps(translator, source, target, max_tokens=options.max_tokens)
    folder = Path(str(options.output or results_folder(translator.path)))
    conditions = provenance_of(translator)
    path = write_maps(folder / f"attention-{options.name}", maps, {**conditions, "document": where})
    plots = folder.parent / "plots" if folder.name == "results" else folder
    drawn = plot_attention(maps, plots, f"attention-{options.name}")
    print(f"written to {path} and {', '.join(str(figure) for figure in drawn.values())}")


def _segments(options: Options) -> tuple[list[str], list[str] | None, str]:
    """Source, target if known, and a description."""
    if (options.text is None) == (options.input is None):
        raise ValueError("wanted one text to look at: give text='A sentence.' or input=FILE")
    if options.input is None:
        return [str(options.text)], None, "text"
    given_input = Input(options.input)
    documents = read_documents(given_input, choose_format(options.format, given_input)).documents
    if not 0 <= options.document < len(documents):
        raise ValueError(f"document={options.document}: {options.input} has {len(documents)} documents, from 0")
    document = documents[options.document]
    usual = min(3, len(document.source) - options.first)
    last = options.first + (usual if options.segments is None else options.segments)
    if not 0 <= options.first < last <= len(document.source):
        raise ValueError(
            f"first={options.first} segments={options.segments}: document {document.id!r} has {len(document.source)} "
            "segments, numbered from 0"
        )
    target = list(document.target[options.first : last]) or None
    return list(document.source[options.first : last]), target, f"{document.id}[{options.first}:{last}]"
