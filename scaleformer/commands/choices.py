"""Score words that only other sentences decide: does a translation choose tú or vosotros as the reference does?

scaleformer choices checkpoint=RUN choices=en-es/you [data=jsonl data.path=DIR]
scaleformer choices checkpoint=[RUN1,RUN2] choices=FILE.yaml output=DIR
scaleformer choices translations=[A.jsonl,B.jsonl] choices=FILE.yaml output=DIR
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scaleformer.checkpoints.run_config import trained_mode
from scaleformer.decoding.config import MaxTokens, Mode, choose_decoding
from scaleformer.evaluation.alignment import RULE
from scaleformer.evaluation.context import choice_scores
from scaleformer.evaluation.context.choices import Choice, read_choices
from scaleformer.evaluation.corpus import ChosenCorpus, choose_corpora, file_name
from scaleformer.evaluation.saved_translations import (
    TranslatedDocument,
    origin,
    read_translations,
    same_documents,
    save_translations,
    stem,
    translations_of,
)
from scaleformer.evaluation.significance import Accuracy, compare_systems, comparison_table
from scaleformer.evaluation.translation_run import provenance_of, results_folder, translated_corpus
from scaleformer.report.names import system_names
from scaleformer.system.bars import translation_bars
from scaleformer.system.display import counted
from scaleformer.system.files import atomic_writer, check_folder
from scaleformer.system.provenance import provenance, write_result
from scaleformer.system.schema import Natural, NonEmpty, Positive, listed
from scaleformer.system.tables import print_rows, print_table
from scaleformer.translation.translator import Translator


@dataclass(frozen=True)
class Options:
    """The settings; conf/commands/choices.yaml describes them."""

    checkpoint: str | NonEmpty[str] | None
    translations: str | NonEmpty[str] | None
    choices: str | NonEmpty[str]
    split: str
    reach: Positive
    contrastive: bool
    context: Natural
    mode: Mode | None
    max_tokens: MaxTokens | None
    max_documents: Positive | None
    output: str | None
    device: str
    threads: Positive | None
    seed: int
    decoding: dict[str, Any]
    data: dict[str, Any] | None = None


# what only the translation of checkpoints reads
OF_CHECKPOINTS = r"(?:data|decoding|mode|max_tokens|max_documents|contrastive|context)[./=]|data/"


@dataclass
class System:
    """Documents with their translations, their uses, and what is known of the translations."""

    documents: list[TranslatedDocument]
    uses: list[list[choice_scores.Use]]
    conditions: dict[str, Any]


def main(options: Options, given: Sequence[str]) -> None:
    choices = [choice for file in listed(options.choices) for choice in read_choices(str(file))]
    checkpoints = [str(path) for path in listed(options.checkpoint)]
    files = [translations_of(str(path), options.split) for path in listed(options.translations)]
    names = system_names([*checkpoints, *files])
    if not names:
        raise ValueError("nothing to score: give checkpoint=RUN, or translations=FILE.jsonl that were saved")
    if not checkpoints and (useless := [one for one in given if re.match(OF_CHECKPOINTS, one)]):
        name = useless[0].partition("=")[0]
        raise ValueError(f"{name}= is for checkpoint=, and saved translations do not follow it: leave it out")
    if twice := [name for name, count in Counter(choice.name for choice in choices).items() if count > 1]:
        raise ValueError(f"choices: {twice[0]} stands in two files: give each a name of its own")
    if options.output is None and len(names) > 1:
        raise ValueError("several systems: set output=DIR for their results")
    models = [Translator.load(path, options.device) for path in checkpoints]
    folder = Path(str(options.output or (results_folder(models[0].path) if models else files[0].parent)))
    check_folder(folder)
    corpora = choose_corpora(models[0].config, options.data, options.split) if models else [None]
    left: list[str] = []
    for corpus in corpora:
        label = stem(files[0]).removeprefix("bleu-") if corpus is None else corpus.label
        parts = [*(Path(str(n)).stem for n in listed(options.choices)), label, options.mode, options.max_tokens]
        parts += [options.max_documents and f"first-{options.max_documents}"]
        path = folder / f"{file_name('-'.join(str(part) for part in ('choices', *parts) if part is not None))}.json"
        systems = {}
        for name, model in zip(names, models, strict=False):
            assert corpus is not None
            saved = path.with_name(f"{path.stem}-{file_name(name)}.jsonl")
            systems[name] = _translate(options, given, choices, model, corpus, saved)
        for name, file in zip(names[len(models) :], files, strict=True):
            found = read_translations(file)
            uses = [choice_scores.find_uses(choices, document, options.reach) for document in found]
            systems[name] = System(found, uses, {**provenance(**origin(file)), "file": str(file)})
        if not any(systems[names[0]].uses):
            left.append(f"{label}: no reference uses exactly one class of {', '.join(one.name for one in choices)}")
            continue
        same_documents({name: system.documents for name, system in systems.items()})
        alone = provenance_of(models[0]) if len(names) == len(models) == 1 else provenance()
        _report(choices, systems, {**alone, "corpus": corpus and corpus.to_dict(), "reach": options.reach}, path)
    if len(left) == len(corpora):
        raise ValueError(f"{'; '.join(left)}: there is nothing to score")
    for line in left:
        print(line)


def _translate(
    options: Options,
    given: Sequence[str],
    choices: Sequence[Choice],
    model: Translator,
    corpus: ChosenCorpus,
    path: Path,
) -> System:
    """Translate the documents, keep them, and score their references; the same call continues after an interruption."""
    decoding = choose_decoding(model.decoding, options.decoding, given, seed=True)
    mode = options.mode or ("document" if options.max_tokens is not None else trained_mode(model.config))
    how = decoding, mode, options.max_tokens, options.max_documents
    with translated_corpus(model, corpus, *how, path.with_name(f".{path.stem}.part")) as found:
        save_translations(path, found)
    uses = [choice_scores.find_uses(choices, document, options.reach) for document in found]
    context = 0 if mode == "segment" else options.context
    if options.contrastive:
        with translation_bars() as bar:
            uses = choice_scores.with_margins(found, uses, model, context, corpus.tag, bar)
    conditions: dict[str, Any] = {"mode": mode, "max_tokens": options.max_tokens, "decoding": asdict(decoding)}
    conditions |= {"context": context if options.contrastive else None, "file": str(path)}
    return System(found, uses, {**provenance_of(model), **conditions})


def _report(choices: Sequence[Choice], systems: Mapping[str, System], about: Mapping[str, Any], path: Path) -> None:
    """Write the scores, and a line for each use; print the tables."""
    flat = {name: [use for uses in system.uses for use in uses] for name, system in systems.items()}
    first = next(iter(systems))
    reach = about["reach"]
    scores = [{"system": n, **row} for n, uses in flat.items() for row in choice_scores.score_choices(uses, reach)]
    classes = [{"system": n, **row} for n, uses in flat.items() for row in choice_scores.score_classes(choices, uses)]
    comparisons = {}
    for choice in dict.fromkeys(row["choice"] for row in scores) if len(systems) > 1 else ():
        lines = {name: choice_scores.count_right(system.uses, choice) for name, system in systems.items()}
        comparisons[choice] = compare_systems(lines, [""] * len(lines[first]), Accuracy())
    left_out = sum(len(d.source) != len(d.target) for d in systems[first].documents)
    documents = len(systems[first].documents) - left_out
    facts = {"kind": "choices", "alignment": RULE, "documents": documents, "left_out": left_out}
    payload = {
        **about,
        **facts,
        "choices": [asdict(choice) for choice in choices],
        "systems": [{"name": name, **system.conditions} for name, system in systems.items()],
        "scores": scores,
        "classes": classes,
        "comparisons": [{"choice": choice, **asdict(found)} for choice, found in comparisons.items()],
    }
    write_result(path, payload)
    with atomic_writer(path.with_suffix(".jsonl")) as file:
        for name, uses in flat.items():
            file.writelines(json.dumps({"system": name, **u.to_dict()}, ensure_ascii=False) + "\n" for u in uses)
    print_rows(f"{counted(documents, 'document')}, other segments at most {reach} before", scores)
    print_rows(None, classes)
    for choice, found in comparisons.items():
        print_table(comparison_table(found, f"{choice}: {found.lines:,} documents, against {first}"))
    if left_out:
        print(f"left out: {counted(left_out, 'document')} whose source and reference differ in segment count")
    print(f"written to {path}")
