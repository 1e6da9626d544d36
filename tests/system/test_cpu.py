"""The CPU settings of the commands."""

from __future__ import annotations

import pytest
import torch

from scaleformer.system.cpu import set_up_cpu


def test_threads():
    before = torch.get_num_threads()
    set_up_cpu(None)
    assert torch.get_num_threads() == before
    set_up_cpu(before)
    for wrong in (0, "many", True):
        with pytest.raises(ValueError, match=f"threads={wrong}: wanted a whole number"):
            set_up_cpu(wrong)
