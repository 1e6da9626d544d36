"""What the programs' drivers share; it stands beside them, since their environments lack this package."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

#: a job and the folder of its row -> facts for the result
Phase = Callable[[dict[str, Any], Path], dict[str, Any]]


def run(train: Phase, translate: Phase) -> None:
    """The phase that the command line names, `JOB.json train|translate`; its facts go to train.json or translate.json
    in the folder of the row."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    torch.set_num_threads(job["threads"])
    work = Path(job["work"])
    facts = {"train": train, "translate": translate}[sys.argv[2]](job, work)
    (work / f"{sys.argv[2]}.json").write_text(json.dumps(facts, indent=2))
