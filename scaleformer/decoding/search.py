"""Search for translations: greedy, beam, sampling.

The search uses four methods of a model (`DecodableModel`): it encodes once, then decodes one position of all rows per
step. Each row has its own state; earlier tokens are never fed again.

Letters: B documents, K rows a document (beams or samples), row = b * K + k, A documents still in the batch, V words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from scaleformer.decoding.active import Active, Watch
from scaleformer.decoding.config import DecodingConfig
from scaleformer.decoding.history import History
from scaleformer.decoding.rules import Rule, make_rules
from scaleformer.decoding.sampling import Draws, sample
from scaleformer.decoding.state import Rows, SourceSegments, replay
from scaleformer.vocabulary import EOS, is_separator


class DecodableModel(Protocol):
    """The interface that decoding needs; states are opaque. See `scaleformer.model.transformer`.

    The search overwrites the logits of a step.
    """

    @property
    def most_target_tokens(self) -> float: ...

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> Any: ...

    def init_state(self, encoded: Any, beams: int) -> Any: ...

    def step(self, tokens: Tensor, segments: Tensor, state: Any) -> tuple[Tensor, Any]: ...

    def reorder(self, state: Any, rows: Tensor, documents: Tensor | None) -> Any: ...


@dataclass(frozen=True)
class Hypothesis:
    """One translation. `tokens` excludes `<s>` and `</s>`; log_probability covers all tokens and `</s>` under the model
    and its cache (natural logarithm, fp32); score ranks hypotheses by the tokens that were not forced;
    finished is False if a length limit cut the document or one of its segments."""

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    finished: bool


@torch.inference_mode()
def decode(
    model: DecodableModel, source: Tensor, source_mask: Tensor, source_segments: Tensor, config: DecodingConfig, *,
    keys: Sequence[str] | None = None, progress: Callable[[int, float], None] | None = None,
    forced: Sequence[Mapping[int, Sequence[int]]] = (), watch: Watch | None = None,
    begun: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:  # fmt: skip
    """Translate a batch: `n_best` hypotheses per document, finished ones first, then by score.

    source           (B, S) long
    source_mask      (B, S) bool, True = real token
    source_segments  (B, S) long, the number of `<sep>` before each token
    keys             names of the documents (default: their places); samples depend on config.seed and the name only
    progress         called from time to time with the number of tokens written since the last call, one row per
                     document, and the share of segments that is translated
    forced           for each document the tokens with which the translations of source segments begin; with `<sep>` at
                     the end they are the whole translation
    watch            called as often for each unfinished document with its place and, if it has a single row, its new
                     tokens; if it returns False, the document is given up and its partial translation returned
    begun            tokens of each document that the model has read already, without a separator; then the search ends
                     with the separator that consumes the first source segment. With beams, all are empty

    The model must be in evaluation mode; its length limit (learned positions) also limits the search. A beam search may
    find fewer than n_best hypotheses. Raises ValueError if shapes differ, tokens are forced without match_segments, or
    the model gives NaN.
    """
    if source.dim() != 2 or source.shape[0] == 0 or not source.shape == source_mask.shape == source_segments.shape:
        shapes = ", ".join(str(tuple(t.shape)) for t in (source, source_mask, source_segments))
        raise ValueError(f"source, source_mask and source_segments have shapes {shapes}; wanted one (B, S) with B >= 1")
    if any(forced) and not config.match_segments:
        raise ValueError("forced tokens belong to source segments: wanted match_segments=true")
    search = Beam if config.strategy == "beam" else Rollout
    segments = SourceSegments(source, source_mask, source_segments, forced)
    closed = bool(getattr(model, "ends_with_segments", False))
    rows = Rows(segments, config, model.most_target_tokens, begun is not None, closed)
    rules = make_rules(rows, segments, config)
    if begun is not None and any(begun):
        replay(rows, rules, begun)
    keys = keys or [str(place) for place in range(len(source))]
    state = model.init_state(model.encode(source, source_mask, source_segments), config.rows)
    return search(rows, rules, config, Active(rows, progress, watch), keys).run(model, state)


class Search:
    """The steps that all strategies share; they differ in the tokens that they choose.

    held (n, A, K) double: what a strategy keeps of each row; result (n+1, B, K): the same at the end, and `Rows.cut`
    """

    held: Tensor

    def __init__(
        self, rows: Rows, rules: Sequence[Rule], config: DecodingConfig, active: Active, keys: Sequence[str]
    ) -> None:
        self.rows, self.rules, self.config, self.active, self.keys = rows, rules, config, active, keys
        self.history = History(len(rows.limits))

    def choose(self, step: int, logs: Tensor, allowed: Tensor) -> tuple[Tensor, ...]:
        """The next tokens (A, K) and, unless each row continues itself, the places (A, K) of the rows that they
        continue in their documents; from log-probabilities (A*K, V), and from the logits that the rules leave."""
        raise NotImplementedError

    def hypotheses(self, document: int) -> list[Hypothesis]:
        """The best ones of a document, from `result` and `history`."""
        raise NotImplementedError

    def run(self, model: DecodableModel, state: Any) -> list[list[Hypothesis]]:
        rows, active, history = self.rows, self.active, self.history
        B, K = len(rows.limits), self.config.rows
        self.result = torch.zeros(len(self.held) + 1, B, K, dtype=torch.double)
        for step in range(active.steps):
            logits, state = model.step(rows.token, rows.segments, state)
            # One check suffices for weights that are not finite; a check at every step would wait for the device.
            if step == 0 and bool(logits.isnan().any()):
                raise ValueError("the model gives NaN logits: its weights are not finite; use an earlier checkpoint")
            logits = logits.float()
            logs = logits.log_softmax(1)
            for rule in self.rules:
                rule.read(rows, logits)
            for rule in self.rules:
                rule.allow(rows, logits)
            tokens, *parents = self.choose(step, logs, logits)
            history.append(tokens, *parents)
            continued = keep = None
            for parent in parents:
                continued = (torch.arange(0, len(rows.token), K, device=parent.device)[:, None] + parent).flatten()
                self._reorder(continued, None)
            consumed = rows.advance(tokens.flatten())
            for rule in self.rules:
                rule.advance(rows, consumed)
            active.done = active.done | ~rows.running.view(-1, K).any(1)
            if (keep := active.keep(step, rows, history)) is not None:
                history.flush(active.places)
                self.result[:, active.places.cpu()] = torch.cat([self.held, rows.cut.view(1, -1, K)]).cpu()
                if len(keep) == 0:
                    break
                kept = (keep[:, None] * K + torch.arange(K, device=keep.device)).flatten()  # (A'*K,)
                self._reorder(kept, keep)
                self.held = self.held[:, keep]
                active.drop(keep)
                continued = kept if continued is None else continued[kept]
            if continued is not None:
                state = model.reorder(state, continued, keep)
        history.close()
        return [self.hypotheses(document) for document in range(B)]

    def _reorder(self, kept: Tensor, documents: Tensor | None) -> None:
        self.rows.reorder(kept, documents)
        for rule in self.rules:
            rule.reorder(kept, documents)


class Rollout(Search):
    """Greedy search and sampling: rows are independent.

    held: log-probability and tokens, with `</s>`; those of what was not forced; whether the end was written
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        config, limits = self.config, self.rows.limits
        self.held = torch.zeros(5, len(limits), config.rows, dtype=torch.double, device=limits.device)
        self.draws = None
        if config.strategy == "sample":
            self.draws = Draws(config.seed, self.keys, config.rows, limits.device)

    def choose(self, step: int, logs: Tensor, allowed: Tensor) -> tuple[Tensor, ...]:
        if self.draws is None:
            token = allowed.argmax(1)
        else:
            token = sample(allowed, self.config, self.draws.take(step, self.active.places))
        log_probability = logs.gather(1, token[:, None])[:, 0]
        # Finished rows still take part in each step, but their recorded results must not change.
        running, free = self.rows.running, self.rows.running & ~self.rows.forced
        new = [part for rows in (running, free) for part in (torch.where(rows, log_probability, 0.0), rows)]
        self.held = self.held + torch.stack([*new, running & self.rows.ends(token)]).view(self.held.shape)
        return (token.view(-1, self.config.rows),)

    def hypotheses(self, document: int) -> list[Hypothesis]:
        found = []
        for k, (log_probability, n, merit, free, end, cut) in enumerate(self.result[:, document].T.tolist()):
            score = merit / max(free, 1) ** self.config.length_penalty
            tokens = self.history.read(document, k, int(n))
            tokens = tokens[:-1] if tokens[-1:] == (EOS,) else tokens
            found.append(Hypothesis(tokens, log_probability, score, bool(end and not cut)))
        return sorted(found, key=lambda h: -h.score)


class Beam(Search):
    """Beam search. Each step ranks 2K continuations of the K live hypotheses: of the first K, those that end are kept
    as finished; the first K that do not end stay live.

    A document is done when no live hypothesis can still beat the n-th best finished one: log-probabilities only
    decrease, so log-probability / limit ** alpha bounds the score. With alpha > 0 this bound is loose; so a document is
    also done when K hypotheses are finished and the best live one, scored at its current length, ranks below them all,
    as in transformers.

    Forced tokens do not count in this ranking: all hypotheses must write them, however improbable, and otherwise those
    that delay them would displace the others.

    held: log-probability of each live hypothesis, and its merit, of what was not forced;
    the log-probability when the document was finished; then of each finished hypothesis score, log-probability, tokens
    before the last one, its row, whether a segment was cut, the last token
    """

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.limits = self.rows.limits.tolist()
        size = 9, len(self.limits), self.config.rows
        self.held = torch.zeros(size, dtype=torch.double, device=self.rows.limits.device)
        self.held[:3, :, 1:] = -math.inf  # the K rows start identical: only one of them counts
        self.held[3] = -math.inf

    def choose(self, step: int, logs: Tensor, allowed: Tensor) -> tuple[Tensor, ...]:
        rows, active = self.rows, self.active
        A, K, alpha = len(active.done), self.config.rows, self.config.length_penalty
        total, merit, unfinished, *_ = self.held  # (A, K)
        best, tokens = allowed.topk(min(2 * K, allowed.shape[1]))  # (A*K, W)
        gain = logs.gather(1, tokens).masked_fill(best == -math.inf, -math.inf)
        worth = gain.masked_fill(rows.forced[:, None] & (gain > -math.inf), 0.0)
        merits, place = (merit.view(A * K, 1) + worth).view(A, -1).topk(2 * K)  # (A, 2K)
        totals = (total.view(A * K, 1) + gain).view(A, -1).gather(1, place)
        parent = place // best.shape[1]
        token = tokens.view(A, -1).gather(1, place)
        end = self.rows.ends(token, parent)

        running = ~active.done[:, None]
        ends = end[:, :K] & (totals[:, :K] > -math.inf) & running
        length = step + 1 - rows.forced_tokens  # all of them, of what has ended
        score = (merits[:, :K] / length**alpha).masked_fill(~ends, -math.inf)
        cut, ending = (values.view(A, K).gather(1, parent[:, :K]) for values in (rows.cut, rows.ending))
        cut = cut | (ending & is_separator(token[:, :K]))  # by the separator with which a hypothesis may end
        new = torch.stack([score, totals[:, :K], torch.full_like(score, step), parent[:, :K], cut, token[:, :K]])
        finished = torch.cat([self.held[3:], new], 2)  # (6, A, 2K)
        finished = finished.gather(2, finished[0].topk(K).indices.expand(6, A, K))

        live = end.int().argsort(dim=1, stable=True)[:, :K]  # each row ends at most once: at least K of 2K stay live
        merit, total, parent, token = (values.gather(1, live) for values in (merits, totals, parent, token))
        self.held = torch.cat([torch.stack([total, merit, torch.where(running, total, unfinished)]), finished])
        for most, place in ((rows.limits, self.config.n_best - 1), (torch.full_like(rows.limits, step + 1), -1)):
            reach = (most[:, None] - rows.forced_tokens).clamp(min=1)  # (A, 1)
            beaten = merit[:, :1] / reach.double() ** alpha <= finished[0, :, place, None]  # -inf: nothing finished
            active.done = active.done | beaten[:, 0]
        return token, parent

    def hypotheses(self, document: int) -> list[Hypothesis]:
        _, _, rest, *ends, _ = self.result[:, document].tolist()
        limit, n_best = self.limits[document], self.config.n_best
        found = []
        for score, log_probability, n, row, cut, last in zip(*ends, strict=True):
            if score > -math.inf:
                tokens = self.history.read(document, int(row), int(n))
                tokens = tokens if last == EOS else (*tokens, int(last))
                found.append(Hypothesis(tokens, log_probability, score, not cut))
        for row, log_probability in sorted(enumerate(rest), key=lambda entry: -entry[1]):
            if len(found) < n_best and log_probability > -math.inf:
                score = log_probability / limit**self.config.length_penalty
                found.append(Hypothesis(self.history.read(document, row, limit), log_probability, score, False))
        return found[:n_best]
