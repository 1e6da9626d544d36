"""`python -m scripts.pages.commands [PAGE ...]` runs what the pages show on the embedded corpus, some minutes in all.

Trainings are of two steps. What needs other data, a network or much time is listed, and its settings are checked.
Output that a page shows has to come from its command, but for numbers and translations, which are of another model.
Ends with 1 where a command fails, has settings that do not exist, or prints other output than is shown.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir

from scaleformer.cli.command import CONF, config_of, module_of, names_of, options_of
from scaleformer.cli.line import SWEEP, split_flags, typed
from scaleformer.commands import COMMANDS
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scripts.pages.shown import Shown, commands, missing
from scripts.pages.workspace import ROOT, Workspace

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "data/README.md",
    *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md"))),
]
#: what is added to a command, where its page does not set it, so that it takes seconds
SMALL = {
    "train": (
        *("model=tiny", "model.encoder_layers=1", "model.decoder_layers=1", "model.width=32", "model.feedforward=32"),
        *("model.heads=2", "tokenizer.vocab_size=345", "data.batch_tokens=512", "data.max_tokens=128", "threads=1"),
        *("trainer.max_steps=2", "trainer.val_check_interval=2", "trainer.log_every_n_steps=1"),
        *("trainer.precision=32-true", "decoding=greedy", "decoding.max_length_ratio=0.5"),
        *("callbacks.validation_bleu.examples=2", "callbacks.validation_bleu.decoding.max_length_ratio=0.5"),
        *("data.synthetic.train=60", "data.synthetic.valid=4", "data.synthetic.test=4"),
    ),
    "evaluate": ("ter=false", "max_documents=4"),
    "extrapolation": (
        *("documents=1", "modes=[pass]", "decoding.max_length_ratio=0.1", "bootstrap_samples=9"),
        "randomization_trials=9",
    ),
    "context": ("documents=8",),
    "boundaries": ("documents=4",),
    "terms": ("count=4",),
    "compare": ("bootstrap_samples=20", "randomization_trials=20"),
}
#: settings of `SMALL` that count whatever a page says
REPLACED = ("trainer.max_steps=", "trainer.val_check_interval=", "count=")
#: commands that are not run, and why
LONG = {
    "serve": "serves until it is stopped",
    "comet": "needs a package and a model of its own",
}
NETWORK = ("data=hub", "format=hub", "format=sacrebleu", "push=", "logger=")
#: settings whose values are read, and have to be there
READ = (
    *("input", "source", "target", "terms", "translation_memory", "checkpoint", "checkpoints", "run", "runs", "ids"),
    *("reference", "translations", "data.path", "init_from", "resume", "documents_file", "hypotheses"),
    "tokenizer.extend",
)
#: what stands in for names that pages leave to their readers
STAND_INS = {
    "data.path=FOLDER": "data.path=sample",
    "data.path=DIR": "data.path=sample",
    "data.path=A": "data.path=sample",
    "hydra.run.dir=RUN": "hydra.run.dir=runs/RUN",  # not into the run that others read
    "source=DIR": "source=data/samples/raw/en",
    "target=DIR": "target=data/samples/raw/es valid=0 test=0",
    "input=FILE": "input=source.txt",
    "output=FILE": "output=translated.txt",
    "input=FOLDER": "input=new/en",
    "path: DIR": "path: sample",
    "path: A": "path: sample",
    "path: B": "path: sample",
}


def name_of(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """(command, arguments) of words that call the program, None of others."""
    if words[:1] == ["scaleformer"] and len(words) > 1:
        return words[1], list(words[2:])
    if words[0].startswith("python") and len(words) > 1:
        if words[1] == "train.py":
            return "train", list(words[2:])
        if words[1].startswith("scripts/"):
            (name,) = re.findall(r"run\(\"([\w -]+)\"\)", (ROOT / words[1]).read_text(encoding="utf-8"))
            return str(name), list(words[2:])
    return None


def composed(name: str, arguments: Sequence[str]) -> Any:
    """The configuration of a command, its types checked. Raises Hydra's errors and ValueError for wrong settings."""
    module = module_of(name)
    _, overrides = split_flags(arguments)
    sweep = any(word in SWEEP for word in arguments)
    given = [typed(word, names_of(module), sweep) for word in overrides if not word.startswith(("hydra.", "resume="))]
    if sweep:
        given = [re.sub(r"=([^\[{,]+),.*", r"=\1", word) for word in given]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(config_of(name), given)
    if hasattr(module, "Options") and not re.search(r": *'?\?\?\?", str(config)):
        options_of(module, config)
    return config


def shortened(name: str, arguments: Sequence[str], config: Any) -> list[str]:
    """The arguments with what makes the command quick: what the configuration has, and the page does not choose."""
    if any(word.startswith("resume=") and word != "resume=auto" for word in arguments):
        return list(arguments)  # all else comes from the run
    if name == "translate" and not any(word.startswith(("source_language=", "input=-")) for word in arguments):
        return [*arguments, "source_language=en"]  # which a model of the embedded corpus cannot know
    arguments = [a for a in arguments if not a.startswith(REPLACED)]
    synthetic = name == "train" and "synthetic" in config.data
    more = []
    for setting in SMALL.get(name, ()):
        key = setting.partition("=")[0]
        if key.startswith("data.synthetic") and not synthetic:
            continue
        if key in ("decoding", "model") or not any(word.startswith(f"{key}=") for word in arguments):
            more.append(setting)
    return [*more, *arguments]


def obstacle(name: str, arguments: Sequence[str], folder: Path) -> str | None:
    """Why a command cannot run here; None where it can."""
    if name in LONG:
        return LONG[name]
    for word in arguments:
        if word.startswith(NETWORK):
            return f"{word.partition('=')[0]}= needs more than this machine"
        if word.startswith("tag="):
            return "needs a model that knows tags"
        if word.startswith(("trainer.devices=", "trainer.num_nodes=")):
            return "needs several devices"
        key, _, value = word.partition("=")
        if key in READ and not (key == "aligner" or value in ("-", "auto", "null")):
            for part in value.strip("[]").split(","):
                if not (folder / part).exists():
                    return f"no {part} here"
        if lacking := [path for path in re.findall(r"path: *([\w./-]+)", value) if not (folder / path).exists()]:
            return f"no {lacking[0]} here"
        if re.search(r"\.\.\.|\b(NAME|MODE)\b|\[key", word):
            return "is a pattern"
    return None


def check_other(words: Sequence[str]) -> str:
    """What is wrong with a command of another program, "" where nothing is known to be."""
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        lost = [t for t in words[1:] if t.isalpha() and not re.search(rf"^{t}:", makefile, re.MULTILINE)]
        return f"no target {lost[0]} in the Makefile" if lost else ""
    if words[0] == "pip":
        extras = re.findall(r"scaleformer\[([\w,]+)\]", " ".join(words))
        project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
        lost = [e for group in extras for e in group.split(",") if not re.search(rf"^{e} = \[", project, re.MULTILINE)]
        return f"no extra {lost[0]} in pyproject.toml" if lost else ""
    if list(words[1:2]) == ["-m"] and words[2].startswith(("scripts.", "tests.")):
        module = ROOT / words[2].replace(".", "/")
        found = module.with_suffix(".py").exists() or (module / "__main__.py").exists()
        return "" if found else f"no module {words[2]}"
    return ""


def examine(shown: Shown, place: Workspace, corpus: frozenset[str]) -> tuple[str, str]:
    """(what came of a command: ran | checked | other | failed, and why)."""
    text = shown.text
    for pattern, stand_in in STAND_INS.items():
        text = re.sub(rf"(?<![\w.]){re.escape(pattern)}(?![\w.])", stand_in, text)
    words = Shown(shown.line, text).words
    stdin, stdout = None, None
    if words[0] == "make" and words[1:] == ["train"]:
        words = ["scaleformer", "train"]
    if "|" in words:
        before, words = words[: words.index("|")], words[words.index("|") + 1 :]
        if before[0] != "echo" or "|" in words:
            return "other", "a pipe"
        stdin = place.folder / "stdin"
        stdin.write_text(" ".join(before[1:]) + "\n", encoding="utf-8")
    if "<" in words:
        stdin = place.folder / words[words.index("<") + 1]
        words = words[: words.index("<")] + words[words.index("<") + 2 :]
    if ">" in words:
        stdout = words[words.index(">") + 1]
        words = words[: words.index(">")]
    if words == ["scaleformer", "--help"]:
        code, output = place.run(["--help"])
        return ("ran", "") if code == 0 else ("failed", output)
    if (called := name_of(words)) is None:
        wrong = check_other(words)
        return ("failed", wrong) if wrong else ("other", words[0])
    name, arguments = called
    if name not in COMMANDS:
        return "failed", f"{name}: no such command"
    if "--help" in arguments:
        code, output = place.run([*name.split(), "--help"])
        return ("ran", "") if code == 0 else ("failed", output)
    if (reason := obstacle(name, arguments, place.folder)) == "is a pattern":
        return "checked", reason
    try:
        config = composed(name, arguments)
    except Exception as error:
        return "failed", " ".join(str(error).split())
    if reason is None and stdin is not None and not stdin.exists():
        reason = f"no {stdin.name} here"
    if reason is not None:
        return "checked", reason
    if name == "prepare":  # which writes into a new folder; pages give theirs the same names
        for word in arguments:
            if word.startswith("output="):
                shutil.rmtree(place.folder / word.removeprefix("output="), ignore_errors=True)
    code, output = place.run([*name.split(), *shortened(name, arguments, config)], stdin, stdout)
    if code:
        return "failed", f"exit code {code}: " + " ".join(output.split()[-60:])
    place.printed += output.replace("\r", "\n").splitlines()
    if lost := missing(shown.output, place.printed, corpus):
        return "failed", f"does not print {lost[0].strip()!r}"
    return "ran", f"{len(shown.output)} lines of output" if shown.output else ""


def check(pages: Sequence[str], folder: Path) -> int:
    """The number of commands that failed; each is printed, with all that did not run."""
    # Everything is imported before the first fork, and no thread started.
    for name in COMMANDS:
        module_of(name)
    os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "160", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"}
    start = Workspace(folder / "start", None)
    several = ("data.synthetic.segments=[1,12]", "data.synthetic.test=20", "test.enabled=false")
    arguments = ["train", *SMALL["train"], "experiment=smoke", "hydra.run.dir=run", *several]
    code, output = start.run(arguments)
    if code:
        raise SystemExit(f"scaleformer {' '.join(arguments)} failed:\n{output}")
    corpus = frozenset(
        word for split in ("train", "test") for d in generate(SyntheticConfig(), split) for s in (*d.source, *d.target)
        for word in s.split() if word.isalpha()
    )  # fmt: skip
    totals: dict[str, int] = dict.fromkeys(("ran", "checked", "other", "failed"), 0)
    for number, page in enumerate(pages):
        place = Workspace(folder / str(number), start.folder / "run")
        block = 0
        for shown in commands(ROOT / page):
            begin = time.monotonic()
            if shown.block != block:
                block, place.printed = shown.block, []
            came, why = examine(shown, place, corpus)
            totals[came] += 1
            line = f"{came:8}{page}:{shown.line}: {' '.join(shown.text.split())[:90]}"
            print(f"{line} ({time.monotonic() - begin:.0f} s)" + f"  {why}" * bool(why), flush=True)
    print(", ".join(f"{count} {came}" for came, count in totals.items()))
    return totals["failed"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.exit(int(check(sys.argv[1:] or PAGES, Path(scratch)) > 0))
