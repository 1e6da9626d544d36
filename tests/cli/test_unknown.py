"""The message for a removed choice."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException

from scaleformer.cli.command import CONF
from scaleformer.cli.unknown import unknown_override


@pytest.mark.parametrize("group", ["model/attention", "model/attention@model.sites.cross"])
def test_a_removed_attention_names_its_successor(group: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"), pytest.raises(HydraException) as found:
        compose("config", [f"{group}=segment_gated"])
    assert unknown_override(found.value) == "attention 'segment_gated' is gone: segment_recall replaces it"
