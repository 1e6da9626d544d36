"""Step-wise attention with recall, for decoding: the near tokens and a few kept tokens from farther back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.checks import check_gate, check_step
from scaleformer.ops.common.precision import full_precision
from scaleformer.ops.recall.attention import check_recall
from scaleformer.ops.segments.gate import HIDDEN
from scaleformer.ops.segments.layout import NO_SEGMENT

_FIRST_ROOM = 64


@dataclass
class RecallCausalState:
    """Decoding state of causal attention with recall. Steps and `reorder` change it in place.

    Each row has M + C slots. The first M hold the kept tokens, highest priority last, so that the used ones are next to
    the near tokens: the near token of position p is in slot M + p - origin. All rows are at the same position, so that
    a step writes one slot and reads one range of slots. A slot that a row does not see has a bias of minus infinity.
    Until a row begins a new segment, only the new token changes.

    pairs          (2, M+C, B, H, w) keys and values, w the larger of their widths d and e
    salience       (M+C, B, H)
    bias           (B, H, M+C) added to the score of a slot: the gate, and for kept tokens the salience
    kept_position  (B, H, M) long
    priority       (B, H, M) minus infinity where nothing is kept
    numbers        (B, C) long, the segments of the near slots
    start          (B,) long, the position of the first near token
    segment        (B,) long, the segment of the last token
    log_gate, recency  (H, 2N+3) and (H,)
    width          e
    position       number of tokens so far
    origin         the position of the first near slot
    used           the most tokens that any row keeps
    newest         the latest position of any kept token
    fresh          whether rows that began alike, the beams of a text, still are
    shared         slots in which they are: `reorder` does not copy these
    """

    pairs: Tensor
    salience: Tensor
    bias: Tensor
    kept_position: Tensor
    priority: Tensor
    numbers: Tensor
    start: Tensor
    segment: Tensor
    log_gate: Tensor
    recency: Tensor
    width: int
    position: int = 0
    origin: int = 0
    used: int = 0
    newest: int = -1
    fresh: bool = False
    shared: int = 0
    shut: bool = field(init=False)  # whether a token may see nothing at all

    def __post_init__(self) -> None:
        self.shut = bool((self.log_gate <= HIDDEN / 2).any())

    @property
    def near(self) -> int:
        return self.log_gate.shape[1] // 2 - 1

    def reorder(self, index: Tensor) -> RecallCausalState:
        """The state whose row b is this one's row index[b]; index (B',) long."""
        kept, rows = self.priority.shape[2], len(self.start)
        used = slice(kept - self.used, kept + self.position - self.origin)
        if len(index) == rows:  # copy used slots only
            self.fresh, self.shared = False, used.stop if self.fresh else self.shared
            used = slice(max(used.start, self.shared), used.stop)
            for table in (*self.pairs, self.salience):
                table[used] = table[used].index_select(1, index)
            self.bias[:, :, used] = self.bias[:, :, used].index_select(0, index)
            pairs, salience, bias = self.pairs, self.salience, self.bias
        else:
            pairs = self.pairs.new_empty(*self.pairs.shape[:2], len(index), *self.pairs.shape[3:])
            torch.index_select(self.pairs[:, used], 2, index, out=pairs[:, used])
            salience, bias = self.salience.index_select(1, index), self.bias.index_select(0, index)
        names = ["numbers", "start", "segment"]
        if (self.used and not self.shared) or len(index) != rows:  # otherwise all rows are equal
            names += ["kept_position", "priority"]
        chosen = {name: getattr(self, name).index_select(0, index) for name in names}
        return replace(self, pairs=pairs, salience=salience, bias=bias, **chosen)

    def step(self, query: Tensor, pair: Tensor, salience: Tensor, relative: Tensor | None, segments: Tensor) -> Tensor:
        """Attention of a new token to itself and those before it. query (B, H, w), scaled; pair (B, H, 2, w) key and
        value; salience (B, H); relative (B, H, R), how much the relative scores of the last R tokens, the new one last,
        exceed that of all earlier tokens; segments (B,), one a row. Returns (B, H, e)."""
        batch, heads, width = query.shape
        if not torch.equal(segments, self.segment):
            rows = (segments > self.segment).nonzero()[:, 0]
            if len(rows):
                self._begin(segments, rows)
        kept, room = self.priority.shape[2], self.numbers.shape[1]
        if self.position - self.origin == room:
            self.make_room()
        slot = kept + self.position - self.origin
        self.position += 1
        self.pairs.select(1, slot).copy_(pair.permute(2, 0, 1, 3))
        self.salience.select(0, slot).copy_(salience)
        first, stop = kept - self.used, slot + 1
        pairs = self.pairs.narrow(1, first, stop - first).flatten(2, 3)  # (2, T, B*H, w)
        keys, values = pairs.permute(0, 2, 1, 3).unbind()  # (B*H, T, w)
        bias = self.bias.narrow(2, first, stop - first).flatten(0, 1)[:, None]  # (B*H, 1, T)
        scores = torch.baddbmm(bias, query.reshape(-1, 1, width), keys.transpose(1, 2))
        if relative is not None:
            horizon = relative.shape[2]
            last = min(horizon, self.position - self.origin)
            recent = relative if last == horizon else relative[:, :, -last:]
            scores.narrow(2, stop - first - last, last).add_(recent.reshape(-1, 1, last))
            if self.used and self.position - self.newest <= horizon:  # short segments: kept tokens within the horizon
                place = (self.kept_position[:, :, first:] - self.position + horizon).clamp(min=-1) + 1
                far = functional.pad(relative, (1, 0))  # (B, H, R+1)
                scores[:, 0, : self.used] += far.gather(2, place).flatten(0, 1)
        weights = scores.softmax(-1)
        if self.shut:
            weights = weights * (scores.amax(-1, keepdim=True) > HIDDEN / 2)
        return torch.bmm(weights, values).view(batch, heads, width)[..., : self.width]

    def _begin(self, segments: Tensor, rows: Tensor) -> None:
        """Begin segment segments[b] in each row b of `rows` (r,): of the kept tokens and those no longer near, keep the
        ones of highest priority."""
        kept, written, device = self.priority.shape[2], self.position - self.origin, rows.device
        self.shared = self.shared if self.fresh else 0
        segments = segments[rows, None].to(self.segment)  # (r, 1)
        numbers, start = self.numbers[rows, :written], self.start[rows]
        place = torch.arange(self.origin, self.position, device=device)  # (n,)
        leaves = (segments - numbers > self.near) & (place >= start[:, None])  # (r, n), a row's first tokens
        began = start + leaves.sum(1)  # (r,)
        low, high = int(start.min()) - self.origin, int(began.max()) - self.origin
        if high > low and kept:
            self._keep(rows, low, high, leaves[:, low:high], numbers[:, low:high])
        self.start[rows], self.segment[rows] = began, segments[:, 0]
        self.numbers[rows, written:] = segments
        distance = (numbers - segments).clamp(-self.near, 0)
        gate = self.log_gate[:, distance + self.near + 1].transpose(0, 1)  # (r, H, n)
        hidden = place < began[:, None]
        self.bias[rows, :, kept : kept + written] = gate.masked_fill(hidden[:, None], float("-inf"))

    def _keep(self, rows: Tensor, low: int, high: int, leaves: Tensor, numbers: Tensor) -> None:
        """Choose the kept tokens of `rows` (r,) again, from those kept so far and the near slots low to high that leave
        (`leaves`, (r, g)), of segments `numbers` (r, g)."""
        kept = self.priority.shape[2]
        # The newest first: among equals the sort below keeps their order.
        near = slice(kept + low, kept + high)
        salience = self.salience[:, rows].permute(1, 2, 0)  # (r, H, M+C)
        leaving = salience[:, :, near].flip(2)  # (r, H, g)
        toward = self.recency[:, None] * numbers.flip(1)[:, None].to(leaving.dtype)  # (r, H, g)
        priority = (leaving + toward).masked_fill(~leaves.flip(1)[:, None], float("-inf"))
        priority = torch.cat([priority, self.priority[rows].flip(2)], dim=2)
        position = torch.arange(self.origin + high - 1, self.origin + low - 1, -1, device=rows.device)  # (g,)
        position = torch.cat([position.expand_as(leaving), self.kept_position[rows].flip(2)], dim=2)
        salience = torch.cat([leaving, salience[:, :, :kept].flip(2)], dim=2)
        priority, order = priority.sort(dim=2, descending=True, stable=True)
        priority, order = priority[:, :, :kept].flip(2), order[:, :, :kept].flip(2)  # (r, H, M)
        salience, position = salience.gather(2, order), position.gather(2, order)
        none = priority == float("-inf")
        used = max(self.used, int((~none).sum(2).max()))
        self.pairs[:, kept - used : kept - self.used] = 0.0  # rows that keep fewer tokens read these slots as well
        first = order.permute(2, 0, 1)[..., None]  # (M, r, H, 1)
        for table in self.pairs:
            pair = torch.cat([table[near, rows].flip(0), table[:kept, rows].flip(0)])  # (g+M, r, H, w)
            table[:kept, rows] = pair.take_along_dim(first, 0)
        self.salience[:kept, rows] = salience.permute(2, 0, 1)
        self.kept_position[rows], self.priority[rows] = position, priority
        self.bias[rows, :, :kept] = (salience + self.log_gate[:, :1]).masked_fill(none, float("-inf"))
        self.used = used
        self.newest = max(self.newest, int(position.masked_fill(none, -1).max()))

    def make_room(self) -> None:
        """Free the slots that no row sees any more; if they are few, double the number of slots."""
        kept, room = self.priority.shape[2], self.numbers.shape[1]
        gone = int(self.start.min()) - self.origin if len(self.start) else room
        own, segment = self.log_gate[:, self.near + 1, None], self.segment[:, None]
        if gone < room // 4:
            self.pairs = functional.pad(self.pairs, (0, 0, 0, 0, 0, 0, 0, room))
            self.salience = functional.pad(self.salience, (0, 0, 0, 0, 0, room))
            more = own.expand(len(self.bias), -1, room)
            self.bias = torch.cat([self.bias, more], dim=2)
            self.numbers = torch.cat([self.numbers, segment.expand(-1, room)], dim=1)
            return
        left = room - gone
        for table in (*self.pairs, self.salience):
            table[kept : kept + left] = table[kept + gone :].clone()
        self.bias[:, :, kept : kept + left] = self.bias[:, :, kept + gone :].clone()
        self.bias[:, :, kept + left :] = own
        self.numbers[:, :left] = self.numbers[:, gone:].clone()
        self.numbers[:, left:] = segment
        self.origin, self.shared = self.origin + gone, max(self.shared - gone, 0)


@torch.no_grad()
def recall_causal_init(
    batch: int, heads: int, d: int, e: int, log_gate: Tensor, recency: Tensor, kept: int = 64,
    device: torch.device | str | None = None, dtype: torch.dtype = torch.float32,
) -> RecallCausalState:  # fmt: skip
    """The state before the first token; log_gate (H, 2N+3), recency (H,)."""
    check_gate(log_gate, heads)
    check_recall(recency, kept, heads)
    salience = torch.zeros(kept + _FIRST_ROOM, batch, heads, dtype=dtype, device=device)
    log_gate = log_gate.to(salience).clamp(min=HIDDEN)
    bias = log_gate[:, log_gate.shape[1] // 2, None].repeat(batch, 1, kept + _FIRST_ROOM)
    bias[:, :, :kept] = float("-inf")
    numbers = torch.full((batch, _FIRST_ROOM), NO_SEGMENT, device=device)
    return RecallCausalState(
        salience.new_zeros(2, *salience.shape, max(d, e)), salience, bias,
        torch.zeros_like(bias[:, :, :kept], dtype=torch.long), bias[:, :, :kept].clone(), numbers,
        torch.zeros_like(numbers[:, 0]), numbers[:, 0].clone(), log_gate, recency.to(salience), e,
    )  # fmt: skip


@torch.no_grad()
def recall_causal_step(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None, salience: Tensor, segments: Tensor, state: RecallCausalState
) -> tuple[Tensor, RecallCausalState]:
    """Attention of one new token to itself and those before it. q, k (B, H, d), v (B, H, e), salience (B, H); segments
    (B,) the segment of the token in each row; rel (2R+1, d) or (H, 2R+1, d) or None. Returns (B, H, e) in the dtype of
    v and the state, which is updated in place. Raises ValueError if they do not fit together."""
    check_step(q, k, v, rel, segments, state.start.shape[0])
    if salience.shape != q.shape[:2]:
        raise ValueError(f"salience has shape {tuple(salience.shape)}: it must be {tuple(q.shape[:2])}")
    with full_precision(q.device):
        dtype, width = state.pairs.dtype, state.pairs.shape[-1]
        scaled = q.to(dtype) * q.shape[2] ** -0.5  # (B, H, d)
        relative = None
        if rel is not None:
            relative = (scaled[:, :, None] @ relative_excess(rel).to(dtype).transpose(-1, -2))[:, :, 0]  # (B, H, R)
        query, *pair = (functional.pad(x.to(dtype), (0, width - x.shape[2])) for x in (scaled, k, v))
        out = state.step(query, torch.stack(pair, dim=2), salience, relative, segments)
    return out.to(v.dtype), state


def relative_excess(rel: Tensor) -> Tensor:
    """rel (..., 2R+1, d) -> (..., R, d): the embeddings of the last R tokens, minus that of all tokens before them. A
    softmax ignores what all scores have in common."""
    horizon = rel.shape[-2] // 2
    return rel[..., 1 : horizon + 1, :] - rel[..., :1, :]
