"""Settings of a search: what is refused, and how it is said."""

from __future__ import annotations

import math

import pytest

from scaleformer.translation.config import DecodingConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "best"}, "strategy='best' .*greedy, beam, sample"),
        ({"beam_size": 0}, "beam_size=0"),
        ({"beam_size": 2.5}, r"beam_size=2\.5"),
        ({"length_penalty": -1}, "length_penalty=-1"),
        ({"length_penalty": 400}, "length_penalty=400"),
        ({"strategy": "beam", "beam_size": 2, "n_best": 3}, "n_best=3 .*at most 2"),
        ({"strategy": "greedy", "n_best": 2}, "at most 1 with strategy=greedy"),
        ({"max_length_offset": 0}, "max_length_offset=0"),
        ({"temperature": 0}, "temperature=0"),
        ({"temperature": 1e-40}, "temperature=1e-40"),
        ({"top_p": 0}, "top_p=0"),
        ({"top_k": -1, "seed": -1}, "top_k=-1 .*seed=-1"),
        ({"no_repeat_ngram_size": -3}, r"no_repeat_ngram_size=-3 \(wanted a whole number from 1 to 100, 0 for"),
        ({"match_segments": "yes"}, "match_segments='yes'"),
        ({"max_length_ratio": math.inf}, "max_length_ratio=inf"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        DecodingConfig(**settings)


def test_unknown_setting_is_named():
    with pytest.raises(ValueError, match="no such decoding setting: beams; there are strategy, beam_size"):
        DecodingConfig.from_mapping({"beams": 3})
    assert DecodingConfig.from_mapping({"beam_size": 3}).beam_size == 3
