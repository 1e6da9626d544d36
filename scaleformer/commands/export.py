"""Write a trained model without pickles, to keep or to share, with other options of its attention on request.

    scaleformer export checkpoint=RUN output=DIR
    scaleformer export checkpoint=RUN output=DIR "attention={kept: 256}"   # a larger memory, for long documents
    scaleformer export checkpoint=RUN push=OWNER/NAME license=cc-by-4.0    # to the Hugging Face Hub
    scaleformer export checkpoint=RUN output=DIR format=ctranslate2        # for other programs: softmax attention alone

DIR has the weights (safetensors), the configuration and the tokenizers; every command takes it as `checkpoint=DIR`. A
pushed model also has a model card, and names folders of this machine by their last part only; every command takes it as
`checkpoint=OWNER/NAME`. HF_TOKEN is the key to the Hub.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from scaleformer.checkpoints.changed_attention import change_attention
from scaleformer.checkpoints.hub import check_name, push_model
from scaleformer.checkpoints.model_card import CARD, model_card, without_folders
from scaleformer.checkpoints.model_file import LoadedModel, export_model, load_model
from scaleformer.checkpoints.other_formats import write_ctranslate2, write_transformers
from scaleformer.evaluation.translation_run import results_folder


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/export.yaml describes them."""

    checkpoint: str
    output: str | None
    push: str | None
    license: str | None
    private: bool
    attention: dict[str, Any] | None
    format: Literal["scaleformer", "transformers", "ctranslate2"]


def main(options: Options, given: Sequence[str]) -> None:
    if options.output is None and options.push is None:
        raise ValueError("no destination: give output=DIR, push=OWNER/NAME, or both")
    if options.push is not None:
        check_name(options.push)
        if options.format != "scaleformer":
            raise ValueError(f"push={options.push} uploads scaleformer's format: leave format={options.format} out")
    loaded = load_model(options.checkpoint)
    if options.attention is not None:
        loaded = change_attention(loaded, options.attention)
    if options.output is not None and options.format != "scaleformer":
        write = {"transformers": write_transformers, "ctranslate2": write_ctranslate2}[options.format]
        write(loaded, Path(options.output))
        calls = {"ctranslate2": '; call translate_batch([[*pieces, "<sep>"]], end_token="<sep>")'}
        calls["transformers"] = "; its sources end with <sep> and </s>, its texts with <sep>"
        call = "" if loaded.model.config.separate_segments else calls[options.format]
        print(f"exported {loaded.path} to {options.output} for {options.format}{call}")
    elif options.output is not None:
        export_model(loaded, options.output)
        _tell(loaded, options.output, options.output)
    if options.push is not None:
        results = results_folder(loaded.path) if options.attention is None else None  # else they do not apply
        card = model_card(loaded, options.push, options.license, results)
        public = replace(loaded, config=without_folders(loaded.config), parent=without_folders(loaded.parent))
        with TemporaryDirectory() as folder:
            export_model(public, Path(folder) / "model")
            (Path(folder) / "model" / CARD).write_text(card, encoding="utf-8")
            _tell(loaded, push_model(Path(folder) / "model", options.push, options.private), options.push)


def _tell(loaded: LoadedModel, place: str, checkpoint: str) -> None:
    print(f"exported {loaded.path} to {place}: scaleformer translate checkpoint={checkpoint} input=- output=-")
