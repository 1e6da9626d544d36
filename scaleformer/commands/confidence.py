"""Learn how sure a model is of each segment, and measure how well that finds bad ones.

scaleformer confidence checkpoint=RUN [max_tokens=512] [data=jsonl data.path=DIR] [peer=Unbabel/wmt22-cometkiwi-da]

Translates the validation split, and calibrates the signs of its segments by their chrF++ (`confidence.json` beside the
checkpoint); then translates the test split, and says how well the expectations agree there. For `translate review=`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics import CHRF

from scaleformer.checkpoints.run_config import trained_mode
from scaleformer.decoding.config import MaxTokens, Mode, choose_decoding
from scaleformer.evaluation.comet import comet_score, cut_lines, load_comet
from scaleformer.evaluation.confidence import WORST, assess, fit
from scaleformer.evaluation.corpus import choose_corpora
from scaleformer.evaluation.translation_run import provenance_of, results_folder, translated_corpus
from scaleformer.system.display import counted
from scaleformer.system.files import check_folder
from scaleformer.system.provenance import write_result
from scaleformer.system.schema import Positive
from scaleformer.system.tables import plain_table, print_table
from scaleformer.translation.confidence import Array, place_of, signs_of
from scaleformer.translation.translator import Translator


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/confidence.yaml describes them."""

    checkpoint: str
    calibrate: str
    split: str
    mode: Mode | None
    max_tokens: MaxTokens | None
    peer: str | None
    max_documents: Positive | None
    device: str
    threads: Positive | None
    seed: int
    decoding: dict[str, Any]
    data: dict[str, Any] | None = None


def main(options: Options, given: Sequence[str]) -> None:
    try:
        import sklearn  # noqa: F401
    except ModuleNotFoundError:
        raise ValueError("calibration needs scikit-learn: pip install 'scaleformer[confidence]'") from None
    if options.calibrate == options.split:
        raise ValueError(f"calibrate={options.calibrate}: is measured on split={options.split}: name two splits")
    model = Translator.load(options.checkpoint, options.device)
    folder = results_folder(model.path)
    check_folder(folder)
    peer = None if options.peer is None else load_comet(options.peer)
    signs, scores, *_ = _segments(options, given, model, options.calibrate, folder)
    found = fit(signs, scores, model.sha256)
    found.write(place_of(model))
    print(f"{counted(len(scores), 'segment')} of {options.calibrate}: written to {place_of(model)}")
    signs, scores, left_out, texts = _segments(options, given, model, options.split, folder)
    measured = assess(found.expect(signs), scores)
    if peer is not None:
        sources, hypotheses = zip(*texts, strict=True)
        judged = comet_score(peer, sources, hypotheses, None, str(options.peer), gpus=int(model.device.type == "cuda"))
        beside = {"model": judged.model, "version": judged.version, "cut": cut_lines(peer, sources, hypotheses)}
        measured["peer"] = {**beside, **assess(np.array(judged.lines), scores)}
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
    for name, one in (("", measured), (f"{options.peer}: ", measured.get("peer"))):
        if one is not None:
            print(
                f"{name}Pearson {one['pearson']:.3f}; worst {WORST:.0%}: AUC {one['auc']:.3f}, {one['found']:.0%} of "
                f"them among the {WORST:.0%} of least confidence"
            )
    if cut := measured.get("peer", {}).get("cut"):
        print(f"{options.peer} read only the beginning of {cut:,} segments")
    if left_out:
        print(f"left out: {counted(left_out, 'document')} whose source and reference differ in segment count")
    print(f"written to {path}")


def _segments(
    options: Options, given: Sequence[str], model: Translator, split: str, folder: Path
) -> tuple[Array, Array, int, list[tuple[str, str]]]:
    """The signs and the chrF++ of all segments with text of a split; how many documents do not match segment by
    segment; source and translation of these segments."""
    decoding = choose_decoding(model.decoding, options.decoding, given, seed=True)
    mode = options.mode or ("document" if options.max_tokens is not None else trained_mode(model.config))
    signs: list[Array] = []
    scores: list[float] = []
    texts: list[tuple[str, str]] = []
    left_out = 0
    chrf = CHRF(word_order=2)
    how = decoding, mode, options.max_tokens, options.max_documents
    for corpus in choose_corpora(model.config, options.data, split):
        with translated_corpus(model, corpus, *how, folder / f".confidence-{corpus.label}.part") as documents:
            found = [d for d in documents if len(d.source) == len(d.target) == len(d.hypothesis)]
            rows = signs_of(model, [d.source for d in found], [d.hypothesis for d in found], corpus.tag)
        left_out += len(documents) - len(found)
        for document, own in zip(found, rows, strict=True):
            kept = [n for n, text in enumerate(document.source) if text.strip() and document.target[n].strip()]
            signs.append(own[kept])
            texts += [(document.source[n], document.hypothesis[n]) for n in kept]
            scores += [chrf.sentence_score(document.hypothesis[n], [document.target[n]]).score for n in kept]
    if not scores:
        raise ValueError(f"{split}: no document has as many segments in its translation as in source and reference")
    return np.concatenate(signs), np.array(scores), left_out, texts
