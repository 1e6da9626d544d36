"""A folder in which the commands of a page run one after the other, each in a process of its own."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from scaleformer.commands import main
from scaleformer.data.synthetic.corpus import SyntheticConfig, generate
from scripts.pages.manual import write_manual

ROOT = Path(__file__).parents[2]
SECONDS = 300  # most time for a command
RUNS = ("RUN", "RUN1", "RUN2", "REVERSE", "A", "B")  # what pages call the runs of their readers


class Workspace:
    """Has a run under the names of `RUNS`, documents of the samples, and a small manual."""

    def __init__(self, folder: Path, run: Path | None) -> None:
        self.folder = folder
        self.printed: list[str] = []  # by the commands of the present block
        (folder / "data").mkdir(parents=True)
        (folder / "data/samples").symlink_to(ROOT / "data/samples")
        (folder / "sample").symlink_to(ROOT / "data/samples/jsonl")
        for name in ("conf", "docs", "scripts", "train.py"):
            (folder / name).symlink_to(ROOT / name)
        write_manual(folder)
        document = next(iter(generate(SyntheticConfig(), "test")))
        (folder / "source.txt").write_text("\n".join(document.source) + "\n", encoding="utf-8")
        (folder / "terms.tsv").write_text(f"{document.source[0].split()[0]}\tword\n", encoding="utf-8")
        if run is not None:
            for name in RUNS:
                (folder / name).symlink_to(run)

    def run(self, words: Sequence[str], stdin: Path | None = None, stdout: str | None = None) -> tuple[int, str]:
        """Exit code and output of a command, in a process forked from this one, which has imported everything."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = self._execute(list(words), output.fileno(), stdin, stdout)
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
            ended: int | None = None
            end = time.monotonic() + SECONDS
            while ended is None:
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    ended = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > end:
                    os.kill(child, 9)
                    os.waitpid(child, 0)
                    ended = 124
                else:
                    time.sleep(0.02)
            output.seek(0)
            return ended, output.read()

    def _execute(self, words: list[str], output: int, stdin: Path | None, stdout: str | None) -> int:
        os.chdir(self.folder)
        os.dup2(os.open(stdin or os.devnull, os.O_RDONLY), 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if stdout is not None:
            os.dup2(os.open(stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        # Those of this process may write elsewhere, as pytest's do.
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.argv = ["scaleformer", *words]
        try:
            main(words)
        except SystemExit as error:
            return int(error.code or 0) if not isinstance(error.code, str) else 1
        return 0
