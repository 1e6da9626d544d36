"""Corpora for several tests."""

from __future__ import annotations

import pytest

from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scaleformer.text.documents import Document


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Corpora `long` and `short`, whose documents bear their names."""
    found = {}
    for name, seed, counts in (("long", 1, (160, 6, 4)), ("short", 2, (70, 4, 3))):
        folder = tmp_path_factory.mktemp(name)
        config = SyntheticConfig(seed=seed, train=counts[0], valid=counts[1], test=counts[2], segments=(1, 5))
        for split in ("train", "valid", "test"):
            lines = [Document(f"{name}-{d.id}", d.source, d.target).to_json() for d in generate(config, split)]
            (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        found[name] = str(folder)
    return found
