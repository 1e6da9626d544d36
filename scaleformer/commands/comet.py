"""Score saved translations with COMET (optional: pip install unbabel-comet).

scaleformer comet translations=RUN/results/bleu-test.jsonl [model=Unbabel/wmt22-comet-da] [window=6] [gpus=1]
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scaleformer.evaluation.alignment import RULE
from scaleformer.evaluation.comet import comet_score, cut_lines, load_comet
from scaleformer.evaluation.saved_translations import origin, read_translations, stem, windows_of
from scaleformer.system.files import check_file
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import Natural, Positive

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/comet.yaml describes them."""

    translations: str
    model: str
    window: Positive
    stride: Positive
    batch_size: Positive
    gpus: Natural
    output: str | None


def main(options: Options, given: Sequence[str]) -> None:
    check_file("output", options.output)
    translations = Path(options.translations)
    documents = read_translations(translations)
    left_out = [d.id for d in documents if len(d.source) != len(d.target)]  # their sentences have no known source
    whole = [d for d in documents if len(d.source) == len(d.target)]
    lines = windows_of(whole, options.window, options.stride)
    if not any(lines.sources):
        raise ValueError(
            f"{translations}: COMET needs a source for each segment, but segment counts differ in every document"
        )
    loaded, window = load_comet(options.model), options.window
    single = windows_of(whole, 1)
    alone = cut_lines(loaded, single.sources, single.hypotheses, single.references)
    while (cut := cut_lines(loaded, lines.sources, lines.hypotheses, lines.references)) and window > 1:
        stride = min(options.stride, window)
        if cut <= alone * -(-window // stride):  # windows around a segment that is too long by itself
            break
        window -= 1
        lines = windows_of(whole, window, min(options.stride, window))
    if window < options.window:
        log.warning("window=%d: longer than %s reads: window=%d instead", options.window, options.model, window)
    if cut:
        log.warning("%s reads only the beginning of %d of %d texts", options.model, cut, len(lines.sources))
    texts = lines.sources, lines.hypotheses, lines.references
    score = comet_score(loaded, *texts, options.model, batch_size=options.batch_size, gpus=options.gpus)
    name = stem(translations).removeprefix("bleu-")
    name += f"-window{window}" if window > 1 else ""
    path = Path(str(options.output or translations.with_name(f"comet-{name}.json")))
    payload = {
        **provenance(signatures={"COMET": f"model:{score.model}|version:{score.version}"}, **origin(translations)),
        "kind": "comet",
        "translations": str(translations),
        "alignment": RULE,
        "window": window,
        "stride": min(options.stride, window) if window < options.window else options.stride,
        "cut": cut,
        "score": score.score,
        "segments": list(score.lines),
        "left_out": left_out,
    }
    write_result(path, payload)
    if left_out:
        print(f"left out, because the segment counts of source and reference differ: {', '.join(left_out)}")
    what = "segments" if window == 1 else f"windows of {window} segments"
    print(f"COMET {score.score:.4f} ({score.model}, {len(score.lines):,} {what}), written to {path}")
