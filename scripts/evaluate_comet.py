"""Score saved translations by COMET (optional: pip install unbabel-comet).

python scripts/evaluate_comet.py translations=RUN/results/bleu-test.jsonl [model=Unbabel/wmt22-comet-da] [gpus=1]
"""

from __future__ import annotations

from pathlib import Path

import hydra
from omegaconf import DictConfig

from scaleformer.evaluation.alignment import RULE
from scaleformer.evaluation.comet import comet_score
from scaleformer.evaluation.translations import lines_of, origin, read_translations, stem
from scaleformer.system.errors import NAME, one_line_errors, run_command
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import check_types


@hydra.main(version_base="1.3", config_path="../conf", config_name="evaluate_comet")
@one_line_errors()
def main(config: DictConfig) -> None:
    check_types(config, model=str, batch_size=(int, 1), gpus=(int, 0), output=NAME)
    translations = Path(str(config.translations))
    documents = read_translations(translations)
    left_out = [d.id for d in documents if len(d.source) != len(d.target)]  # whose sentences have no known source
    lines = lines_of([d for d in documents if len(d.source) == len(d.target)])
    if not any(lines.sources):
        raise ValueError(
            f"{translations}: no document has sources beside its translations, segment by segment, and COMET reads them"
        )
    score = comet_score(
        lines.sources, lines.hypotheses, lines.references, config.model, batch_size=config.batch_size, gpus=config.gpus
    )
    name = stem(translations).removeprefix("bleu-")
    path = Path(str(config.output or translations.with_name(f"comet-{name}.json")))
    payload = {
        **provenance(signatures={"COMET": f"model:{score.model}|version:{score.version}"}, **origin(translations)),
        "kind": "comet",
        "translations": str(translations),
        "alignment": RULE,
        "score": score.score,
        "segments": list(score.lines),
        "left_out": left_out,
    }
    write_result(path, payload)
    if left_out:
        print(f"left out, since source and reference differ in their number of segments: {', '.join(left_out)}")
    print(f"COMET {score.score:.4f} ({score.model}, {len(score.lines):,} segments), written to {path}")


if __name__ == "__main__":
    run_command(main)
