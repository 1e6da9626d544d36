"""Settings from plain mappings, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from scaleformer.data.config import DataConfig, HubConfig
from scaleformer.data.synthetic.corpus import SyntheticConfig
from scaleformer.data.tokenizer import TokenizerConfig
from scaleformer.system.schema import from_mapping


def test_from_mapping() -> None:
    values = {
        "format": "hub",
        "max_ratio": 3,
        "join_segments": [1, 8],
        "synthetic": {"segments": [2, 4]},
        "hub": {"name": "x", "data_files": {"train": "a.json"}},
    }
    config = from_mapping(DataConfig, values, "data")
    assert config == DataConfig(
        format="hub",
        max_ratio=3,
        join_segments=(1, 8),
        synthetic=SyntheticConfig(segments=(2, 4)),
        hub=HubConfig(name="x", data_files={"train": "a.json"}),
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"max_token": 3},
            r"data\.max_token: no such setting \(did you mean data\.max_tokens\?\); there",
        ),
        (
            {"synthetic": {"sed": 3}},
            r"data\.synthetic\.sed: .* \(did you mean data\.synthetic\.seed\?\); there are seed",
        ),
        ({"max_tokens": "many"}, r"data\.max_tokens is 'many': it must be an int of at least 3"),
        ({"max_tokens": True}, r"data\.max_tokens is true: it must be an int"),
        ({"max_tokens": 10**400}, r"data\.max_tokens is 10{59}\.\.\.: it must be an int"),
        ({"max_ratio": float("nan")}, r"data\.max_ratio is nan: it must be a float"),
        ({"path": "\ud800"}, r"data\.path is '\\ud800': it must be a str or null"),
        ({"num_proc": 0}, r"data\.num_proc is 0: it must be an int of at least 1"),
        ({"max_tokens": 12.5}, r"data\.max_tokens is 12\.5: it must be an int"),
        ({"holdout": [0.1]}, r"data\.holdout is \[0\.1\]: it must be \[float from 0 to 1"),
        ({"hub": {"data_files": {"train": 3}}}, r"data\.hub\.data_files is .* must be \{name: value\} or null"),
        ({"max_ratio": "2"}, r"data\.max_ratio is '2': it must be a float of at least 1 or null"),
        ({"synthetic": 3}, r"data\.synthetic is 3: it must be a group of settings: data\.synthetic\.seed, "),
        ({"format": "xml"}, r"data\.format is 'xml': it must be one of synthetic, jsonl, text, hub"),
        ({"path": "corpus"}, r"data\.path is 'corpus': data\.format=synthetic reads no path: add data=jsonl or data="),
        (
            {"boundaries": "ids"},
            r"data\.boundaries is 'ids': only data\.format=text reads it, not synthetic: add data=text",
        ),
        (
            {"format": "text", "path": "a", "holdout": [0.1, 0.2]},
            r"data\.holdout is \[0\.1, 0\.2\]: only data\.format=jsonl reads it, not text",
        ),
        ({"path": "a\nb"}, r"data\.path is 'a\\nb': data\.format=synthetic reads no path"),
        ({"path": "corpus", "format": "hub"}, r"data\.path is 'corpus': data\.format=hub reads no path"),
        ({"boundaries": "dot"}, r"data\.boundaries is 'dot': it must be one of"),
        ({"overlong": "cut"}, r"data\.overlong is 'cut': it must be one of keep, error"),
        ({"max_tokens": 2}, r"data\.max_tokens is 2: it must be an int of at least 3"),
        ({"seed": -1}, r"data\.seed is -1: it must be an int of at least 0"),
        ({"holdout": [0.5, 0.5]}, r"data\.holdout is \[0\.5, 0\.5\]: the shares of valid and test must be below 1"),
        ({"mask_spans": 1.5}, r"data\.mask_spans is 1\.5: it must be a float from 0 to 1"),
        ({"max_ratio": 0.5}, r"data\.max_ratio is 0\.5: it must be a float of at least 1 or null"),
        ({"join_segments": [3, 2]}, r"data\.join_segments is \[3, 2\]: it must be \[fewest, most\]"),
        ({"join_segments": [1, 2], "multi_resolution": True}, "exclude each other"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_refusals(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        from_mapping(DataConfig, values, "data")
    assert "\n" not in str(caught.value)


def test_names_without_a_group() -> None:
    with pytest.raises(ValueError, match=r"^vocab_size is 'x': it must be an int above"):
        from_mapping(TokenizerConfig, {"vocab_size": "x"}, "")
