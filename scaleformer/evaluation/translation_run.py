"""The files of an evaluation: its scores and everything that they were computed from, and where they go."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from scaleformer.decoding.config import DecodingConfig, MaxTokens, Mode
from scaleformer.evaluation.corpus import ChosenCorpus
from scaleformer.evaluation.saved_translations import TranslatedDocument, save_translations, translated
from scaleformer.evaluation.scores import BleuReport
from scaleformer.system.display import counted
from scaleformer.system.files import atomic_writer
from scaleformer.system.provenance import provenance, write_result
from scaleformer.text.documents import one_line
from scaleformer.translation.request import Request
from scaleformer.translation.resumable import resumable_translations
from scaleformer.translation.translator import Translator

#: what decides the scores of a model, beside the documents
COMPARED = ("decoding", "mode", "precision", "max_tokens", "signatures")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Evaluation:
    """Translations of documents and their scores.

    documents   with beads as segments where segments do not match one to one
    seconds     of the translation alone, None if an earlier call began it
    """

    documents: Sequence[TranslatedDocument]
    report: BleuReport
    request: Request
    seconds: float | None


@contextmanager
def translated_corpus(
    model: Translator,
    corpus: ChosenCorpus,
    decoding: DecodingConfig,
    mode: Mode,
    max_tokens: MaxTokens | None,
    most: int | None,
    part: Path,
) -> Iterator[list[TranslatedDocument]]:
    """The documents of a corpus, at most so many, with their translations, which are in the file `part` until the block
    ends: the same call goes on after an interruption."""
    documents = list(islice(corpus.source.read(), most))
    texts, ids = [document.source for document in documents], [document.id for document in documents]
    request = Request(texts, decoding, ids, mode, max_tokens, corpus.tag)
    with resumable_translations(model, request, part, counted(len(documents), "document")) as translations:
        yield translated(documents, translations)


def write_evaluation(
    folder: str | Path, name: str, evaluation: Evaluation, translator: Translator, extra: Mapping[str, Any]
) -> Path:
    """Write NAME.json with the scores and their conditions, and next to it their inputs:

    NAME.jsonl            id, source, target (the reference), hypothesis, finished, cut: one document per line
    NAME.hypotheses.txt   one document per line, as for d-BLEU; NAME.references.txt likewise, so that
                          `sacrebleu NAME.references.txt -i NAME.hypotheses.txt` gives the same number
    Existing results of that name from a different checkpoint, documents or settings move to previous/ (or, where it has
    some of that name, to previous-2/ and so on), with a warning.
    Returns the path of the JSON. Raises OSError.
    """
    folder = Path(folder)
    references = [one_line(d.target) + "\n" for d in evaluation.documents]
    settings = {
        "decoding": asdict(evaluation.request.decoding),
        "mode": evaluation.request.mode,
        "precision": translator.precision,
        "max_tokens": evaluation.request.max_tokens,
    }
    report = evaluation.report
    conditions = provenance_of(translator, {score.metric: score.signature for score in report.scores})
    payload = {**conditions, **settings, **extra, "translation_seconds": evaluation.seconds, **report.to_dict()}
    _keep_others(folder, name, payload, "".join(references))
    save_translations(folder / f"{name}.jsonl", evaluation.documents)
    with atomic_writer(folder / f"{name}.hypotheses.txt") as file:
        file.writelines(one_line(d.hypothesis) + "\n" for d in evaluation.documents)
    with atomic_writer(folder / f"{name}.references.txt") as file:
        file.writelines(references)
    return write_result(folder / f"{name}.json", payload)


def provenance_of(translator: Translator, signatures: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The `provenance` of what a model has given."""
    origin = translator.path, translator.sha256
    return provenance(translator.device, translator.config.get("seed"), *origin, signatures, translator.parent)


def _keep_others(folder: Path, name: str, payload: Mapping[str, Any], references: str) -> None:
    """Move existing results aside, unless model, references and all that decides a score are those of `payload`."""
    try:
        before = json.loads((folder / f"{name}.json").read_bytes())
        same = before["checkpoint"]["sha256"] == payload["checkpoint"]["sha256"]
        same &= all(before[key] == json.loads(json.dumps(payload[key])) for key in COMPARED)
        if same and (folder / f"{name}.references.txt").read_text(encoding="utf-8") == references:
            return
    except (OSError, ValueError, LookupError, TypeError):
        pass
    if not (old := list(folder.glob(f"{name}.*"))):
        return
    places = (folder / f"previous{'' if number == 1 else f'-{number}'}" for number in count(1))
    aside = next(place for place in places if not any(place.glob(f"{name}.*")))
    aside.mkdir(exist_ok=True)
    for path in old:
        os.replace(path, aside / path.name)
    log.warning(
        "the results in %s were of another checkpoint, other documents or settings: moved them to %s", folder, aside
    )


def results_folder(checkpoint: Path) -> Path:
    """The folder for results of a model: results/ of its run, next to the checkpoint or in the exported model; here in
    results/OWNER/NAME for a model of the Hugging Face Hub, whose cache should not hold them."""
    if checkpoint.parent.name == "snapshots":
        return Path("results", *checkpoint.parents[1].name.split("--")[1:])
    if checkpoint.is_dir():
        return checkpoint / "results"
    parent = checkpoint.parent
    return (parent.parent if parent.name == "checkpoints" else parent) / "results"
