"""The CPU settings of the commands."""

from __future__ import annotations

import torch

from scaleformer.system.cpu import set_up_cpu


def test_threads():
    before = torch.get_num_threads()
    set_up_cpu(None)
    assert torch.get_num_threads() == before
    set_up_cpu(before + 1)
    assert torch.get_num_threads() == before + 1
    set_up_cpu(before)
