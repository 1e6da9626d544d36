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
from scaleformer.decoding.draws import Draws
from scaleformer.decoding.history import History
from scaleformer.decoding.state import Rows
from scaleformer.vocabulary import EOS


class DecodableModel(Protocol):
    """The interface that decoding needs; states are opaque. See `scaleformer.model.transformer`.

    The search overwrites the logits of a step.
    """

    @property
    def most_target_tokens(self) -> float: ...

    def encode(self, source: Tensor, source_mask: Tensor, source_segments: Tensor) -> Any: ...

    def init_state(self, memory: Any, beams: int) -> Any: ...

    def step(self, tokens: Tensor, segments: Tensor, state: Any) -> tuple[Tensor, Any]: ...

    def reorder(self, state: Any, rows: Tensor, documents: Tensor | None) -> Any: ...


@dataclass(frozen=True)
class Hypothesis:
    """One translation. `tokens` excludes `<s>` and `</s>`; log_probability covers all tokens and `</s>` under the model
    (natural logarithm, fp32); score ranks hypotheses by the tokens that were not told, with the repetition penalty;
    finished is False if a length limit cut the document or one of its segments."""

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    finished: bool


@torch.inference_mode()
def decode(
    model: DecodableModel,
    source: Tensor,
    source_mask: Tensor,
    source_segments: Tensor,
    config: DecodingConfig,
    *,
    keys: Sequence[str] | None = None,
    progress: Callable[[int, float], None] | None = None,
    told: Sequence[Mapping[int, Sequence[int]]] = (),
    watch: Watch | None = None,
) -> list[list[Hypothesis]]:
    """Translate a batch: `n_best` hypotheses per document, finished ones first, then by score.

    source           (B, S) long
    source_mask      (B, S) bool, True = real token
    source_segments  (B, S) long, the number of `<sep>` before each token
    keys             names of the documents (default: their places); samples depend on config.seed and the name only
    progress         called from time to time with the number of tokens written since the last call, one row per
                     document, and the share of segments that is translated
    told             for each document the tokens with which the translations of source segments begin; with `<sep>` at
                     the end they are the whole translation (`scaleformer.translation.told`)
    watch            called as often for each unfinished document with its place and, if it has a single row, its new
                     tokens; if it returns False, the document is given up and its partial translation returned

    The model must be in evaluation mode; its length limit (learned positions) also limits the search. A beam search may
    find fewer than n_best hypotheses. Raises ValueError if shapes differ, something is told without match_segments, or
    the model gives NaN.
    """
    if source.dim() != 2 or source.shape[0] == 0 or not source.shape == source_mask.shape == source_segments.shape:
        shapes = ", ".join(str(tuple(t.shape)) for t in (source, source_mask, source_segments))
        raise ValueError(f"source, source_mask and source_segments have shapes {shapes}; wanted one (B, S) with B >= 1")
    if any(told) and not config.match_segments:
        raise ValueError("told refers to source segments: wanted match_segments=true")
    rows = Rows(source, source_mask, source_segments, config, told)
    if (most := model.most_target_tokens) < math.inf:
        rows.limits = rows.limits.clamp(max=int(most))
    state = model.init_state(model.encode(source, source_mask, source_segments), config.rows)
    active = Active(rows, progress, watch)
    if config.strategy == "beam":
        return _beam(model, state, rows, active, config)
    draws = None
    if config.strategy == "sample":
        draws = Draws(config.seed, keys or [str(place) for place in range(len(source))], config.rows, source.device)
    return _rollout(model, state, rows, active, config, draws)


def _checked(logits: Tensor, step: int) -> Tensor:
    # One check suffices for weights that are not finite; a check at every step would wait for the device.
    if step == 0 and bool(logits.isnan().any()):
        raise ValueError("the model gives NaN logits: its weights are not finite; use an earlier checkpoint")
    return logits.float()


def _rollout(
    model: DecodableModel,
    state: Any,
    rows: Rows,
    active: Active,
    config: DecodingConfig,
    draws: Draws | None,
) -> list[list[Hypothesis]]:
    """Greedy search, or sampling with `draws`: rows are independent."""
    B, K = len(rows.limits), config.rows
    history = History(B)
    limits = rows.limits.repeat_interleave(K)  # (A*K,)
    total = torch.zeros(B * K, dtype=torch.double, device=limits.device)
    length = torch.zeros_like(limits)  # tokens with </s>
    ended = torch.zeros_like(limits, dtype=torch.bool)  # </s> was written
    merit, free = total, length  # of the tokens that were not told
    result = torch.zeros(6, B, K, dtype=torch.double)  # log-probability, length, ended, a segment was cut; merit, free

    for step in range(active.steps):
        logits, state = model.step(rows.token, rows.segments, state)
        logits = _checked(logits, step)
        weighed = rows.weigh(logits)
        logs = logits.log_softmax(1)
        weighed_logs = logs if weighed is logits else weighed.log_softmax(1)
        allowed = rows.allow(weighed)  # (A*K, V)
        token = allowed.argmax(1) if draws is None else sample(allowed, config, draws.take(step, active.places))
        log_probability = logs.gather(1, token[:, None])[:, 0]
        worth = log_probability if weighed is logits else weighed_logs.gather(1, token[:, None])[:, 0]
        # Finished rows still take part in each step, but their recorded results must not change.
        running = ~ended & (length < limits)
        total = total + torch.where(running, log_probability, 0.0)
        length = length + running
        if rows.told is None and weighed is logits:
            merit, free = total, length
        else:
            chosen = running if rows.told is None else running & ~rows.forced
            merit, free = merit + torch.where(chosen, worth, 0.0), free + chosen
        ended = ended | (running & (token == EOS))
        cut = rows.cut
        rows.advance(token)
        rows.cut = torch.where(running, rows.cut, cut)
        history.append(token.view(-1, K))
        active.done = active.done | (ended | (length >= limits)).view(-1, K).all(1)
        if (keep := active.keep(step, rows, history)) is None:
            continue
        history.flush(active.places)
        values = torch.stack([total, length.double(), ended.double(), rows.cut.double(), merit, free.double()])
        result[:, active.places.cpu()] = values.view(6, -1, K).cpu()
        if len(keep) == 0:
            break
        kept = active.all_rows(keep)
        state = model.reorder(state, kept, keep)
        rows.select(kept, keep)
        active.drop(keep)
        limits, total, length, ended = limits[kept], total[kept], length[kept], ended[kept]
        merit, free = merit[kept], free[kept]
    history.close()

    def hypothesis(b: int, k: int) -> Hypothesis:
        log_probability, n, end, was_cut, merit, free = result[:, b, k].tolist()
        score = merit / max(free, 1) ** config.length_penalty
        return Hypothesis(history.read(b, k, int(n - end)), log_probability, score, bool(end and not was_cut))

    return [sorted((hypothesis(b, k) for k in range(K)), key=lambda h: -h.score) for b in range(B)]


def sample(logits: Tensor, config: DecodingConfig, draws: Tensor) -> Tensor:
    """Sample a token (N,) from each row of logits (N, V) after temperature, top_k and top_p, in this order.

    draws (N,) are uniform over [0, 1): each selects a token by the cumulative distribution.
    """
    logits = logits / config.temperature
    if 0 < config.top_k < logits.shape[1]:
        logits = logits.masked_fill(logits < logits.topk(config.top_k).values[:, -1:], -math.inf)
    if config.top_p < 1:
        ordered, order = logits.softmax(1).sort(1, descending=True)
        outside = ordered.cumsum(1) - ordered >= config.top_p  # the tokens before it already have enough mass
        logits = logits.masked_fill(torch.zeros_like(outside).scatter(1, order, outside), -math.inf)
    # in vocabulary order, in double precision, scaled to the sum so that no draw lies beyond the last token
    mass = logits.softmax(1, dtype=torch.double).cumsum(1)
    return torch.searchsorted(mass, (draws * mass[:, -1])[:, None], right=True)[:, 0]


def _beam(
    model: DecodableModel, state: Any, rows: Rows, active: Active, config: DecodingConfig
) -> list[list[Hypothesis]]:
    """Beam search. Each step ranks 2K continuations of the K live hypotheses: of the first K, those that end are kept
    as finished; the first K that do not end stay live.

    A document is done when no live hypothesis can still beat the n-th best finished one: log-probabilities only
    decrease, so log-probability / limit ** alpha bounds the score. With alpha > 0 this bound is loose; so a document is
    also done when K hypotheses are finished and the best live one, scored at its current length, ranks below them.

    Told tokens do not count in this ranking: all hypotheses must write them, however improbable, and otherwise those
    that delay them would displace the others."""
    B, K, alpha, device = len(rows.limits), config.rows, config.length_penalty, rows.limits.device
    history, limits = History(B), rows.limits.tolist()
    total = torch.full((B, K), -math.inf, dtype=torch.double, device=device)
    total[:, 0] = 0.0  # the K rows start identical: only one of them counts
    merit = total  # log-probabilities of the tokens that were not told, with the repetition penalty
    # For each finished hypothesis: score, log-probability, tokens before </s>, its row, whether a segment was cut.
    finished = torch.zeros(5, B, K, dtype=torch.double, device=device)
    finished[0] = -math.inf
    unfinished = total  # log-probabilities of the live rows when their document was finished
    result = torch.zeros(6, B, K, dtype=torch.double)

    for step in range(active.steps):
        A = len(active.done)
        logits, state = model.step(rows.token, rows.segments, state)
        logits = _checked(logits, step)
        weighed = rows.weigh(logits)
        logs = logits.log_softmax(1)
        weighed_logs = logs if weighed is logits else weighed.log_softmax(1)
        best, tokens = rows.allow(weighed).topk(min(2 * K, logits.shape[1]))  # (A*K, W)
        gain = worth = weighed_logs.gather(1, tokens).masked_fill(best == -math.inf, -math.inf)
        if weighed is not logits:
            gain = logs.gather(1, tokens).masked_fill(best == -math.inf, -math.inf)
        if rows.told is not None:
            worth = worth.masked_fill(rows.forced[:, None] & (worth > -math.inf), 0.0)
        merits, place = (merit.view(A * K, 1) + worth).view(A, -1).topk(2 * K)  # (A, 2K)
        ranked = (total.view(A * K, 1) + gain).view(A, -1).gather(1, place)
        parent = place // best.shape[1]
        token = tokens.view(A, -1).gather(1, place)
        end = token == EOS

        running = ~active.done[:, None]
        ends = end[:, :K] & (ranked[:, :K] > -math.inf) & running
        told = 0 if rows.told is None else rows.told.count[:, None]  # all of it, of what has ended
        score = (merits[:, :K] / (step + 1 - told) ** alpha).masked_fill(~ends, -math.inf)
        cut = rows.cut.view(A, K).gather(1, parent[:, :K])
        new = [score, ranked[:, :K], torch.full_like(score, step), parent[:, :K].double(), cut.double()]
        finished = torch.cat([finished, torch.stack(new)], 2)  # (5, A, 2K)
        finished = finished.gather(2, finished[0].topk(K).indices.expand(5, A, K))

        live = end.int().argsort(dim=1, stable=True)[:, :K]  # each row ends at most once: at least K of 2K stay live
        merit, total, parent, token = (values.gather(1, live) for values in (merits, ranked, parent, token))  # (A, K)
        history.append(token, parent)
        unfinished = torch.where(running, total, unfinished)
        full = finished[0, :, -1] > -math.inf
        reach = torch.where(full, step + 1, rows.limits)  # (A,)
        if rows.told is not None:
            reach = (reach - rows.told.count).clamp(min=1)
        beaten = merit[:, 0] / reach.double() ** alpha <= finished[0, :, config.n_best - 1]
        active.done = active.done | beaten | (step + 1 >= rows.limits)

        continued = (torch.arange(A, device=device)[:, None] * K + parent).flatten()  # (A*K,) old rows
        if (keep := active.keep(step, rows, history)) is not None:
            history.flush(active.places)
            result[:, active.places.cpu()] = torch.cat([finished, unfinished[None]]).cpu()
            if len(keep) == 0:
                break
            active.drop(keep)
            continued, token = continued.view(A, K)[keep].flatten(), token[keep]
            merit, total, finished, unfinished = merit[keep], total[keep], finished[:, keep], unfinished[keep]
        state = model.reorder(state, continued, keep)
        rows.select(continued, keep)
        rows.advance(token.flatten())
    history.close()

    def hypotheses(b: int, limit: int) -> list[Hypothesis]:
        *ends, rest = result[:, b].tolist()
        found = [
            Hypothesis(history.read(b, int(row), int(n)), log_probability, score, not was_cut)
            for score, log_probability, n, row, was_cut in zip(*ends, strict=True)
            if score > -math.inf
        ]
        for row, log_probability in sorted(enumerate(rest), key=lambda entry: -entry[1]):
            if len(found) < config.n_best and log_probability > -math.inf:
                score = log_probability / limit**alpha
                found.append(Hypothesis(history.read(b, row, limit), log_probability, score, False))
        return found[: config.n_best]

    return [hypotheses(b, limit) for b, limit in enumerate(limits)]
