"""The commands: `scaleformer COMMAND [key=value ...]`, a module each.

A module has `main(options, given)`: its settings as the dataclass `Options` of the module, and the overrides of the
command line as they were given. Names and defaults of the settings stand in conf/commands/COMMAND.yaml.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

from scaleformer.system.allocator import bound_kernel_caches, use_huge_pages
from scaleformer.system.display import displayed

COMMANDS = {
    "train": "Train a model and evaluate it, or resume=RUN",
    "translate": "Translate documents: text, Markdown, HTML, docx, PO, ...",
    "serve": "Translate by HTTP, and on a page in the browser",
    "prepare": "Turn text pairs, TSV, PO or data sets into a corpus",
    "evaluate": "Translate and score: d-BLEU, s-BLEU, chrF++, TER",
    "extrapolation": "Loss, BLEU, time and memory beyond the trained length",
    "context": "Score what only earlier segments decide: pronouns, terms",
    "boundaries": "Measure what missing segment boundaries cost",
    "consistency": "Do translations call one thing by one name?",
    "terms": "Do terms come as they are asked for?",
    "comet": "Score saved translations by COMET",
    "score": "Log-probabilities; BLEU of any system's output",
    "rerank": "Choose by minimum Bayes risk from n-best lists, samples",
    "compare": "Test whether runs differ by more than chance",
    "export": "Write a model as safetensors, YAML and tokenizers",
    "average": "Average the weights of several checkpoints",
    "plot": "Draw the figures and the page of one run or several",
    "attention-maps": "Save and draw where a model looks",
    "benchmark attention": "Time and memory of attention beside its peers",
    "benchmark training": "Time training steps beside other libraries",
    "benchmark decoding": "Time decoding beside other libraries",
    "benchmark data": "Time the preparation of a large corpus",
    "benchmark mechanisms": "Train and compare every attention",
    "benchmark quality": "Train other programs and ours for one time, and score",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The program `scaleformer`: the command named first, with the settings that follow."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    words = 2 if given[:1] == ["benchmark"] else 1
    name, rest = " ".join(given[:words]), given[words:]
    if name in COMMANDS:
        run(name, rest, given[:words])
    elif not given or {"-h", "--help"} & set(given[:words]):
        print(overview())
    else:
        close = next(iter(difflib.get_close_matches(name, COMMANDS, 1, 0.6)), None)
        guess = f" (did you mean {close}?)" if close else ""
        print(f"error: {name}: no such command{guess}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(1)


def overview() -> str:
    """The list of commands, a line each."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: scaleformer COMMAND [key=value ...]\n",
            *lines,
            "\n`scaleformer COMMAND --help` describes the settings of a command.",
        ]
    )


def run(name: str, arguments: Sequence[str] | None = None, words: Sequence[str] = ()) -> None:
    """Run a command in this process, with one line and exit code 1 for what is wrong with its input.

    words: what of the command line names the command: a process for another device is started with them again.
    """
    use_huge_pages()  # torch reads these at its first tensor, which Lightning makes as it is imported
    bound_kernel_caches()
    from scaleformer.commands.call import call

    with displayed():
        call(name, list(sys.argv[1:] if arguments is None else arguments), words)
