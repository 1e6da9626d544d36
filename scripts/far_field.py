"""Whole translations of a `segment_recall` model as it is, and with the far tokens of a site shut out.

    python -m scripts.far_field CHECKPOINT DOCUMENTS.jsonl [--shut encoder decoder cross] [--threads 1]

What a query sees beyond its near segments is weighed by the outer gates, which training may never have needed. A row
for the model as it is, and one for each site with these gates shut. Prints a table in Markdown.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from scaleformer.evaluation.plain import score_plain
from scaleformer.formats.json_lines import read_jsonl
from scaleformer.model.attention.segment_recall import SHUT, SegmentRecallAttention
from scaleformer.model.attention_weights import attentions_of
from scaleformer.system.errors import one_line_errors
from scaleformer.translation.translator import Translator
from scripts.bench_training.tables import markdown

AS_IT_IS = "as it is"


@torch.no_grad()
def shut(translator: Translator, site: str) -> None:
    """Shut the outer gates of the layers of a site that see the document. Raises ValueError where there are none."""
    all_of_it = [one for one in attentions_of(translator.model) if isinstance(one, SegmentRecallAttention)]
    found = [one for one in all_of_it if one.site == site and not one.own_segment]
    if not found:
        raise ValueError(f"--shut {site}: no layer of segment_recall that sees the document")
    for one in found:
        if one.gate_factor is not None:
            one.gate_factor[:, [0, -1]] = 0
        else:
            one.log_gate[:, [0, -1]] = torch.log(torch.tensor(SHUT))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("documents", help="JSON Lines, both sides")
    parser.add_argument("--shut", nargs="+", default=["encoder", "decoder", "cross"], help="sites, a row for each")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    torch.set_num_threads(given.threads)
    documents = list(read_jsonl(given.documents))
    rows, signatures = [], []
    for name in (AS_IT_IS, *given.shut):
        translator = Translator.load(given.checkpoint, "cpu")
        if name != AS_IT_IS:
            shut(translator, name)
        request = translator.request([document.source for document in documents])
        found = [list(one.segments) for one in translator.translate_documents(request)]
        scores = score_plain(documents, found, ter=False).report.scores
        signatures = [f"- {one.metric}: `{one.signature}`" for one in scores]
        rows.append([name if name == AS_IT_IS else f"{name} shut", *(f"{one.score:.2f}" for one in scores)])
    print(markdown(["far tokens", *(one.metric for one in scores)], rows) + "\n\n" + "\n".join(signatures))


if __name__ == "__main__":
    with one_line_errors():
        main()
