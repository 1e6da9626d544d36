"""Translations that survive interruptions: each finished document is saved before the next ones."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, BinaryIO

from scaleformer.decoding.drafts import Counts
from scaleformer.system.bars import translation_bar
from scaleformer.translation.request import Listener, Request
from scaleformer.translation.translations import DocumentHypothesis, Translation
from scaleformer.translation.translator import Translator

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)


@contextmanager
def resumable_translations(
    translator: Translator, request: Request, path: str | Path, description: str = "translating"
) -> Iterator[list[Translation]]:
    """`Translator.translate_documents` with a bar on stderr, resuming an earlier interrupted call.

        with resumable_translations(translator, request, folder / "bleu-test.part") as translations:
            ...  # write the results

    path         a JSON Lines file: the conditions of the call, then the translations in document order, each saved as
                 soon as it and all before it are finished. Documents that finished out of order are translated again
    description  of the bar

    The file is removed when the block ends without an exception, and kept after an exception or a kill: the next call
    with the same model and request resumes after the last saved document. A file from a different call is overwritten,
    with a warning.

    The result equals that of an uninterrupted call. Raises the errors of `translate_documents`, OSError if path cannot
    be written, ValueError if another process is writing it.
    """
    path, total = Path(path), len(request.documents)
    with path.open("a+b") as file:
        _own(file, path)
        begun = _read(file, _conditions(translator, request), path)
        if begun:
            print(f"resuming: {len(begun)} of {total} documents are in {path}", file=sys.stderr)
        count = len(begun)

        def keep(translation: Translation) -> None:
            nonlocal count
            _write(file, asdict(translation))
            count += 1

        def tell(counts: Counts) -> None:
            kept = f"{counts.kept / max(counts.tokens, 1):.0%} of {counts.tokens:,} tokens stayed as drafted"
            print(f"drafts: {kept}, {counts.calls:,} calls of the model wrote the others", file=sys.stderr)

        try:
            with translation_bar(description) as progress:
                translations = translator.translate_documents(request, Listener(progress, keep, drafted=tell), begun)
            yield translations
        except BaseException:
            if count:
                log.warning("%d of %d documents are kept in %s: repeat the call to resume", count, total, path)
            else:
                path.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)


def _conditions(translator: Translator, request: Request) -> dict[str, Any]:
    """What must be the same for the translations of an earlier call to be those of this one."""
    return {
        "checkpoint": translator.sha256,
        "documents": hash_of([list(map(list, request.documents)), list(request.names)]),
        "decoding": asdict(request.decoding),
        "max_tokens": request.max_tokens,
        "mode": request.mode,
        "tag": request.tag or translator.tag,
        "precision": translator.precision,
        "forced": hash_of(
            [[*map(sorted, (one.fixed.items(), one.begin.items())), one.known] for one in request.forced]
        ),
        "terms": hash_of([[(term.source, term.target) for term in terms] for terms in request.required]),
    }


def _own(file: BinaryIO, path: Path) -> None:
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{path}: another process is writing these translations: wait for it") from None


def _read(file: BinaryIO, conditions: dict[str, Any], path: Path) -> list[Translation]:
    """The saved translations; truncates the file after them (a partial line, or all of a different call)."""
    found: list[Translation] = []
    file.seek(0)
    first = file.readline()
    if first == _line(conditions):
        end = file.tell()
        with suppress(ValueError, TypeError, KeyError):
            while (line := file.readline()).endswith(b"\n"):
                record = json.loads(line)
                record["hypotheses"] = tuple(
                    DocumentHypothesis(**{**h, **{name: tuple(h[name]) for name in ("segments", "shared", "cut")}})
                    for h in record["hypotheses"]
                )
                found.append(replace(Translation(**record), judged=(), unsure=()))
                end = file.tell()
        file.truncate(end)
        return found
    if first and not first.startswith(b'{"checkpoint": "'):
        raise ValueError(f"{path}: is no unfinished translation: move it away")
    if first:
        log.warning("%s holds translations of another model, other documents or other settings: starting over", path)
    file.truncate(0)
    _write(file, conditions)
    return found


def _write(file: BinaryIO, record: dict[str, Any]) -> None:
    file.write(_line(record))
    file.flush()


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def hash_of(content: Any) -> str:
    """The hash of what JSON holds."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
