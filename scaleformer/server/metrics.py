"""Metrics of a server, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
DOCUMENTS = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The metrics of one server, in their own registry."""

    def __init__(self) -> None:
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
        self.documents = Counter("scaleformer_documents", "Documents translated", registry=registry)
        self.segments = Counter("scaleformer_segments", "Source segments translated", registry=registry)
        self.source_tokens = Counter("scaleformer_source_tokens", "Source tokens translated", registry=registry)
        self.given_up = Counter("scaleformer_given_up_documents", "Documents abandoned by clients", registry=registry)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
