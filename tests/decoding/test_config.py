"""Settings of a search: which ones are refused, and with which error."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from scaleformer.decoding.config import DecodingConfig, choose_decoding


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


def test_settings_of_the_command_line_go_before_those_of_the_run():
    run = DecodingConfig(strategy="greedy", length_penalty=0.3)
    settings = asdict(DecodingConfig(beam_size=7))
    assert choose_decoding(run, settings, ["checkpoint=x", "output=decoding"]) == run
    with pytest.raises(ValueError, match=r"decoding\.beam_size=7: the strategy is greedy, which has no beam: set"):
        choose_decoding(run, settings, ["decoding.beam_size=7"])
    assert choose_decoding(run, settings, ["decoding.beam_size=7", "decoding.strategy=beam"]) == DecodingConfig(
        "beam", 7, 0.3
    )
    with pytest.raises(ValueError, match=r"decoding\.top_k=5: .* no sampling: set decoding\.strategy=sample too"):
        choose_decoding(run, asdict(DecodingConfig(top_k=5)), ["decoding.top_k=5"])
    alone = asdict(DecodingConfig(beam_size=1))
    assert choose_decoding(run, alone, ["decoding.beam_size=1"]) == DecodingConfig("greedy", 1, 0.3)
    assert choose_decoding(run, settings, ["decoding=beam", "decoding.beam_size=7"]) == DecodingConfig(beam_size=7)


def test_the_beam_configuration_is_the_default() -> None:
    path = Path(__file__).parents[2] / "conf" / "decoding" / "beam.yaml"
    assert yaml.safe_load(path.read_text(encoding="utf-8")) == asdict(DecodingConfig())
