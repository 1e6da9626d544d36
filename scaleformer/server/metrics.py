"""Metrics of a server, for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
DOCUMENTS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one server, in their own registry. models: the names of several models, as labels of what they
    translate."""

    def __init__(self, models: Sequence[str] = ()) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "scaleformer_requests", "Requests by path and status", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "scaleformer_request_seconds", "From a request to the end of its answer", ["path"], buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self.waited = Histogram(
            "scaleformer_waited_seconds", "From a request to its first batch", buckets=SECONDS, registry=registry
        )
        self.batch = Histogram(
            "scaleformer_batch_documents", "Documents per batch", buckets=DOCUMENTS, registry=registry
        )
        self.busy = Counter("scaleformer_busy_seconds", "Seconds spent translating", registry=registry)
        self.waiting = Gauge("scaleformer_waiting_documents", "Documents waiting", registry=registry)
        translated = {"documents": "Documents", "segments": "Source segments", "source_tokens": "Source tokens"}
        self._models, self._translated = models, dict[str, Counter]()
        for name, text in translated.items():
            labels = ["model"] if models else []
            self._translated[name] = Counter(f"scaleformer_{name}", f"{text} translated", labels, registry=registry)
            for model in models:  # so that all are named before they translate
                self.count(model, name, 0)
        self.given_up = Counter("scaleformer_given_up_documents", "Documents abandoned by clients", registry=registry)

    def count(self, model: str, name: str, number: int) -> None:
        """Count documents, segments or source_tokens that a model has translated."""
        counter = self._translated[name]
        (counter.labels(model) if self._models else counter).inc(number)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
