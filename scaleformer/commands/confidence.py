"""Learn how sure a model is of each segment, and measure how well that finds bad ones.

scaleformer confidence checkpoint=RUN [max_tokens=512] [data=jsonl data.path=DIR]

Translates the validation split, and calibrates the signs of its segments by their chrF++ (`confidence.json` beside the
checkpoint); then translates the test split, and says how well the expectations agree there. For `translate review=`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics import CHRF

from scaleformer.checkpoints.run_config import trained_mode
from scaleformer.decoding.config import MaxTokens, Mode, choose_decoding
from scaleformer.evaluation.confidence import WORST, Array, assess, fit, place_of, signs_of
from scaleformer.evaluation.corpus import choose_corpora
from scaleformer.evaluation.saved_translations import translated
from scaleformer.evaluation.translation_run import provenance_of, results_folder
from scaleformer.system.display import counted
from scaleformer.system.files import check_folder
from scaleformer.system.provenance import write_result
from scaleformer.system.schema import Positive
from scaleformer.system.tables import plain_table, print_table
from scaleformer.translation.request import Request
from scaleformer.translation.resumable import resumable_translations
from scaleformer.translation.translator import Translator


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/confidence.yaml describes them."""

    checkpoint: str
    calibrate: str
    split: str
    mode: Mode | None
    max_tokens: MaxTokens | None
    max_documents: Positive | None
    device: str
    threads: Positive | None
    decoding: dict[str, Any]
    data: dict[str, Any] | None = None


def main(options: Options, given: Sequence[str]) -> None:
    try:
        import sklearn  # noqa: F401
    except ModuleNotFoundError:
        raise ValueError("calibration needs scikit-learn: pip install 'scaleformer[confidence]'") from None
    model = Translator.load(options.checkpoint, options.device)
    folder = results_folder(model.path)
    check_folder(folder)
    signs, scores, _ = _segments(options, given, model, options.calibrate, folder)
    found = fit(signs, scores, model.sha256)
    found.write(place_of(model))
    print(f"{counted(len(scores), 'segment')} of {options.calibrate}: written to {place_of(model)}")
    signs, scores, left_out = _segments(options, given, model, options.split, folder)
    measured = assess(found.expect(signs), scores)
    how = {"calibrated_on": options.calibrate, "split": options.split, "segments": len(scores), "left_out": left_out}
    path = write_result(
        folder / f"confidence-{options.split}.json", {**provenance_of(model), "kind": "confidence", **how, **measured}
    )
    table = plain_table(f"{counted(len(scores), 'segment')} of {options.split}, by confidence", [], [
        "segments", "expected chrF++", "real chrF++",
    ])  # fmt: skip
    for row in measured["reliability"]:
        table.add_row(f"{row['segments']:,}", f"{row['expected']:.1f}", f"{row['real']:.1f}")
    print_table(table)
    print(
        f"Pearson {measured['pearson']:.3f}; worst {WORST:.0%}: AUC {measured['auc']:.3f}, {measured['found']:.0%} of "
        f"them among the {WORST:.0%} of least confidence"
    )
    if left_out:
        print(f"left out: {counted(left_out, 'document')} whose source and reference differ in segment count")
    print(f"written to {path}")


def _segments(
    options: Options, given: Sequence[str], model: Translator, split: str, folder: Path
) -> tuple[Array, Array, int]:
    """The signs and the chrF++ of all segments with text of a split; how many documents do not match segment by
    segment."""
    decoding = choose_decoding(model.decoding, options.decoding, given)
    mode = options.mode or ("document" if options.max_tokens is not None else trained_mode(model.config))
    signs: list[Array] = []
    scores: list[float] = []
    left_out = 0
    chrf = CHRF(word_order=2)
    for corpus in choose_corpora(model.config, options.data, split):
        documents = list(islice(corpus.source.read(), options.max_documents))
        whole = [document for document in documents if len(document.source) == len(document.target)]
        left_out += len(documents) - len(whole)
        texts, ids = [document.source for document in whole], [document.id for document in whole]
        request = Request(texts, decoding, ids, mode, options.max_tokens, corpus.tag)
        part = folder / f".confidence-{corpus.label}.part"
        with resumable_translations(model, request, part, counted(len(whole), "document")) as translations:
            found = [d for d in translated(whole, translations) if len(d.hypothesis) == len(d.source)]
            left_out += len(whole) - len(found)
            rows = signs_of(model, [d.source for d in found], [d.hypothesis for d in found])
        for document, own in zip(found, rows, strict=True):
            kept = [n for n, text in enumerate(document.source) if text.strip() and document.target[n].strip()]
            signs.append(own[kept])
            scores += [chrf.sentence_score(document.hypothesis[n], [document.target[n]]).score for n in kept]
    return np.concatenate(signs), np.array(scores), left_out
