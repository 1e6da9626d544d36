"""docs/architecture.md names what there is: packages in the order of the floors, and functions in their modules."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.test_architecture import FLOORS, OPS_FLOORS, PACKAGE

TEXT = (Path(__file__).parents[2] / "docs/architecture.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `scaleformer/([\w/]+\.py)` \| (.*?) \| .* \|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("path", "names"), ROWS, ids=[f"{path}-{names}" for path, names in ROWS])
def test_every_name_is_defined_in_its_module(path: str, names: str) -> None:
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert set(re.findall(r"`(\w+)`", names)) <= defined


def test_both_ways_are_told() -> None:
    assert len(ROWS) > 30
    assert {"batch.py", "decoding/search.py", "ops/recall/attention.py"} <= {path for path, _ in ROWS}


@pytest.mark.parametrize(("indent", "floors"), [(6, FLOORS), (8, OPS_FLOORS)], ids=["package", "ops"])
def test_the_tree_has_the_floors_in_their_order(indent: int, floors: tuple[str, ...]) -> None:
    assert tuple(re.findall(rf"^ {{{indent}}}(\w+)(?:/|\.py) ", TEXT, re.MULTILINE)) == floors


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`([A-Z_]{5,})`", TEXT)) - {"COMMAND"}))
def test_lists_to_extend_exist(name: str) -> None:
    files = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    assert any(re.search(rf"^{name}\b.*=", text, re.MULTILINE) for text in files)
