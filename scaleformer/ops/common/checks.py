"""Checks of the arguments of the attention functions: a one-line error for each mistake."""

from __future__ import annotations

import torch
from torch import Tensor

ALGORITHMS = ("auto", "linear", "quadratic", "memory")


def _shape(x: Tensor) -> str:
    return "(" + ", ".join(str(n) for n in x.shape) + ")"


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}: it must be one of {', '.join(choices)}")


def check_positive(name: str, value: float) -> None:
    """Raise ValueError unless `value` is at least 1."""
    if value < 1:
        raise ValueError(f"{name} is {value}: it must be at least 1")


def check_qkv(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> None:
    """Raise ValueError unless q (B, H, L, d), k (B, H, S, d), v (B, H, S, e) and key_mask (B, S) bool fit together."""
    if q.dim() != 4:
        raise ValueError(f"q has shape {_shape(q)}: it must be (batch, heads, query length, head width)")
    batch, heads, _, width = q.shape
    if k.dim() != 4 or k.shape[:2] != q.shape[:2] or k.shape[3] != width:
        raise ValueError(f"k has shape {_shape(k)}: with q {_shape(q)} it must be ({batch}, {heads}, L_K, {width})")
    check_kv(k, v, key_mask)


def check_kv(k: Tensor, v: Tensor, key_mask: Tensor | None) -> None:
    """Raise ValueError unless k (B, H, S, d), v (B, H, S, e) and key_mask (B, S) bool fit together."""
    if k.dim() != 4:
        raise ValueError(f"k has shape {_shape(k)}: it must be (batch, heads, key length, head width)")
    batch, heads, length, _ = k.shape
    if v.dim() != 4 or v.shape[:3] != k.shape[:3]:
        raise ValueError(f"v has shape {_shape(v)}: with k {_shape(k)} it must be ({batch}, {heads}, {length}, e)")
    if key_mask is None:
        return
    if key_mask.shape != (batch, length):
        raise ValueError(f"key_mask has shape {_shape(key_mask)}: with k {_shape(k)} it must be ({batch}, {length})")
    if key_mask.dtype is not torch.bool:
        raise ValueError(f"key_mask has dtype {key_mask.dtype}: it must be torch.bool, True for a real token")


def check_rel(rel: Tensor, heads: int, width: int) -> None:
    """Raise ValueError unless rel is (2R+1, d) or (H, 2R+1, d) with R >= 1."""
    fits = rel.dim() in (2, 3) and rel.shape[-1] == width and (rel.dim() == 2 or rel.shape[0] == heads)
    if not fits or rel.shape[-2] < 3 or rel.shape[-2] % 2 == 0:
        raise ValueError(
            f"rel has shape {_shape(rel)}: it must be (2R+1, {width}) or ({heads}, 2R+1, {width}) with R at least 1"
        )


def check_gate(log_gate: Tensor, heads: int) -> None:
    """Raise ValueError unless log_gate is (H, 2G+1) with G >= 1."""
    if log_gate.dim() != 2 or log_gate.shape[0] != heads or log_gate.shape[1] < 3 or log_gate.shape[1] % 2 == 0:
        raise ValueError(f"log_gate has shape {_shape(log_gate)}: it must be ({heads}, 2G+1) with G at least 1")


def check_segments(name: str, segments: Tensor, batch: int, length: int) -> None:
    """Raise ValueError unless `segments` is (B, L) and of an integer type."""
    if segments.shape != (batch, length):
        raise ValueError(f"{name} has shape {_shape(segments)}: it must be ({batch}, {length})")
    if segments.is_floating_point() or segments.is_complex() or segments.dtype is torch.bool:
        raise ValueError(f"{name} has dtype {segments.dtype}: it must be an integer type, such as torch.long")


def check_step(q: Tensor, k: Tensor, v: Tensor, rel: Tensor | None, segments: Tensor, rows: int) -> None:
    """Raise ValueError unless q, k (B, H, d), v (B, H, e), rel as in `check_rel` and segments (B,) fit together and
    have as many rows as the state."""
    if q.dim() != 3 or q.shape[0] != rows:
        raise ValueError(f"q has shape {_shape(q)}: it must be ({rows}, H, d), as many rows as the state has")
    if k.shape != q.shape:
        raise ValueError(f"k has shape {_shape(k)}: it must be that of q, {_shape(q)}")
    if v.dim() != 3 or v.shape[:2] != q.shape[:2]:
        raise ValueError(f"v has shape {_shape(v)}: with q {_shape(q)} it must be ({rows}, {q.shape[1]}, e)")
    if rel is not None:
        check_rel(rel, q.shape[1], q.shape[2])
    if segments.dim() != 1:
        raise ValueError(f"segments has shape {_shape(segments)}: it must be ({rows},)")
    check_segments("segments", segments[:, None], rows, 1)
