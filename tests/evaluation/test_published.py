"""Published scores of the WMT17 English-German systems, and the same texts without their boundaries.

The outputs are in the repository of sacrebleu (test/wmt17_en_de_systems.pkl.bz2), their scores in its test.sh: name
the file in WMT17_SYSTEMS to run this.
"""

from __future__ import annotations

import bz2
import io
import os
import pickle
from typing import Any

import pytest

from scaleformer.evaluation.metrics import Metrics
from scaleformer.evaluation.plain import score_plain
from scaleformer.evaluation.scores import corpus_bleu
from scaleformer.text.documents import Document

FILE = os.environ.get("WMT17_SYSTEMS", "")
PUBLISHED = {
    "C-3MA.4959": 22.67,
    "LIUM-NMT.4900": 26.6,
    "PROMT-Rule-based.4735": 16.61,
    "online-B.0": 26.65,
    "uedin-nmt.4722": 28.3,
}
PIECE = 100  # lines per document: the file does not mark document boundaries


class Lists(pickle.Unpickler):
    """Unpickles only lists, tuples and texts."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


# The outputs are third-party data: the repository does not contain them, and tests do not download them.
@pytest.mark.skipif(not FILE, reason="WMT17_SYSTEMS names no file of system outputs")
@pytest.mark.parametrize("name", PUBLISHED)
def test_scores_match_published_ones(name: str) -> None:
    with bz2.open(FILE) as file:
        systems = dict(Lists(io.BytesIO(file.read())).load())
    (reference,), output = systems["reference"], systems[f"newstest2017.{name}.en-de"]
    assert corpus_bleu(output, reference, Metrics("13a")) == pytest.approx(PUBLISHED[name], abs=0.006)
    parts = [slice(start, start + PIECE) for start in range(0, len(reference), PIECE)]
    documents = [Document(str(n), ("",) * len(reference[part]), tuple(reference[part])) for n, part in enumerate(parts)]
    stripped = score_plain(documents, [" ".join(output[part]) for part in parts], Metrics("13a"), ter=False)
    assert stripped.report.score("s-BLEU").score == pytest.approx(PUBLISHED[name], abs=0.05)
