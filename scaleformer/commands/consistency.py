"""Does a document translate one name or term the same way throughout? Scores saved translations and the reference.

scaleformer consistency translations=RUN/results/bleu-test.jsonl [terms=FILE.tsv]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from scaleformer.evaluation.alignment import RULE
from scaleformer.evaluation.context.consistency import read_variants, score_consistency
from scaleformer.evaluation.saved_translations import origin, read_translations, stem
from scaleformer.system.display import counted
from scaleformer.system.files import check_file
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.tables import print_rows


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/consistency.yaml describes them."""

    translations: str
    terms: str | None
    output: str | None


def main(options: Options, given: Sequence[str]) -> None:
    check_file("output", options.output)
    terms = None if options.terms is None else read_variants(str(options.terms))
    translations = Path(options.translations)
    documents = read_translations(translations)
    scores = score_consistency(documents, terms)
    if not scores:
        raise ValueError(f"{translations}: no document repeats a word: there is nothing to compare")
    name = stem(translations).removeprefix("bleu-")
    path = Path(str(options.output or translations.with_name(f"consistency-{name}.json")))
    payload = {
        **provenance(**origin(translations)),
        "kind": "consistency",
        "translations": str(translations),
        "alignment": RULE,
    }
    write_result(path, {**payload, "terms": options.terms, "scores": [asdict(score) for score in scores]})
    print_rows(counted(len(documents), "document"), [asdict(score) for score in scores], 1)
    print(f"written to {path}")
