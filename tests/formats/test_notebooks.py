"""Notebooks: their Markdown cells change, and nothing else."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from scaleformer.formats.files import read_prose, write_prose
from scaleformer.system.errors import DataError
from tests.formats.fake import unchanged


def test_a_notebook_changes_in_its_markdown_cells_alone() -> None:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# the *cat*\n", "\n", "Sleeps in `code`,\u00a0\"x\"."]},
        {"cell_type": "code", "metadata": {}, "outputs": [{"x": 1e-05, "text": ["the\n"]}], "source": ["# the cat"]},
        {"cell_type": "markdown", "metadata": {}, "source": "as one string"},
        {"cell_type": "raw", "metadata": {}, "source": []},
    ]  # fmt: skip
    for layout in ({"indent": 1, "ensure_ascii": False}, {"indent": 3}, {}):
        content = json.dumps({"cells": cells, "metadata": {"a": "b"}, "nbformat": 4}, **layout) + "\n"
        file, segments = read_prose(content.encode(), "a.ipynb", "notebook", "en", "sentence")
        assert unchanged(file) == content.encode()
        counts: Counter[str] = Counter()
        texts = [segment.text.upper() for some in segments for segment in some]
        found = json.loads(write_prose(file, segments, texts, counts))
        assert not counts
        assert "".join(found["cells"][0]["source"]) == '# THE *CAT*\n\nSLEEPS IN `code`,\u00a0"X".'
        assert found["cells"][2]["source"] == "AS ONE STRING"
        assert (found["cells"][1::2], found["metadata"]) == (cells[1::2], {"a": "b"})


@pytest.mark.parametrize("content", ["[]", '{"cells": 3}', '{"cells": [{"cell_type": "markdown"}]}', '{"a":' * 100_000])
def test_what_is_no_notebook_is_refused(content: str) -> None:
    with pytest.raises(DataError, match=r"a.ipynb: not a sound notebook"):
        read_prose(content.encode(), "a.ipynb", "notebook", "en", "sentence")
