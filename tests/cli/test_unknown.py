"""The message for a removed choice."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException

from scaleformer.cli.call import CONF
from scaleformer.cli.unknown import unknown_override


@pytest.mark.parametrize("group", ["model/attention", "model/attention@model.sites.cross"])
def test_a_removed_attention_names_its_successor(group: str) -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"), pytest.raises(HydraException) as found:
        compose("config", [f"{group}=segment_hybrid"])
    message = "attention 'segment_hybrid' is gone: segment_recall replaces it, and scaleformer 0.1.0 still reads it"
    assert unknown_override(found.value) == message
