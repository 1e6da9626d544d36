"""Save where a model looks while it translates a few segments, and draw it.

python scripts/attention_maps.py checkpoint=RUN text='A sentence.'
python scripts/attention_maps.py checkpoint=RUN input=FILE [document=0] [first=0] [segments=3]
"""

from __future__ import annotations

from pathlib import Path

import hydra
from omegaconf import DictConfig

from scaleformer.evaluation.attention_files import write_maps
from scaleformer.evaluation.attention_maps import attention_maps
from scaleformer.evaluation.translation_run import results_folder
from scaleformer.report.attention import plot_attention
from scaleformer.system.cpu import set_up_cpu
from scaleformer.system.errors import NAME, one_line_errors, run_command
from scaleformer.system.provenance import provenance
from scaleformer.system.schema import check_types
from scaleformer.translation.files import choose_format, read_documents
from scaleformer.translation.translator import Translator


@hydra.main(version_base="1.3", config_path="../conf", config_name="attention_maps")
@one_line_errors()
def main(config: DictConfig) -> None:
    set_up_cpu(config.threads)
    check_types(config, document=int, first=int, segments=(int | None, 1), max_tokens=(int, 1), output=NAME)
    translator = Translator.load(str(config.checkpoint), config.device)
    source, target, where = _segments(config)
    maps = attention_maps(translator, source, target, max_tokens=config.max_tokens)
    folder = Path(str(config.output or results_folder(translator.path)))
    conditions = provenance(translator.device, translator.config.get("seed"), translator.path, translator.sha256)
    path = write_maps(folder / f"attention-{config.name}", maps, {**conditions, "document": where})
    plots = folder.parent / "plots" if folder.name == "results" else folder
    pieces = {"source": maps.source_pieces, "target": maps.target_pieces}
    drawn = plot_attention(maps.weights, pieces, maps.mechanisms, plots, f"attention-{config.name}")
    print(f"written to {path} and {', '.join(str(figure) for figure in drawn.values())}")


def _segments(config: DictConfig) -> tuple[list[str], list[str] | None, str]:
    """Source, target where it is known, and what they are."""
    if (config.text is None) == (config.input is None):
        raise ValueError("nothing to look at, or two things: give text='A sentence.' or input=FILE")
    if config.text is not None:
        return [str(config.text)], None, "text"
    documents = read_documents(str(config.input), choose_format(config.format, str(config.input))).documents
    if not 0 <= config.document < len(documents):
        raise ValueError(f"document={config.document}: {config.input} has {len(documents)}, numbered from 0")
    document = documents[config.document]
    last = min(config.first + 3, len(document.source)) if config.segments is None else config.first + config.segments
    if not 0 <= config.first < last <= len(document.source):
        raise ValueError(
            f"first={config.first} segments={config.segments}: document {document.id!r} has {len(document.source)} "
            "segments, numbered from 0"
        )
    target = list(document.target[config.first : last]) or None
    return list(document.source[config.first : last]), target, f"{document.id}[{config.first}:{last}]"


if __name__ == "__main__":
    run_command(main)
