"""Turn folders of documents, bitexts (text pairs, PO, TMX, tables) or sets of the Hub or sacrebleu into JSON Lines.

    scaleformer prepare format=text input=corpus.en target=corpus.es output=data/prepared/corpus
    scaleformer prepare format=po input=locale/es/LC_MESSAGES output=data/prepared/docs min_segments=5
    scaleformer prepare format=tmx input=memory.tmx.gz source_language=en target_language=es output=data/prepared/memory
    scaleformer prepare format=parquet input=DIR source_column=translation.en target_column=translation.es output=OUT
    scaleformer prepare format=hub input=Helsinki-NLP/opus-100 subset=en-es source_column=translation.en \\
        target_column=translation.es output=data/prepared/opus
    scaleformer prepare format=raw source=docs/en target=docs/es source_language=en target_language=es output=OUT
    scaleformer prepare format=translations input=back.jsonl checkpoint=REVERSE output=data/prepared/back
    scaleformer prepare format=translations side=target input=taught.jsonl checkpoint=TEACHER output=data/taught
    scaleformer prepare format=sacrebleu input=wmt22:en-de valid=0 test=1 output=data/prepared/wmt22
    scaleformer prepare format=contrapro input=contrapro.json documents=documents output=data/prepared/contrapro
    scaleformer prepare format=voita input=consistency_testsets output=data/prepared/voita
"""

from __future__ import annotations

from collections.abc import Sequence

import rich

from scaleformer.data.prepare import prepare
from scaleformer.data.prepare_config import PrepareConfig as Options
from scaleformer.translation.translator import Translator

__all__ = ["Options", "main"]


def main(options: Options, given: Sequence[str]) -> None:
    """Convert, and print the counts."""
    translator = None if options.checkpoint is None else Translator.load(options.checkpoint)
    if translator is None:
        report = prepare(options)
    elif options.format == "raw":
        report = prepare(options, translator.translate)
    else:
        report = prepare(options, translated_by=translator.sha256)
    rich.print(report.table())
