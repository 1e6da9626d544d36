"""Runs every case beside ours, writes docs/oracles.md, and keeps what the packages say."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors.torch import save_file

from tests.model.attention.oracles import hugging_face, packages, patterns, written_out  # noqa: F401
from tests.model.attention.oracles.comparison import CASES, NUMBERS, Case, errors, ours, results

PAGE = Path(__file__).parents[4] / "docs" / "oracles.md"
TEXT = """\
# Checked against somebody else's code

Made by `python -m tests.model.attention.oracles`, with the extra `oracle` and torch {torch}.

Every attention stands here beside an implementation that is not ours: the same weights and inputs in float64, the
output, and the gradients of the input and of every weight. Errors are the largest difference in a tensor relative to
its greatest number. Those above 1e-12 are rounding: a part of one of the two is in float32, or, with `reformer`, the
other adds an epsilon. The inputs are two texts of twelve tokens, the second of which ends in pads where the other
implementation knows them.

The tests run all cases. Where a package is not installed, they compare with
`tests/model/attention/oracles/numbers.safetensors`: what it said when this page was made.

## Packages

| attention | site | package | what of it | output | gradients |
|---|---|---|---|--:|--:|
{packages}

## No package

We know of no package that has these mechanisms at these sites as we have them. torch's `scaled_dot_product_attention`
is handed the mask or the weight of every pair, which we write out a second time. So softmax, sums and gradients are
checked by somebody else's code; how the formula is meant, is not.

| attention | site | what is written out | output | gradients |
|---|---|---|--:|--:|
{written_out}

## Where the others differ

- `BigBirdBlockSparseAttention` of transformers sees the last block from everywhere too, and draws its blocks
  otherwise.
- `LSHAttention` of reformer-pytorch cuts the sorted text into chunks. The two agree where one chunk and the one before
  it are all of a bucket, as here.
- `softmax_kernel` of performer-pytorch adds an epsilon to every feature, and its attention counts pads; both are off
  here.
- Longformer's decoder has no global tokens, so that the window of local-attention stands there. Dilated heads, and the
  first tokens of segments as global ones, are a mask here.
- A causal `efficient` is ours.
"""


def row(case: Case, found: tuple[float, float]) -> str:
    by = f"`{case.package}` {version(case.package)} | {case.peer}" if case.package != "torch" else case.peer
    return f"| `{case.choice}` | {case.site} | {by} | {found[0]:.0e} | {found[1]:.0e} |"


def main() -> None:
    if lacking := sorted({case.package for case in CASES if not find_spec(case.module)}):
        raise SystemExit(f"error: {', '.join(lacking)}: not installed: pip install -e '.[oracle]'")
    numbers, rows = {}, {}
    for case in sorted(CASES, key=lambda case: case.choice):
        theirs = results(case, case.theirs)
        rows[case] = row(case, errors(results(case, ours), theirs))
        print(rows[case])
        if case.package != "torch":
            numbers |= {f"{case.id} {name}": x.float().contiguous() for name, x in theirs.items()}
    save_file(numbers, NUMBERS)
    tables = {
        "packages": "\n".join(text for case, text in rows.items() if case.package != "torch"),
        "written_out": "\n".join(text for case, text in rows.items() if case.package == "torch"),
    }
    PAGE.write_text(TEXT.format(torch=torch.__version__.partition("+")[0], **tables), encoding="utf-8")


if __name__ == "__main__":
    main()
