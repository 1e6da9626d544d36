"""Enforces terms: searches segments that lack one again, with the rest of the document fixed.

Terms are inserted where the model gives their first token the highest probability: instead of a word, and as a
beginning that the model continues; if neither works, before the words there and instead of up to `REPLACED` of them.
The best candidate by log-probability / length ** alpha wins. Complete and fixed segments never change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scaleformer.data.batching import Example
from scaleformer.decoding.search import decode
from scaleformer.decoding.state import pad
from scaleformer.text.terms import Term
from scaleformer.text.words import unspaced
from scaleformer.translation.batches import token_budget
from scaleformer.translation.forced import ForcedTexts
from scaleformer.translation.pieces import Piece, PieceTranslator
from scaleformer.translation.scoring import Floats, target_losses
from scaleformer.translation.terms import missing_from, requirements
from scaleformer.translation.translations import Translation
from scaleformer.vocabulary import EOS, PLACEHOLDERS, SEP, SPACE, steps_of

HELD = 32  # segments that lack a term are translated again in groups of this size
AROUND = 1  # context segments on either side, which cost a step per token of their texts
PLACES = 3  # tried for each term
REPLACED = 3  # the most words that a term may replace
ROUNDS = 5  # the most terms inserted into one segment, one after the other


@dataclass(eq=False)
class _Job:
    """A segment that lacks terms, in a window of its neighbours. All numbers except `piece` and `offset` refer to it.

    sources, texts  the segments of the window and their translations
    first           the segment to translate again
    wanted          how often each target form must occur
    begin           the required beginning of its translation
    """

    piece: int
    offset: int
    sources: list[str]
    texts: list[str]
    first: int
    wanted: Counter[Term]
    begin: str

    @property
    def text(self) -> str:
        return self.texts[self.first]

    @property
    def missing(self) -> Counter[Term]:
        return missing_from(self.text, self.wanted)

    def fits(self, text: str) -> bool:
        """Whether a translation lacks fewer terms than the current one and keeps placeholders and beginning."""
        kept = all(text.count(placeholder) == self.text.count(placeholder) for placeholder in PLACEHOLDERS)
        return kept and text.startswith(self.begin) and self.lacks(text) < self.missing.total()

    def lacks(self, text: str) -> int:
        return missing_from(text, self.wanted).total()


class TermSearch:
    """Enforces the terms of pieces in their translations, which `translator` has made."""

    def __init__(self, translator: PieceTranslator, pieces: Sequence[Piece]) -> None:
        config = replace(translator.config, n_best=1, merge_segments=False)
        self._translator, self._pieces = replace(translator, config=config), pieces
        self._greedy = replace(translator, config=replace(config, strategy="greedy", beam_size=1))
        self._loaded, self._config, self._target = translator.loaded, config, translator.loaded.target_tokenizer

    def enforced(self, parts: Iterator[Translation]) -> Iterator[Translation]:
        """The translations of all pieces in order; only segments that lacked a term differ."""
        held: list[Translation] = []
        jobs: list[_Job] = []
        for number, part in enumerate(parts):
            held.append(part)
            jobs += self._jobs(number, part)
            if not jobs:
                yield held.pop()
            elif len(jobs) >= HELD:
                yield from self._mended(held, jobs, number + 1 - len(held))
                held, jobs = [], []
        yield from self._mended(held, jobs, len(self._pieces) - len(held))

    def _jobs(self, number: int, part: Translation) -> list[_Job]:
        segments, _, forced, terms, *_ = self._pieces[number]
        texts, jobs = part.segments, []
        for first, after, wanted in requirements(segments, part.hypotheses[0], terms):
            if first in forced.fixed or not missing_from(texts[first], wanted):
                continue
            start, stop = max(0, first - AROUND), min(len(texts), after + AROUND)
            window = list(segments[start:stop]), list(texts[start:stop])
            jobs.append(_Job(number, start, *window, first - start, wanted, forced.begin.get(first, "")))
        return jobs

    def _mended(self, held: Sequence[Translation], jobs: list[_Job], first: int) -> Iterator[Translation]:
        lacking = jobs
        for _ in range(ROUNDS):
            lacking = [job for batch in self._batches(lacking) for job in self._put_in(batch) if job.missing]
        for number, part in enumerate(held, first):
            changed = {job.offset + job.first: job.text for job in jobs if job.piece == number}
            changed = {n: text for n, text in changed.items() if text != part.segments[n]}
            yield self._with(number, part, changed) if changed else part

    def _batches(self, jobs: Sequence[_Job]) -> Iterator[list[_Job]]:
        lengths = {n: PLACES * len(self._source(job)) for n, job in enumerate(jobs)}
        for batch in token_budget(lengths, self._config.batch_tokens):
            yield [jobs[n] for n in batch]

    def _put_in(self, jobs: Sequence[_Job]) -> list[_Job]:
        """Insert one term into each segment of a batch; returns the jobs for which this succeeded."""
        written = [self._tokens(job) for job in jobs]
        forms = [self._form(job) for job in jobs]
        pairs = [(self._source(job), [*first, *own]) for job, (first, own) in zip(jobs, written, strict=True)]
        losses = self._losses(pairs, [form[0] for form in forms])
        begun: list[list[list[int]]] = []
        likely: list[list[list[int]]] = []  # candidates tried first, with the continued ones
        others: list[list[list[int]]] = []
        for job, (first, own), form, loss in zip(jobs, written, forms, losses, strict=True):
            values = loss[len(first) :].tolist()
            places = sorted(self._places(own, form), key=lambda place: values[place])[:PLACES]
            if self._target.decode(own) != job.text:
                places = []  # the vocabulary lacks some of its characters, which would be lost
            starts = [([*own[:place], *self._cased(job, form, place)], self._ends(own, place)) for place in places]
            begun.append([start for start, _ in starts])
            likely.append([[*start, *own[end:]] for start, ends in starts for end in ends[:1]])
            others.append([[*start, *own[end:]] for start, ends in starts for end in ends[1:]])
            others[-1] += [[*start, *own[place:]] for (start, _), place in zip(starts, places, strict=True)]
        for some, more, (_, own), form in zip(likely, self._continued(jobs, begun), written, forms, strict=True):
            some += [whole for whole in more if len(whole) <= 2 * len(own) + len(form) + 5]  # skip runaway repetitions
        before = [first for first, _ in written]
        placed = self._choose(jobs, before, likely)
        rest = [n for n, job in enumerate(jobs) if job not in placed]
        return placed + self._choose([jobs[n] for n in rest], [before[n] for n in rest], [others[n] for n in rest])

    def _source(self, job: _Job) -> list[int]:
        return self._translator.source_tokens(job.sources)

    def _tokens(self, job: _Job) -> tuple[list[int], list[int]]:
        """The tokens before the segment, and those of the segment."""
        encoded = self._target.encode_batch(job.texts[: job.first + 1])
        return [token for tokens in encoded[:-1] for token in (*tokens, SEP)], encoded[-1]

    def _form(self, job: _Job) -> list[int]:
        """The tokens of a missing target form."""
        form = next(iter(job.missing)).target
        tokens = self._target.encode(form)
        return tokens[1:] if unspaced(form[:1]) and self._target.piece(tokens[0]) == SPACE else tokens

    def _places(self, own: Sequence[int], form: Sequence[int]) -> list[int]:
        """Where a form may begin: at each word and after the last; anywhere in a script without spaces."""
        piece = self._target.piece
        spaced = piece(form[0]).startswith(SPACE)
        starts = [n for n, token in enumerate(own) if n == 0 or not spaced or piece(token).startswith(SPACE)]
        return [*starts, len(own)] if own else [0]

    def _ends(self, own: Sequence[int], place: int) -> list[int]:
        """Where words from a place on end: before spaces and punctuation."""
        pieces = [self._target.piece(token) for token in own]
        ends = []
        for n in range(place + 1, len(own) + 1):
            ahead = pieces[n] if n < len(own) else SPACE
            if ahead.startswith(SPACE) or not (ahead[0].isalnum() or ahead.startswith("<0x")):
                ends.append(n)
        return ends[:REPLACED]

    def _cased(self, job: _Job, form: list[int], place: int) -> list[int]:
        """The form, capitalized if it replaces a capitalized word at the beginning."""
        text = self._target.decode(form)
        if place == 0 and job.text[:1].isupper() and text[:1].islower() and text.lower() == text:
            return self._target.encode(text[0].upper() + text[1:])
        return form

    def _continued(self, jobs: Sequence[_Job], begun: Sequence[Sequence[list[int]]]) -> list[list[list[int]]]:
        """The beginnings, continued greedily to the ends of their segments."""
        rows = [(n, start) for n, starts in enumerate(begun) for start in starts]
        whole: list[list[list[int]]] = [[] for _ in jobs]
        if not rows:
            return whole
        before = [[[*t, SEP] for t in self._target.encode_batch(job.texts[: job.first])] for job in jobs]
        forced = [{**dict(enumerate(before[n])), jobs[n].first: start} for n, start in rows]
        ends = [0] * len(rows)

        def watch(row: int, tokens: Sequence[int]) -> bool:
            ends[row] += sum(bool(steps_of(token)) for token in tokens)
            return ends[row] <= jobs[rows[row][0]].first

        source = pad([self._source(jobs[n]) for n, _ in rows], self._loaded.device)
        found = decode(self._loaded.model, *source, self._greedy.config, forced=forced, watch=watch)
        for (n, _), [hypothesis] in zip(rows, found, strict=True):
            own = hypothesis.tokens[sum(map(len, before[n])) :]
            end = next((i for i, token in enumerate(own) if steps_of(token)), None)
            if end is not None:
                whole[n].append(list(own[:end]))
        return whole

    def _choose(
        self, jobs: Sequence[_Job], before: Sequence[list[int]], found: Sequence[Sequence[list[int]]]
    ) -> list[_Job]:
        """Use the best fitting candidate for each job; returns the jobs that have one."""
        rows: list[list[tuple[str, list[int]]]] = []
        for job, some in zip(jobs, found, strict=True):
            texts: dict[str, list[int]] = {}
            for own in some:
                texts.setdefault(self._target.decode(own), own)
            rows.append([(text, own) for text, own in texts.items() if job.fits(text)])
        parts = list(zip(jobs, before, rows, strict=True))
        pairs = [(self._source(job), [*first, *own, SEP]) for job, first, choices in parts for _, own in choices]
        losses, alpha, changed = iter(self._losses(pairs)), self._config.length_penalty, []
        for job, first, choices in parts:
            merits = [
                (-job.lacks(text), -next(losses)[len(first) : -1].sum() / (len(own) + 1) ** alpha)
                for text, own in choices
            ]
            if merits:
                job.texts[job.first] = choices[merits.index(max(merits))][0]
                changed.append(job)
        return changed

    def _losses(self, pairs: Sequence[tuple[list[int], list[int]]], other: Sequence[int] | None = None) -> list[Floats]:
        """`target_losses` of sources and targets; `</s>` is added to the targets."""
        examples = [Example("", np.array(source), np.array([*target, EOS])) for source, target in pairs]
        return target_losses(self._loaded.model, examples, self._config.batch_tokens, other=other)

    def _with(self, number: int, part: Translation, changed: dict[int, str]) -> Translation:
        """A translation with some segments replaced, and its new log-probability."""
        best, piece = part.hypotheses[0], self._pieces[number]
        segments = [changed.get(n, text) for n, text in enumerate(best.segments)]
        fixed = ForcedTexts(dict(enumerate(segments)))
        [whole] = self._greedy.translate([Piece(piece.segments, "", fixed, known=piece.known)])
        log_probability = whole.hypotheses[0].log_probability
        encoded = self._target.encode_batch(segments)
        length = sum(map(len, encoded)) + len(segments) + 1
        score = log_probability / length**self._config.length_penalty
        mended = replace(best, segments=tuple(segments), log_probability=log_probability, score=score)
        return replace(part, hypotheses=(mended,))
