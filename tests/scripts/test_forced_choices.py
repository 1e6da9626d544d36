"""What a model knows of class words, given the reference."""

from __future__ import annotations

from pathlib import Path

import torch

from scaleformer.checkpoints.model_file import load_model
from scaleformer.data.batching import collate
from scaleformer.evaluation.context.choices import Choice, When
from scripts.forced_choices import classes_of, examples, outcomes
from tests.runs import make_run


def test_words_are_told_apart_by_what_stands_before_them(tmp_path: Path) -> None:
    loaded = load_model(make_run(tmp_path / "run"))
    whole = [n for n in range(loaded.target_tokenizer.vocab_size) if len(loaded.target_tokenizer.piece(n)) > 3]
    words = [piece[1:] for n in whole if (piece := loaded.target_tokenizer.piece(n)).startswith("\u2581")]
    one, other = [w for w in words if len(loaded.target_tokenizer.encode(w)) == 1][:2]
    choice = Choice("x", When(("a",)), {"a": (one,), "b": (other,)})
    classes = classes_of(choice, loaded)
    document = (["x", "y", "z"], [f"{one} {one}", other, f"{one} {other}"])
    pieces, segments = (list(examples(loaded, [document], most)) for most in (100, 0))
    assert [len(pieces), len(segments)] == [1, 3]
    found = list(outcomes(loaded, pieces, classes))
    assert [row[1:] for row in found] == [(True, None), (False, True), (True, False), (True, False), (False, False)]
    batch = collate(pieces)
    with torch.inference_mode():
        logits = loaded.model.logits(loaded.model(batch))[0]
    sides = [int((classes == number).nonzero()[0, 0]) for number in (1, 2)]
    at = torch.isin(batch.target_output[0], torch.tensor(sides))
    wanted = (logits[at][:, sides].argmax(1) == classes[batch.target_output[0][at]] - 1).tolist()
    assert [row[0] for row in found] == wanted
    assert [row[1:] for row in outcomes(loaded, segments[:1], classes)] == [(True, None), (False, True)]
