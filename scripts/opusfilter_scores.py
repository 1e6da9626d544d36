"""Score segments by rules of OpusFilter: 1 where all of them accept a pair, else 0.

    python -m venv .opusfilter && .opusfilter/bin/pip install opusfilter
    scaleformer prepare ... filters.scorer=".opusfilter/bin/python -m scripts.opusfilter_scores RULES.yaml"

RULES.yaml is a list of filters with their parameters, as under `filters:` in a step of OpusFilter. Reads lines of
source, tab and target on standard input, and writes a number for each.
"""

from __future__ import annotations

import argparse
import sys

from scaleformer.system.errors import one_line_errors


def main() -> None:
    """Raises ValueError without OpusFilter, and what it raises for rules that it does not know."""
    parser = argparse.ArgumentParser(
        "python -m scripts.opusfilter_scores", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rules", help="a YAML file: a list of filters with their parameters")
    given = parser.parse_args()
    try:
        from opusfilter.pipeline import FilterPipeline
        from ruamel.yaml import YAML  # it reads its rules with this
    except ImportError:
        raise ValueError("OpusFilter is not installed: pip install opusfilter") from None
    with open(given.rules, encoding="utf-8") as file:
        rules = FilterPipeline.from_config(YAML(typ="safe").load(file)).filters
    pairs = [line.rstrip("\n").split("\t") for line in sys.stdin]
    for verdicts in zip(*(rule.decisions(pairs) for rule in rules), strict=True):
        print(int(all(verdicts)))


if __name__ == "__main__":
    with one_line_errors():
        main()
