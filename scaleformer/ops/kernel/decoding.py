"""Step-wise kernelized attention, for decoding: constant cost per token, without reading earlier tokens again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from scaleformer.ops.common.checks import check_kv, check_rel
from scaleformer.ops.common.feature_maps import FeatureMap, get_feature_map
from scaleformer.ops.common.relative_positions import causal_tables, horizon_of
from scaleformer.ops.common.sums import normalise


@dataclass
class CausalState:
    """Decoding state of causal attention; all rows of a batch are at the same position.

    U = [V, 1], a row of zeros for a pad; b = phi(rel_0), the relative embedding of all keys beyond the horizon.

    memory    (B, H, d, e+1) sum over the tokens so far of (phi(k) + b) (x) U
    ring      (B, H, R, e+1) the last R rows of U, that of position p in slot p mod R; None without relative positions
    far       (1, d) or (H, 1, d), b; None without relative positions
    near      (d, 2R) or (H, d, 2R), phi(rel) - b repeated twice, in slot order: R of its columns, from the right start,
              match the order of the ring; None without relative positions
    position  number of tokens so far
    """

    memory: Tensor
    ring: Tensor | None
    far: Tensor | None
    near: Tensor | None
    position: int

    def reorder(self, index: Tensor) -> CausalState:
        """The state whose row b is this one's row index[b]; index (B',) long."""
        ring = None if self.ring is None else self.ring.index_select(0, index)
        return replace(self, memory=self.memory.index_select(0, index), ring=ring)

    def add(self, k: Tensor, v: Tensor, phi: FeatureMap) -> None:
        """Add one token, k (B, H, d), v (B, H, e), in place; the caller updates `position`."""
        dtype = self.memory.dtype
        fk = phi(k.to(dtype))[:, :, None]  # (B, H, 1, d)
        if self.far is not None:
            fk = fk + self.far
        d, size = self.memory.shape[2:]
        if self.ring is None:
            u = functional.pad(v.to(dtype), (0, 1), value=1.0)  # (B, H, e+1)
        else:
            u = self.ring[:, :, self.position % self.ring.shape[2]]  # (B, H, e+1)
            u[..., :-1] = v
            u[..., -1] = 1.0
        self.memory.view(-1, d, size).baddbmm_(fk.reshape(-1, d, 1), u.reshape(-1, 1, size))

    def read(self, fq: Tensor) -> Tensor:
        """The sums over the tokens so far, including the one just added: (B, H, 1, e+1) from fq (B, H, 1, d)."""
        sums = fq @ self.memory  # (B, H, 1, e+1)
        if self.ring is None or self.near is None:
            return sums
        # phi(q) . (phi(rel) - b) for each slot
        start = self.ring.shape[2] - 1 - self.position % self.ring.shape[2]
        scores = by_head(fq, self.near.narrow(-1, start, self.ring.shape[2]))  # (B, H, 1, R)
        sums.view(-1, 1, sums.shape[-1]).baddbmm_(scores.flatten(0, 1), self.ring.flatten(0, 1))
        return sums

    def check(self, q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None) -> None:
        """Raise ValueError unless q, k (B, H, d), v (B, H, e) and `rel` fit the state."""
        batch, heads, d, size = self.memory.shape
        for name, x, width in (("q", q, d), ("k", k, d), ("v", v, size - 1)):
            if x.shape != (batch, heads, width):
                raise ValueError(
                    f"{name} has shape {tuple(x.shape)}: the state was made for {(batch, heads, width)}, a token a row"
                )
        _check_same_rel(rel, None if self.ring is None else self.ring.shape[2])


@dataclass
class CrossState:
    """Decoding state of attention to a whole source; it never changes while decoding. U = [V, 1], zeros for a pad.

    memory    (B, H, d, e+1) sum over the source of phi(k) (x) U
    window    (B, H, S+3R-2, e+1) U with R-1 rows of zeros before it and 2R-1 after it; None without relative positions
    prefix    (B, H, S+1, e+1) row j: the sum of U before source position j; None without relative positions
    table     (d, 2R+1) or (H, d, 2R+1) phi(rel); None without relative positions
    """

    memory: Tensor
    window: Tensor | None
    prefix: Tensor | None
    table: Tensor | None

    def reorder(self, documents: Tensor) -> CrossState:
        """The state whose row b is this one's row documents[b]; documents (B',) long."""
        window = None if self.window is None else self.window.index_select(0, documents)
        prefix = None if self.prefix is None else self.prefix.index_select(0, documents)
        return replace(self, memory=self.memory.index_select(0, documents), window=window, prefix=prefix)


@torch.no_grad()
def causal_init(
    batch: int, heads: int, d: int, e: int, rel: Tensor | None = None, device: torch.device | str | None = None,
    feature_map: str = "elu1", dtype: torch.dtype = torch.float32,
) -> CausalState:  # fmt: skip
    """The state before the first token; rel (2R+1, d) or (H, 2R+1, d), raw, or None."""
    memory = torch.zeros(batch, heads, d, e + 1, device=device, dtype=dtype)
    if rel is None:
        return CausalState(memory, None, None, None, 0)
    check_rel(rel, heads, d)
    frel = get_feature_map(feature_map)(rel.to(device=memory.device, dtype=dtype))
    horizon = horizon_of(rel)
    far, recent = causal_tables(frel)  # (1, d) and (R, d), or (H, 1, d) and (H, R, d)
    # At position p, slot s holds the token at distance t = -((p - s) mod R). The doubled table, read from column
    # R - 1 - (p mod R) on, has that distance in place s.
    near = torch.cat([recent, recent], dim=-2).transpose(-1, -2).contiguous()  # (d, 2R)
    ring = memory.new_zeros(batch, heads, horizon, e + 1)
    return CausalState(memory, ring, far, near, 0)


@torch.no_grad()
def causal_step(
    q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None, state: CausalState, feature_map: str = "elu1"
) -> tuple[Tensor, CausalState]:
    """Attention of one new token to itself and those before it.

    q, k (B, H, d), v (B, H, e); rel as given to `causal_init`. Returns (B, H, e) in the dtype of v and the state, which
    is updated in place. Raises ValueError if they do not fit the state.
    """
    state.check(q, k, v, rel)
    phi = get_feature_map(feature_map)
    with torch.autocast(q.device.type, enabled=False):
        fq = phi(q.to(state.memory.dtype))[:, :, None]  # (B, H, 1, d)
        state.add(k, v, phi)
        out = normalise(state.read(fq)).view(v.shape).to(v.dtype)  # (B, H, e)
        return out, replace(state, position=state.position + 1)


@torch.no_grad()
def cross_state(
    k: Tensor, v: Tensor, rel: Tensor | None = None, key_mask: Tensor | None = None, feature_map: str = "elu1"
) -> CrossState:
    """The state of a source: k (B, H, S, d), v (B, H, S, e), rel raw or None, key_mask (B, S) bool, True = real."""
    check_kv(k, v, key_mask)
    phi = get_feature_map(feature_map)
    dtype = torch.promote_types(k.dtype, torch.float32)
    with torch.autocast(k.device.type, enabled=False):
        u = values_with_ones(v.to(dtype), key_mask)
        memory = phi(without_pads(k, key_mask).to(dtype)).transpose(-1, -2) @ u  # (B, H, d, e+1)
        if rel is None:
            return CrossState(memory, None, None, None)
        check_rel(rel, k.shape[1], k.shape[3])
        horizon = horizon_of(rel)
        window = functional.pad(u, (0, 0, horizon - 1, 2 * horizon - 1))  # (B, H, S+3R-2, e+1)
        prefix = functional.pad(u.cumsum(2), (0, 0, 1, 0))  # (B, H, S+1, e+1)
        table = phi(rel.to(dtype)).transpose(-1, -2).contiguous()  # (d, 2R+1)
        return CrossState(memory, window, prefix, table)


@torch.no_grad()
def cross_step(q: Tensor, position: int, rel: Tensor | None, state: CrossState, feature_map: str = "elu1") -> Tensor:
    """Attention of the K hypotheses of each document, all at the same position, to their source.

    q (B, H, K, d); position counts from 0; rel as given to `cross_state`. Returns (B, H, K, e) in the dtype of q.
    Raises ValueError if they do not fit the state.
    """
    batch, heads, d, _ = state.memory.shape
    if q.dim() != 4 or (q.shape[0], q.shape[1], q.shape[3]) != (batch, heads, d):
        raise ValueError(f"q has shape {tuple(q.shape)}: the state was made for ({batch}, {heads}, K, {d})")
    _check_same_rel(rel, None if state.table is None else (state.table.shape[-1] - 1) // 2)
    with torch.autocast(q.device.type, enabled=False):
        fq = get_feature_map(feature_map)(q.to(state.memory.dtype))  # (B, H, K, d)
        sums = fq @ state.memory  # (B, H, K, e+1)
        if state.table is not None and state.window is not None and state.prefix is not None:
            horizon, length = (state.table.shape[-1] - 1) // 2, state.prefix.shape[2] - 1
            before = min(max(position - horizon + 1, 0), length)
            after = min(position + horizon, length)
            start = min(position, length + horizon - 1)
            past = state.prefix[:, :, before : before + 1]  # (B, H, 1, e+1)
            future = state.prefix[:, :, -1:] - state.prefix[:, :, after : after + 1]  # (B, H, 1, e+1)
            near = state.window[:, :, start : start + 2 * horizon - 1]  # (B, H, 2R-1, e+1)
            scores = by_head(fq, state.table)  # (B, H, K, 2R+1)
            sums.addcmul_(scores[..., :1], past).addcmul_(scores[..., -1:], future)
            sums += scores[..., 1:-1] @ near  # (B, H, K, e+1)
        return normalise(sums).to(q.dtype)


def by_head(fq: Tensor, table: Tensor) -> Tensor:
    """fq (B, H, K, d) times a table (d, n), or (H, d, n), one a head: (B, H, K, n).

    Batched by head, since a product batched by row and head would copy the table for each row.
    """
    if table.dim() == 2:
        return fq @ table
    batch, heads, beams, d = fq.shape
    rows = fq.transpose(0, 1).reshape(heads, batch * beams, d)  # (H, B*K, d)
    return (rows @ table).view(heads, batch, beams, -1).transpose(0, 1)  # (B, H, K, n)


def _check_same_rel(rel: Tensor | None, horizon: int | None) -> None:
    if (rel is None) != (horizon is None) or (rel is not None and horizon_of(rel) != horizon):
        given = "None" if rel is None else f"a table of horizon {horizon_of(rel)}"
        wanted = "None" if horizon is None else f"a table of horizon {horizon}"
        raise ValueError(f"rel is {given}: the state was made with {wanted}")


def values_with_ones(v: Tensor, key_mask: Tensor | None) -> Tensor:
    """U = [V, 1] (B, H, L, e+1), zeros at pads."""
    u = functional.pad(v, (0, 1), value=1.0)  # (B, H, L, e+1)
    return u if key_mask is None else u.masked_fill(~key_mask[:, None, :, None], 0.0)


def without_pads(k: Tensor, key_mask: Tensor | None) -> Tensor:
    """Keys (B, H, L, d) with zeros at pads, which may hold NaN."""
    return k if key_mask is None else k.masked_fill(~key_mask[:, None, :, None], 0.0)
