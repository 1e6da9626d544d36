"""Translations that survive interruptions: each finished document is saved before the next ones."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from scaleformer.decoding.config import DecodingConfig, Mode
from scaleformer.translation.translations import DocumentHypothesis, Translation
from scaleformer.translation.translator import Translator

try:
    import fcntl
except ImportError:  # Windows: no lock
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)


@contextmanager
def resumable_translations(
    translator: Translator,
    documents: Sequence[Sequence[str]],
    config: DecodingConfig,
    path: str | Path,
    *,
    ids: Sequence[str] | None = None,
    max_tokens: int | None = None,
    mode: Mode = "document",
    tag: str | None = None,
    progress: Callable[[float, int], None] | None = None,
    **options: Any,
) -> Iterator[list[Translation]]:
    """`Translator.translate_documents`, resuming an earlier interrupted call.

        with resumable_translations(translator, sources, decoding, folder / "bleu-test.part", ids=ids) as translations:
            ...  # write the results

    path is a JSON Lines file: the conditions of the call, then the translations in document order, each saved as soon
    as it and all before it are finished. Documents that finished out of order are translated again. The file is removed
    when the block ends without an exception, and kept after an exception or a kill: the next call with the same model,
    documents, ids and settings resumes after the last saved document. A file from a different call is overwritten, with
    a warning.

    Other arguments are those of `translate_documents`; the result equals that of an uninterrupted call. Raises the
    errors of that function, OSError if path cannot be written, ValueError if another process is writing it.
    """
    path = Path(path)
    conditions = {
        "checkpoint": translator.sha256,
        "documents": _hash([list(map(list, documents)), None if ids is None else list(ids)]),
        "decoding": asdict(config),
        "max_tokens": max_tokens,
        "mode": mode,
    }
    if (asked := tag or translator.tag) is not None:
        conditions["tag"] = asked
    if told := {name: options[name] for name in ("fixed", "begin") if options.get(name)}:
        conditions["told"] = _hash({name: [sorted(one.items()) for one in side] for name, side in told.items()})
    if options.get("terms"):
        conditions["terms"] = _hash(options["terms"])
    with _owned(path) as file:
        begun = _read(file, conditions, path)
        if begun:
            print(f"resuming: {len(begun)} of {len(documents)} documents are in {path}", file=sys.stderr)
        count = len(begun)

        def keep(translation: Translation) -> None:
            nonlocal count
            _write(file, asdict(translation))
            count += 1

        try:
            yield translator.translate_documents(
                documents,
                config,
                ids=ids,
                max_tokens=max_tokens,
                mode=mode,
                tag=tag,
                progress=progress,
                begun=begun,
                finished=keep,
                **options,
            )
        except BaseException:
            if count:
                log.warning("%d of %d documents are kept in %s: repeat the call to resume", count, len(documents), path)
            else:
                path.unlink(missing_ok=True)
            raise
        path.unlink(missing_ok=True)


@contextmanager
def _owned(path: Path) -> Iterator[BinaryIO]:
    with path.open("a+b") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"{path}: another process is writing these translations: wait for it") from None
        yield file


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
                found.append(Translation(**record))
                end = file.tell()
        file.truncate(end)
        return found
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


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
