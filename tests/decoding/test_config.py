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
        ({"strategy": "best"}, r"^decoding\.strategy is 'best': it must be one of greedy, beam, sample$"),
        ({"beam_size": 0}, "beam_size is 0: it must be an int of at least 1"),
        ({"beam_size": 2.5}, r"beam_size is 2\.5"),
        ({"length_penalty": -1}, "length_penalty is -1"),
        ({"length_penalty": 400}, "length_penalty is 400: it must be a float from 0 to 10"),
        ({"strategy": "beam", "beam_size": 2, "n_best": 3}, "n_best is 3: it must be at most 2 with"),
        ({"strategy": "greedy", "n_best": 2}, "at most 1 with decoding.strategy=greedy"),
        ({"max_length_offset": 0}, "max_length_offset is 0"),
        ({"temperature": 0}, "temperature is 0"),
        ({"temperature": 1e-40}, "temperature is 1e-40"),
        ({"top_p": 0}, "top_p is 0: it must be a float above 0"),
        ({"top_k": -1, "seed": -1}, "top_k is -1"),
        ({"loop_ngram_size": -3}, "loop_ngram_size is -3: it must be an int from 0 to 100"),
        ({"match_segments": "yes"}, "match_segments is 'yes'"),
        ({"max_length_ratio": math.inf}, "max_length_ratio is inf"),
        ({"memory_limit": True}, "memory_limit is true: it must be a str or float"),
        ({"memory_limit": "much"}, "memory_limit is 'much': it must be a size as 2GiB or 512MiB, or null"),
        ({"match_segments": False, "min_length_ratio": 0.5}, "min_length_ratio is 0.5: it must be 0 with"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        DecodingConfig(**settings)


def test_a_memory_limit_may_be_any_number_of_bytes():
    sizes = [DecodingConfig(memory_limit=size).memory_limit_bytes for size in (1e9, 10**9, "1GB")]
    assert sizes == [10**9] * 3


def test_unknown_setting_is_named():
    run = DecodingConfig()
    with pytest.raises(
        ValueError,
        match=r"decoding\.beams: no such setting .*; there are strategy, beam_size",
    ):
        choose_decoding(run, {**asdict(run), "beams": 3}, ["decoding=beam"])


def test_settings_of_the_command_line_go_before_those_of_the_run():
    run = DecodingConfig(strategy="greedy", length_penalty=0.3)
    settings = asdict(DecodingConfig(beam_size=7))
    assert choose_decoding(run, settings, ["checkpoint=x", "output=decoding"]) == run
    with pytest.raises(ValueError, match=r"decoding\.beam_size is 7: the strategy is greedy, which has no beam: set"):
        choose_decoding(run, settings, ["decoding.beam_size=7"])
    assert choose_decoding(run, settings, ["decoding.beam_size=7", "decoding.strategy=beam"]) == DecodingConfig(
        "beam", 7, 0.3
    )
    with pytest.raises(ValueError, match=r"decoding\.top_k is 5: .* no sampling: set decoding\.strategy=sample too"):
        choose_decoding(run, asdict(DecodingConfig(top_k=5)), ["decoding.top_k=5"])
    alone = asdict(DecodingConfig(beam_size=1))
    assert choose_decoding(run, alone, ["decoding.beam_size=1"]) == DecodingConfig("greedy", 1, 0.3)
    assert choose_decoding(run, settings, ["decoding=beam", "decoding.beam_size=7"]) == DecodingConfig(beam_size=7)


def test_the_seed_of_a_command_may_be_that_of_the_sampling():
    run = DecodingConfig(strategy="sample", seed=2)
    settings = asdict(DecodingConfig(seed=7))  # as composed: decoding.seed is that of the command
    assert choose_decoding(run, settings, ["seed=7"], seed=True) == DecodingConfig(strategy="sample", seed=7)
    assert choose_decoding(run, settings, [], seed=True) == run
    assert choose_decoding(run, settings, ["seed=7"]) == run


def test_the_configurations_are_the_defaults_but_for_the_strategy() -> None:
    folder = Path(__file__).parents[2] / "conf" / "decoding"
    files = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in folder.glob("*.yaml")}
    assert files.pop("beam") == asdict(DecodingConfig())
    assert files == {name: {"defaults": ["beam", "_self_"], "strategy": name} for name in ("greedy", "sample")}
