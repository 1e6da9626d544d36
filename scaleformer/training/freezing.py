"""`freeze`: excludes parts of a model from training."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

# Names for several modules of a Transformer.
GROUPS = {
    "embeddings": ("source_embedding", "target_embedding", "source_positions", "target_positions"),
    "encoder": ("encoder", "encoder_norm"),
    "decoder": ("decoder", "decoder_norm"),
}


def freeze(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Freeze the weights of the named modules: no gradient, no weight decay, no optimizer state.

    patterns  names of modules or weights (`decoder.0`, `decoder.*.cross_attention`), or of `GROUPS`; weights tied to
              one of these are frozen too
    Returns a line for each pattern and a total, with their shares of the parameters. Raises ValueError for a pattern
    that matches no weight, and where nothing would be left to train.
    """
    total = sum(p.numel() for p in model.parameters())
    lines = []
    for pattern in patterns:
        found = {p for name, p in model.named_parameters(remove_duplicate=False) if _goes_by(name, pattern)}
        if not found:
            parts = [name for name, part in model.named_children() if any(True for _ in part.parameters())]
            known = ", ".join(dict.fromkeys([*GROUPS, *parts]))
            raise ValueError(
                f"freeze={pattern}: matches no weight: choose from {known} or their parts, such as decoder.0 or "
                "decoder.*.cross_attention"
            )
        for parameter in found:
            parameter.requires_grad_(False)
        lines.append(_share(pattern, sum(p.numel() for p in found), total))
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    if frozen == total:
        raise ValueError(f"freeze=[{','.join(patterns)}]: this freezes every weight: leave some to train")
    return [*lines, _share("total", frozen, total)] if len(patterns) > 1 else lines


def _goes_by(name: str, pattern: str) -> bool:
    """Whether the name of a weight, or of a module around it, matches the pattern."""
    parts = name.split(".")
    around = [".".join(parts[: n + 1]) for n in range(len(parts))]
    return any(fnmatchcase(outer, choice) for outer in around for choice in GROUPS.get(pattern, (pattern,)))


def _share(name: str, count: int, total: int) -> str:
    return f"frozen: {name}, {count:,} of {total:,} parameters ({100 * count / total:.1f}%)"
