"""Turns requests into jobs for the worker, and its events into responses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from anyio import to_thread
from fastapi import HTTPException, Request

from scaleformer.server.aside import Aside, while_present
from scaleformer.server.corrections import Corrections
from scaleformer.server.metrics import Metrics
from scaleformer.server.models import Chosen, Model, Settings, choose
from scaleformer.server.reading import Prose, Read, read_all
from scaleformer.server.requests import Alternative, FileReport, Options, Timing, TranslatedDocument
from scaleformer.server.sources import ReadAll, Source, Splitting, target_name
from scaleformer.server.worker import Done, Job, Ticket, Worker, Written
from scaleformer.translation.notices import empty_places, is_long
from scaleformer.translation.translations import DocumentHypothesis, Translation
from scaleformer.translation.word_alignments import as_pharaoh

Reader = Callable[[Settings, Splitting, ReadAll], Awaitable[list[Source]]]
Target = Sequence[str] | None  # translations of all segments of a document; None to translate it
PULSE = 10.0  # seconds between the keep-alive comments of a stream


@dataclass(frozen=True)
class Limits:
    """The most that the server accepts.

    body        bytes of a request
    waiting     characters of queued sources
    longest     source tokens translated at once
    seconds     until the response is complete
    requests    in progress at the same time
    per_minute  requests of one address, 0 for no limit
    """

    body: int = 4 << 20
    waiting: int = 4_000_000
    longest: int = 32_768
    seconds: float = 600.0
    requests: int = 200
    per_minute: int = 0


class Service:
    """Opens requests; an `Opened` one gives the `events` and the `answer` of its documents.

    models  one, or several with pairs of languages, by which requests choose
    """

    def __init__(
        self, models: Sequence[Model], limits: Limits, splitting: Splitting, corrections: Corrections | None = None
    ) -> None:
        self.models, self.limits, self.splitting, self.corrections = models, limits, splitting, corrections
        self.metrics = Metrics([model.name for model in models] if len(models) > 1 else ())
        self.worker = Worker(limits.waiting, self.metrics)
        self.aside = Aside()

    @property
    def reads_several(self) -> bool:
        """Whether the models read different languages."""
        return len({model.reads for model in self.models}) > 1

    async def open(
        self,
        request: Request,
        options: Options,
        read: Reader,
        targets: Sequence[Target] | None = None,
        chosen: Chosen | None = None,
    ) -> Opened:
        """Queue the documents of a request. Raises HTTPException, also if the client disconnects.

        read     gives them, as `open_documents` and `open_upload` do
        targets  the translations of those that have some
        chosen   the model; None for the one that the options name, or the language of the documents
        """
        return await while_present(request, self._open(options, read, targets, chosen))

    async def _chosen(self, options: Options, read: Reader) -> Chosen:
        """The model that the options choose. Raises ValueError as `choose`."""
        if len(self.models) == 1 and options.target_language is None:
            return Chosen(self.models[0])
        if options.tag is not None and options.target_language is not None:
            raise ValueError("options.tag and options.target_language both name a language: leave one of them out")
        text = None
        if options.source_language is None and self.reads_several:
            sources = await read(Options().settings(self.models[0], None), self.splitting, self._read)
            text = " ".join(segment for source in sources for segment in source.segments)
        return await to_thread.run_sync(choose, self.models, options.source_language, options.target_language, text)

    async def _open(
        self, options: Options, read: Reader, targets: Sequence[Target] | None, chosen: Chosen | None
    ) -> Opened:
        deadline = time.monotonic() + self.limits.seconds
        try:
            model, tag, _ = chosen or await self._chosen(options, read)
            settings = options.settings(model, tag)
            sources = await read(settings, self.splitting, self._read)
            size = sum(source.size for source in sources)
            if self.corrections is not None:
                sources = await self.aside.in_thread(partial(self.corrections.fill, sources, settings), size)
            sizes = await self.aside.in_thread(partial(self._measure, sources), size)
            given = _given(sources, targets)
        except ValueError as error:
            raise HTTPException(422, " ".join(str(error).split("\n"))) from None
        ticket = Ticket()
        jobs = [
            Job(ticket, number, source, tokens, size)
            for number, (source, (tokens, size)) in enumerate(zip(sources, sizes, strict=True))
            if number not in given
        ]
        if (queued := sum(job.size for job in jobs)) > self.limits.waiting:
            raise HTTPException(413, f"{queued:,} characters, more than {self.limits.waiting:,}: send them in parts")
        self.worker.submit(jobs)
        for number, translation in given.items():
            ticket.tell(Done(number, translation))
        return Opened(self, model, sources, size, ticket, deadline)

    def _measure(self, sources: Sequence[Source]) -> list[tuple[int, int]]:
        """Tokens and characters of each source. Raises ValueError if one is too long to translate at once."""
        sizes = []
        for source in sources:
            translator = source.settings.model.translator.of(source.settings.tag)
            translator.tag_tokens(source.settings.tag)
            counts = [len(tokens) + 1 for tokens in translator.source_tokenizer.encode_batch(source.segments)]
            pieces = source.settings.max_tokens if source.settings.mode == "document" else 0
            most = sum(counts) if pieces is None else max([*counts, min(sum(counts), pieces)], default=0)
            if most > self.limits.longest:
                cut = (
                    f"options.max_tokens={self.limits.longest} cuts it between segments"
                    if pieces is None
                    else "split it"
                )
                raise ValueError(f"{source.name}: {most:,} source tokens, more than {self.limits.longest:,}: {cut}")
            read = chain(*source.forced.known, source.forced.fixed.values(), source.draft or (), source.segments)
            sizes.append((sum(counts), sum(map(len, read)) + len(counts) + 1))
        return sizes

    async def _read(self, proses: Sequence[Prose]) -> Sequence[Read]:
        return await self.aside.apart(partial(read_all, proses), sum(prose.size for prose in proses)) if proses else []


@dataclass(frozen=True)
class Opened:
    """A request whose documents are queued; size: how much there is to read."""

    _service: Service
    model: Model
    sources: Sequence[Source]
    _size: int
    _ticket: Ticket
    _deadline: float

    def cancel(self) -> None:
        """Give the request up."""
        self._service.worker.cancel(self._ticket)

    async def events(self) -> AsyncGenerator[Written | Done | None, None]:
        """Segments and documents as they are finished, each once; None from time to time as a sign of life.
        Raises HTTPException if the request fails or exceeds its time limit."""
        sent = Counter[int]()
        left = len(self.sources)
        try:
            while left:
                seconds = self._deadline - time.monotonic()
                if seconds <= 0:
                    raise HTTPException(504, f"not finished in {self._service.limits.seconds:g} s: send less at once")
                try:
                    event = await asyncio.wait_for(self._ticket.events.get(), min(seconds, PULSE))
                except asyncio.TimeoutError:
                    yield None
                    continue
                if isinstance(event, HTTPException):
                    raise event
                if isinstance(event, Written):
                    end = event.start + len(event.texts)
                    if end <= sent[event.document]:  # a failed batch was translated again
                        continue
                    sent[event.document] = end
                left -= isinstance(event, Done)
                yield event
        finally:
            self.cancel()

    async def wait(self, request: Request) -> list[Done]:
        """All documents in order. Raises HTTPException, also if the client disconnects."""
        found = await while_present(request, self._done())
        return [found[number] for number in range(len(self.sources))]

    async def _done(self) -> dict[int, Done]:
        async with aclosing(self.events()) as events:
            return {event.document: event async for event in events if isinstance(event, Done)}

    def timing(self) -> Timing:
        """Valid once all documents are finished."""
        ticket = self._ticket
        begun = ticket.begun or ticket.submitted
        return Timing(waiting=round(begun - ticket.submitted, 4), translating=round((ticket.ended or begun) - begun, 4))

    async def answer(self, done: Done) -> TranslatedDocument:
        """The response for a document."""
        source, segments = self.sources[done.document], done.translation.hypotheses[0].segments
        found = await self._service.aside.in_thread(partial(self._answer, source, done), self._size)
        if isinstance(source.file, Prose):
            content, notes = await self._service.aside.apart(partial(source.file.write, segments), self._size)
            found.source, found.text, found.notes = list(source.segments), content.decode(), dict(notes)
        return found

    def _answer(self, source: Source, done: Done) -> TranslatedDocument:
        translation = done.translation
        best, *_ = translation.hypotheses
        found = TranslatedDocument(
            id=source.name, target=list(best.segments), finished=best.finished, score=best.score,
            log_probability=best.log_probability, source_tokens=translation.source_tokens, cut=list(best.cut),
            long=self._long(source.segments), empty=empty_places(source.segments, translation),
            shared=list(best.shared), changed=_changed(source.draft, best.segments), alignments=in_pharaoh(done),
            remembered=list(source.remembered), **in_numbers(translation),
        )  # fmt: skip
        if source.settings.decoding.n_best > 1:
            found.n_best = [
                Alternative(
                    target=list(h.segments), **{k: getattr(h, k) for k in ("score", "log_probability", "finished")}
                )
                for h in translation.hypotheses
            ]
        return found

    def _long(self, segments: Sequence[str]) -> list[int]:
        translator = self.model.translator
        tokens = translator.source_tokenizer.encode_batch(segments)
        return [i for i, each in enumerate(tokens) if is_long(each, translator.longest_segment)]

    async def file(self, name: str, translations: Sequence[Translation]) -> tuple[FileReport, bytes]:
        """The report on the translated file, and its content."""
        file, notes = self.sources[0].file, dict[str, int]()
        if isinstance(file, Prose):
            write = partial(file.write, translations[0].segments)
            content, notes = await self._service.aside.apart(write, self._size)
        else:
            assert file is not None
            content = await self._service.aside.in_thread(partial(file.write, translations, Counter()), self._size)
        report = await self._service.aside.in_thread(partial(self._report, name, translations, notes), self._size)
        return report, content

    def _report(self, name: str, translations: Sequence[Translation], notes: Mapping[str, int]) -> FileReport:
        pairs = list(zip(self.sources, translations, strict=True))
        first = self.sources[0]
        language = first.file.language if isinstance(first.file, Prose) else self.model.reads
        return FileReport(
            name=target_name(name, language, self.model.target_language(first.settings.tag)),
            documents=len(pairs),
            segments=sum(translation.source_segments for translation in translations),
            finished=all(translation.finished for translation in translations),
            cut=sum(len(translation.cut) for translation in translations),
            long=sum(len(self._long(source.segments)) for source, _ in pairs),
            empty=sum(len(empty_places(source.segments, translation)) for source, translation in pairs),
            notes=dict(notes),
            timing=self.timing(),
        )


def _given(sources: Sequence[Source], targets: Sequence[Target] | None) -> dict[int, Translation]:
    """The translations that came with the request, by number. Raises ValueError for other numbers of segments."""
    if targets is None:
        return {}
    if len(targets) != len(sources):
        raise ValueError(f"targets: of {len(targets)} documents, wanted {len(sources)}")
    found = {}
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        if target is not None:
            if len(target) != len(source.segments):
                raise ValueError(f"{source.name}: {len(target)} target segments, wanted {len(source.segments)}")
            found[number] = Translation((DocumentHypothesis(tuple(target), 0.0, 0.0, True),), len(target), 0)
    return found


def in_pharaoh(done: Done) -> list[str] | None:
    """The alignments of a document as an answer has them; None where none were requested."""
    return None if done.alignments is None else list(map(as_pharaoh, done.alignments))


def in_numbers(translation: Translation) -> dict[str, Any]:
    """The confidence of a translation and its reasons as an answer has them; nothing where it was not judged."""
    some = translation.judged
    how = [one and one.expected for one in some], [list(one.reasons) if one else [] for one in some]
    return dict(zip(("confidence", "reasons"), how, strict=True)) if some else {}


def _changed(draft: Sequence[str] | None, segments: Sequence[str]) -> list[int] | None:
    """The segments that differ from a draft; None without one."""
    return None if draft is None else [n for n, text in enumerate(segments) if [text] != list(draft[n : n + 1])]
