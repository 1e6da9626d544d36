"""Imports point down only: who may know whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "scaleformer"
FORBIDDEN = {
    "ops": ("scaleformer.model", "scaleformer.data", "scaleformer.evaluation", "pytorch_lightning", "hydra"),
    "model": ("scaleformer.data", "scaleformer.evaluation", "scaleformer.decoding", "pytorch_lightning", "hydra"),
    "data": ("scaleformer.model", "scaleformer.ops", "scaleformer.evaluation", "scaleformer.decoding", "hydra"),
    "evaluation": ("scaleformer.lightning_module", "pytorch_lightning", "hydra"),
    "decoding*.py": ("scaleformer.model", "scaleformer.ops", "scaleformer.data", "pytorch_lightning", "hydra"),
    "plot*.py": ("scaleformer.model", "scaleformer.data", "pytorch_lightning", "hydra"),
    ".": ("hydra",),
}


def imported(path: Path) -> set[str]:
    """The absolute names of everything that a module imports."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            names |= {f"{base}{node.module or ''}".rstrip(".") + f".{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("part", FORBIDDEN)
def test_imports_point_down(part: str) -> None:
    files = sorted(PACKAGE.glob(part) if part.endswith(".py") else (PACKAGE / part).rglob("*.py"))
    assert files
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in imported(path)
        if name.startswith(FORBIDDEN[part])
    ]
    assert not wrong
