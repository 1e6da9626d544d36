"""Measures models on documents longer than in training: one text at many lengths, in several modes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scaleformer import __version__
from scaleformer.decoding.config import DecodingConfig
from scaleformer.evaluation.length.decoding import ViewTranslation, translate_views
from scaleformer.evaluation.length.documents import LengthSet, trained_length
from scaleformer.evaluation.length.scores import by_size, score_translations
from scaleformer.evaluation.length.views import Unit, ViewMode, Window, views
from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.saved_translations import TranslatedDocument
from scaleformer.evaluation.teacher_forcing import EncodedDocument, loss_by_position, token_losses
from scaleformer.system.bars import Progress
from scaleformer.system.measure import measured
from scaleformer.system.provenance import write_result
from scaleformer.translation.translator import Translator

FORMAT = 1
Bar = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class System:
    """A model and its display name."""

    name: str
    translator: Translator

    @property
    def trained(self) -> tuple[Unit, int] | None:
        """Unit and size of the longest example in its training; see `trained_length`."""
        return trained_length(self.translator.config)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        translator, trained = self.translator, self.trained
        return {
            "name": self.name,
            "checkpoint": {"path": str(translator.path), "sha256": translator.sha256},
            "parameters": sum(p.numel() for p in translator.model.parameters()),
            "tokenizer": translator.target_tokenizer.hash,
            "trained": None if trained is None else {"unit": trained[0], "size": trained[1]},
        }


@dataclass(frozen=True)
class Protocol:
    """What to measure at every length.

    modes   see `scaleformer.evaluation.length.views.views`
    window  for the mode window
    loss, decode  whether to compute the teacher-forced loss, and translations
    metrics       how texts are compared
    loss_tokens   most source and target tokens, padding included, in a batch of the loss
    Raises ValueError where there is nothing to measure.
    """

    decoding: DecodingConfig
    modes: tuple[ViewMode, ...] = ("pass", "segments", "window")
    window: Window | None = None
    loss: bool = True
    decode: bool = True
    metrics: Metrics = field(default_factory=Metrics)
    loss_tokens: int = 8192

    def __post_init__(self) -> None:
        if not (self.loss or self.decode):
            raise ValueError("loss=false, decode=false: set one of them to true")
        if "window" in self.modes and self.window is None:
            raise ValueError("mode window: the run does not give its size: set window.size and window.unit")
        if self.decoding.n_best != 1:
            raise ValueError(
                f"decoding.n_best is {self.decoding.n_best}: it must be 1, since only the best translation is scored"
            )


class Cache:
    """Measurements in files named by the hash of all their inputs, so that a repeated call continues."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def get(self, key: Mapping[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The value stored under the key, or else the result of `make`, which is stored. A damaged file is replaced."""
        text = json.dumps(key, sort_keys=True)
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["key"] == json.loads(text):
                return kept["value"]
        except (OSError, ValueError, KeyError, TypeError):
            pass
        value = make()
        write_result(path, {"key": key, "value": value})
        return value


@dataclass(frozen=True)
class Measurement:
    """One system in one mode at one length: a member of `results` in docs/result-files.md, and its inputs."""

    system: str
    mode: str
    length: LengthSet
    loss: dict[str, Any] | None
    decode: dict[str, Any] | None
    by_size: list[dict[str, Any]]
    translated: list[TranslatedDocument] | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "system": self.system,
            "mode": self.mode,
            "length": self.length.spec.label,
            "loss": self.loss,
            "decode": self.decode,
            "by_size": self.by_size,
        }


def measure_all(
    systems: Sequence[System], sets: Sequence[LengthSet], options: Protocol, cache: Cache, bar: Bar
) -> list[Measurement]:
    """All systems in all modes at all lengths; each measurement is cached as soon as it is complete.

    bar: returns the progress function of a piece of work, given its description; as `translation_bar`.
    """
    return [
        _measure(system, mode, length, options, cache, bar)
        for system in systems
        for length in sets
        for mode in options.modes
    ]


def _measure(
    system: System, mode: ViewMode, length: LengthSet, options: Protocol, cache: Cache, bar: Bar
) -> Measurement:
    translator, documents = system.translator, length.documents
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    encoded = [EncodedDocument.of(d.source, d.target, tokenizers) for d in documents]
    seen = [views(mode, [len(tokens) for tokens in e.source], options.window) for e in encoded]
    title = f"{system.name}, {mode}, {length.spec.label}"
    key = {
        "format": [FORMAT, __version__],
        "checkpoint": translator.sha256,
        "documents": _digest([[d.source, d.target] for d in documents]),
        "views": _digest([[[v.start, v.new, v.stop] for v in of_one] for of_one in seen]),
        "device": translator.device.type,
    }

    def losses() -> dict[str, Any]:
        with bar(f"{title}: loss") as progress, measured(translator.device) as cost:
            found = token_losses(translator.model, encoded, seen, options.loss_tokens, progress)
        total = sum(len(loss) for loss in found)
        return {
            "nats_per_token": float(sum(loss.sum() for loss in found) / total),
            "tokens": total,
            "documents": [float(loss.mean()) for loss in found],
            "document_tokens": [len(loss) for loss in found],
            "by_position": loss_by_position(found),
            "cost": {**cost.to_dict(), "batch_tokens": options.loss_tokens},
        }

    def translations() -> dict[str, Any]:
        sources = [e.source for e in encoded]
        with bar(f"{title}: translation") as progress, measured(translator.device) as cost:
            found = translate_views(translator.model, sources, seen, options.decoding, translator.device, progress)
        return {
            "hypotheses": [_segments(t, translator, mode) for t in found],
            "finished": [t.finished for t in found],
            "tokens_written": sum(len(t.tokens) for t in found),
            "cost": {**cost.to_dict(), "batch_tokens": options.decoding.batch_tokens},
        }

    loss = decode = translated = None
    if options.loss:
        loss = cache.get({**key, "kind": "loss", "batch_tokens": options.loss_tokens}, losses)
    if options.decode:
        one_segment = mode == "segments"
        made = cache.get(
            {**key, "kind": "translation", "decoding": asdict(options.decoding), "one_segment": one_segment},
            translations,
        )
        translated = [
            TranslatedDocument(d.id, d.source, d.target, hypothesis, finished)
            for d, hypothesis, finished in zip(documents, made["hypotheses"], made["finished"], strict=True)
        ]
        scored = score_translations(translated, options.metrics)
        decode = {**scored, "tokens_written": made["tokens_written"], "cost": made["cost"]}
    sizes: list[dict[str, Any]] = []
    trained = system.trained
    if length.spec.unit == "document" and trained is not None and trained[0] == "tokens":
        sizes = by_size(documents, trained[1], options.metrics, translated, loss)
    return Measurement(system.name, mode, length, loss, decode, sizes, translated)


def _segments(translation: ViewTranslation, translator: Translator, mode: str) -> list[str]:
    """The written segments; in mode segments each view is one, whatever `<sep>` the model wrote in it."""
    decode = translator.target_tokenizer.decode_segments
    if mode == "segments":
        return [" ".join(decode(part)) for part in translation.parts]
    return decode(translation.tokens)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, ensure_ascii=False).encode()).hexdigest()


def default_window(trained: tuple[Unit, int] | None) -> Window | None:
    """A window of the trained length, half of it context; None if that is unknown."""
    return None if trained is None else Window(trained[0], trained[1], trained[1] // 2)
