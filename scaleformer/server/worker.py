"""The translating thread: documents of different requests share a batch if their settings are equal."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import ceil

from fastapi import HTTPException

from scaleformer.server.metrics import Metrics
from scaleformer.server.sources import Source
from scaleformer.system.allocator import give_back_memory
from scaleformer.system.errors import is_out_of_memory, one_line
from scaleformer.translation.request import Listener
from scaleformer.translation.translations import Translation
from scaleformer.translation.word_alignments import Links, align_words

log = logging.getLogger(__name__)

GIVE_BACK_EVERY = 10.0  # seconds: bodies and documents of all sizes leave holes that would add up


@dataclass(frozen=True)
class Written:
    """Final segments of a document."""

    document: int
    start: int
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    """A translated document; alignments of its segments with `Settings.align`, else None."""

    document: int
    translation: Translation
    alignments: Sequence[Links] | None = None


def ending() -> HTTPException:
    """The server is shutting down."""
    return HTTPException(503, "the server is shutting down: try again when it is back")


@dataclass(eq=False)
class Ticket:
    """A request: `events` receives the results of its documents, in the event loop that created it.

    wanted  False once the client has given up
    submitted, begun, ended  seconds of the monotonic clock
    """

    events: asyncio.Queue[Written | Done | HTTPException] = field(default_factory=asyncio.Queue)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    wanted: bool = True
    submitted: float = field(default_factory=time.monotonic)
    begun: float | None = None
    ended: float | None = None

    def tell(self, event: Written | Done | HTTPException) -> None:
        """Queue an event, from any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody listens
            self.loop.call_soon_threadsafe(self.events.put_nowait, event)


@dataclass(frozen=True, eq=False)
class Job:
    """A document of a request, its number there; tokens, size (characters): of its source."""

    ticket: Ticket
    document: int
    source: Source
    tokens: int
    size: int


class Worker:
    """Translates jobs in order of arrival; jobs with the settings of the first one join its batch.

    room  the most characters in the queue
    """

    def __init__(self, room: int, metrics: Metrics) -> None:
        self.room, self._metrics = room, metrics
        self._waiting: deque[Job] = deque()
        self._size = 0  # characters in the queue
        self._rate = 1000.0  # characters a second
        self._ending = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="translating", daemon=True)
        self._thread.start()

    @property
    def ending(self) -> bool:
        """Whether new requests are rejected."""
        return self._ending

    @property
    def waiting(self) -> int:
        """Documents in the queue."""
        return len(self._waiting)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue all documents of a request or none. Raises HTTPException where there is no room, or soon no server."""
        size = sum(job.size for job in jobs)
        with self._changed:
            if self._ending:
                raise ending()
            if self._size and self._size + size > self.room:
                seconds = str(min(60, ceil(self._size / self._rate)))
                raise HTTPException(429, f"the queue is full: try again in {seconds} s", {"Retry-After": seconds})
            self._set([*self._waiting, *jobs])
            self._changed.notify()

    def cancel(self, ticket: Ticket) -> None:
        """Give a request up: drop its waiting documents and stop decoding the others."""
        ticket.wanted = False
        with self._changed:
            self._set([job for job in self._waiting if job.ticket is not ticket])

    def end(self) -> None:
        """Reject new requests and finish those that have started; waiting ones fail with 503."""
        with self._changed:
            self._ending = True
            for ticket in {job.ticket for job in self._waiting if job.ticket.begun is None}:
                ticket.tell(ending())
            self._set([job for job in self._waiting if job.ticket.begun is not None])
            self._changed.notify()

    def join(self) -> None:
        """Wait until all started requests are finished."""
        self._thread.join()

    def _set(self, jobs: list[Job]) -> None:
        self._waiting, self._size = deque(jobs), sum(job.size for job in jobs)
        self._metrics.waiting.set(len(jobs))

    def _work(self) -> None:
        returned = time.monotonic()
        while batch := self._take():
            started = time.monotonic()
            for job in batch:
                if job.ticket.begun is None:
                    job.ticket.begun = started
                    self._metrics.waited.observe(started - job.ticket.submitted)
            self._metrics.batch.observe(len(batch))
            self._translate(batch)
            seconds = max(time.monotonic() - started, 1e-3)
            self._metrics.busy.inc(seconds)
            self._rate += 0.2 * (sum(job.size for job in batch) / seconds - self._rate)
            if time.monotonic() - returned > GIVE_BACK_EVERY:
                give_back_memory()
                returned = time.monotonic()

    def _take(self) -> list[Job]:
        """The jobs of the next batch; none at shutdown."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ending)
            batch: list[Job] = []
            rest: list[Job] = []
            tokens = 0
            for job in self._waiting:
                settings = (batch or [job])[0].source.settings
                most = settings.decoding.batch_tokens // settings.decoding.rows
                if job.source.settings == settings and (not batch or tokens + job.tokens <= most):
                    batch.append(job)
                    tokens += job.tokens
                else:
                    rest.append(job)
            self._set(rest)
            return batch

    def _translate(self, batch: Sequence[Job]) -> None:
        settings = batch[0].source.settings
        model = settings.model
        rest, translator = deque(batch), model.translator.of(settings.tag)

        def watch(document: int, start: int, texts: Sequence[str]) -> bool:
            job = batch[document]
            if texts and job.ticket.wanted:
                job.ticket.tell(Written(job.document, start, tuple(texts)))
            if not any(job.ticket.wanted for job in batch):
                raise _GivenUp
            return job.ticket.wanted

        def finish(translation: Translation) -> None:
            alignments = None
            if settings.align:  # in this thread: the attention of the model gives its weights meanwhile
                tag = translator.tag_tokens(settings.tag)
                [alignments] = align_words(translator, [rest[0].source.segments], [translation], tag)
            job = rest.popleft()
            if settings.confidence and model.confidence is not None:
                what = [job.source.segments], [translation], [job.source.forced], settings.tag
                [translation] = model.confidence.judge(translator, *what)
            self._count(job, translation)
            job.ticket.ended = time.monotonic()
            job.ticket.tell(Done(job.document, translation, alignments))

        try:
            found = [job.source for job in batch]
            what = [(one.segments, one.name, one.draft or (), one.forced) for one in found]
            request = settings.request(*zip(*what, strict=True))
            translator.translate_documents(request, Listener(finished=finish, segments=watch))
        except _GivenUp:
            pass
        except Exception as error:
            if len(batch) == 1:
                batch[0].ticket.tell(_failure(error))
                return
            for job in list(rest):  # one bad document must not fail the others
                self._translate([job])

    def _count(self, job: Job, translation: Translation) -> None:
        if not job.ticket.wanted:
            self._metrics.given_up.inc()
            return
        count = partial(self._metrics.count, job.source.settings.model.name)
        count("documents", 1)
        count("segments", translation.source_segments)
        count("source_tokens", translation.source_tokens)


class _GivenUp(Exception):
    """All requests of the batch were given up."""


def _failure(error: Exception) -> HTTPException:
    if is_out_of_memory(error):
        return HTTPException(507, one_line(error) or "")
    if isinstance(error, ValueError):
        return HTTPException(422, one_line(error) or "")
    log.error("a document could not be translated", exc_info=error)
    return HTTPException(500, f"{type(error).__name__}: internal server error, see the log")
