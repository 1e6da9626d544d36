"""The commands: `scaleformer COMMAND [key=value ...]`, one module each.

A module has `main(options, given)`: its settings as the dataclass `Options` of the module, and the overrides of the
command line as typed. conf/commands/COMMAND.yaml has the names and defaults of the settings.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence

from scaleformer import __version__
from scaleformer.system.allocator import bound_kernel_caches, use_huge_pages
from scaleformer.system.display import displayed, show_page
from scaleformer.system.errors import one_line_errors

COMMANDS = {
    "train": "Train a model and evaluate it, or resume=RUN",
    "translate": "Translate text, Markdown, HTML, docx, EPUB, PO, ...",
    "serve": "Translate over HTTP, and on a page in the browser",
    "prepare": "Turn text pairs, TSV, PO or data sets into a corpus",
    "inspect": "Look at a corpus: duplicates, leaks, languages, filters",
    "evaluate": "Translate and score: d-BLEU, s-BLEU, chrF++, TER",
    "extrapolation": "Loss, BLEU, time and memory beyond the trained length",
    "context": "Score what only earlier segments decide: pronouns, terms",
    "choices": "Score words that other sentences decide: tú, vosotros",
    "boundaries": "Measure the cost of missing segment boundaries",
    "confidence": "Learn and measure which segments are likely bad",
    "consistency": "Score consistent translation of names and terms",
    "comet": "Score saved translations with COMET",
    "score": "Log-probabilities; BLEU of any system's output",
    "rerank": "Choose by minimum Bayes risk from n-best lists, samples",
    "compare": "Test whether runs differ by more than chance",
    "export": "Write a model as safetensors, YAML and tokenizers",
    "average": "Average the weights of several checkpoints",
    "plot": "Draw the figures and the page of one or several runs",
    "attention-maps": "Save and draw where a model looks",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The program `scaleformer`: the command named first, with the settings that follow."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["help"]:
        given = [*given[1:], "--help"]
    name, rest = " ".join(given[:1]), given[1:]
    if "--version" in given or given[:1] in (["-V"], ["version"]):
        show_page(f"scaleformer {__version__}")
    elif name in COMMANDS:
        run(name, rest, given[:1])
    elif name == "benchmark":
        from scaleformer.commands.benchmark import main as benchmark

        with one_line_errors():
            benchmark(rest)
    elif not given or {"-h", "--help"} & set(given[:1]):
        show_page(overview())
    else:
        close = next(iter(difflib.get_close_matches(name, COMMANDS, 1, 0.6)), None)
        guess = f" (did you mean {close}?)" if close else ""
        print(f"error: {name}: no such command{guess}; there are {', '.join(COMMANDS)}", file=sys.stderr)
        sys.exit(1)


def overview() -> str:
    """The list of commands, one per line."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, text in COMMANDS.items()]
    return "\n".join(
        [
            "usage: scaleformer COMMAND [key=value ...]\n",
            *lines,
            f"  {'benchmark':{width}}  Time attention, training or decoding, in a clone",
            "\n`scaleformer COMMAND --help` describes the settings of a command.",
        ]
    )


def run(name: str, arguments: Sequence[str] | None = None, words: Sequence[str] = ()) -> None:
    """Run a command in this process; wrong input ends it with one line and exit code 1.

    words: the part of the command line that names the command; processes for other devices are started with it.
    """
    use_huge_pages()  # torch reads these at its first tensor, which importing Lightning makes
    bound_kernel_caches()
    with displayed(), one_line_errors(resumable=name == "train"):
        from scaleformer.cli.call import call

        call(name, list(sys.argv[1:] if arguments is None else arguments), words)
