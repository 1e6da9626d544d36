"""What people corrected: kept as JSON Lines, which `prepare` and `train` read, and used for later documents."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from scaleformer.server.models import Model, Settings
from scaleformer.server.requests import Text
from scaleformer.server.sources import Source
from scaleformer.translation.translation_memory import Masked, TranslationMemory

Words = Annotated[Text, Field(pattern=r"\S")]


class Correction(BaseModel):
    """A segment of a document, by its number from 0, its translation, and what it should be."""

    model_config = ConfigDict(extra="forbid", strict=True)

    document: Text
    segment: Annotated[int, Field(ge=0)]
    source: Words
    translation: Text
    correction: Words


class Corrections:
    """A file of corrections, for each tag its own: the tag stands before the ending, as in corrections.2es.jsonl; the
    pair of languages, if there are several models. Methods raise DataError where it is damaged."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._memories: dict[Path, TranslationMemory] = {}
        self._of()

    def _of(self, model: Model | None = None, tag: str | None = None) -> tuple[Path, TranslationMemory]:
        name = "" if model is None else model.name if model.pair is not None else tag or model.translator.tag or ""
        own = re.sub(r"[^\w-]", "", name)
        path = self._path.with_suffix(f".{own}{self._path.suffix}" if own else self._path.suffix)
        if path not in self._memories:
            some = path.exists() and path.stat().st_size
            self._memories[path] = TranslationMemory.read(str(path)) if some else TranslationMemory(())
        return path, self._memories[path]

    def add(self, corrections: Sequence[Correction], model: Model, tag: str | None) -> None:
        """Keep corrections of a model's translations. Raises OSError."""
        sha256 = model.translator.sha256
        lines = []
        for one in corrections:
            record: dict[str, Any] = {"id": f"{one.document}:{one.segment}"}
            record |= {"source": [one.source], "target": [one.correction]}
            record |= one.model_dump(include={"document", "segment", "translation"}) | {"model": sha256}
            lines.append(json.dumps(record, ensure_ascii=False) + "\n")
        with self._lock:
            path, memory = self._of(model, tag)
            with path.open("ab") as file:
                file.write("".join(lines).encode())
            for one in corrections:
                memory.add(one.source, one.correction, last=True)

    def fill(self, sources: Sequence[Source], settings: Settings) -> list[Source]:
        """Documents whose segments are fixed as they were corrected. Those with a draft stay: their client knows it."""
        found = []
        with self._lock:
            _, memory = self._of(settings.model, settings.tag)
            for one in sources:
                if one.draft is None and one.settings.decoding.match_segments:
                    texts = [Masked(*pair) for pair in zip(one.segments, one.kept, strict=False)] or one.segments
                    forced = memory.fill(one.forced, texts, Counter())
                    one = replace(one, forced=forced, remembered=sorted(set(forced.fixed) - set(one.forced.fixed)))
                found.append(one)
        return found
