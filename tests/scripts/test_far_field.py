"""Far tokens shut out: nothing changes where there are none, and the outer gates alone are shut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from scaleformer.model.attention_weights import attentions_of
from scaleformer.translation.translator import Translator
from scripts.far_field import main, shut
from tests.runs import DOCUMENTS, make_run

RECALL = {"name": "segment_recall", "near": 1}


@pytest.mark.parametrize("apart", [False, True])
def test_the_outer_gates_of_a_site_are_shut(apart: bool, tmp_path: Path) -> None:
    """Also those that are factors, of models of single sentences."""
    translator = Translator.load(make_run(tmp_path / "run", attention=RECALL), "cpu")
    for one in attentions_of(translator.model):
        if apart:
            one.begin_apart()
            with torch.no_grad():
                one.gate_factor.fill_(0.5)
    before = [one.gate.detach().clone() for one in attentions_of(translator.model)]
    shut(translator, "encoder")
    for old, one in zip(before, attentions_of(translator.model), strict=True):
        changed = (one.gate != old).any(0).tolist()
        assert changed[1:-1] == [False] * (len(changed) - 2)
        if one.site == "encoder" and not one.own_segment:
            assert float(one.gate.detach()[:, [0, -1]].max()) < -60
        else:
            assert not any(changed)
    with pytest.raises(ValueError, match="no layer of segment_recall"):
        shut(translator, "nowhere")


def test_rows_of_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = make_run(tmp_path / "run", attention=RECALL), tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS), encoding="utf-8")
    main([str(run), str(path), "--shut", "cross"])
    table = capsys.readouterr().out.split("\n\n")[0].splitlines()
    rows = [line.split("|")[1].strip() for line in table]
    assert rows[2:] == ["as it is", "cross shut"]
