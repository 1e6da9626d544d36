"""The messages of docs/troubleshooting.md are those of the program."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
TABLE = re.compile(r"^\| message \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE)
MESSAGES = [line.split(" | ")[0].strip("| `") for rows in TABLE.findall(PAGE) for line in rows.splitlines()]
VALUE = "\0"  # what stands in a message for something that the program fills in


def texts() -> Iterator[str]:
    """All texts in the code but docstrings, with `VALUE` for what is filled in."""
    for path in sorted((ROOT / "scaleformer").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if node in docstrings:
                continue
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub(r"%[sd]", VALUE, node.value)


TEXTS = sorted(set(texts()))


def is_message(shown: str) -> bool:
    """Whether a text of the code has the words of a message in their order; `...` is what is filled in."""
    words = ".*".join(re.escape(part) for part in shown.split("..."))
    return any(re.search(words, text, re.DOTALL) for text in TEXTS)


@pytest.mark.parametrize("shown", MESSAGES)
def test_the_program_has_every_message_of_the_page(shown: str) -> None:
    assert is_message(shown)


def test_all_tables_are_read_and_other_messages_are_found_missing() -> None:
    assert len(MESSAGES) == len(set(MESSAGES)) == PAGE.count("\n| `")
    assert not is_message("this is not said anywhere")
