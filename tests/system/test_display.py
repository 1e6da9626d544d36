"""A failure of mere display does not stop the work; a result that cannot be written is an error."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import rich.console  # noqa: F401 (SHOW uses it)

from scaleformer.system import display
from scaleformer.system.display import Display, counted_as, displayed, result_stream
from scaleformer.system.errors import one_line_errors
from scaleformer.translation.files.lines import translation_writer

SHOW = """
print("año 文档", flush=True)
rich.console.Console().print("文档")
print("more", file=sys.stderr, flush=True)
"""  # every way to print
BEGIN = f"""
import rich.console, runpy, sys
displayed = runpy.run_path({display.__file__!r})["displayed"]  # without torch, which takes seconds to import
def show(): exec({SHOW!r})
"""


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # the latter is Python's own in the locale C
@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_characters_are_replaced(monkeypatch, encoding: str, errors: str) -> None:
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding=encoding, errors=errors))
    with displayed():
        exec(SHOW)
    assert shown.getvalue() == "año 文档\n文档\n".encode(encoding, errors="replace")


@pytest.mark.parametrize("end", ["full", "gone"])
@pytest.mark.parametrize("number", [1, 2])
def test_work_continues_without_a_reader(tmp_path: Path, end: str, number: int) -> None:
    """In a process of its own, which also exits cleanly: no failing flush at exit."""
    code = f"{BEGIN}\nwith displayed(): show(); show(); print('more')\nopen('done', 'w')"
    streams = {1: subprocess.PIPE, 2: subprocess.PIPE}
    if end == "full":
        streams[number] = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, streams[number] = os.pipe()
        os.close(reader)
    found = subprocess.run(
        [sys.executable, "-c", code],
        stdout=streams[1],
        stderr=streams[2],
        cwd=tmp_path,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    os.close(streams[number])
    assert found.returncode == 0
    assert (tmp_path / "done").exists()
    if number == 1:
        reason = "No space left on device" if end == "full" else "Broken pipe"
        lines = ["more", f"warning: cannot write to stdout ({reason}): continuing without it", "more"]
        assert sorted(found.stderr.decode().splitlines()) == sorted(lines)
    else:
        assert found.stdout.decode() == "año 文档\n文档\n" * 2 + "more\n"


def test_no_file_replaces_a_closed_stream(tmp_path: Path) -> None:
    code = f"{BEGIN}\nwith displayed(): print(open('f', 'w').fileno(), file=open('g', 'w')); show()"
    closing = [sys.executable, "-c", "import os, sys; os.closerange(0, 3); os.execv(sys.executable, sys.argv[1:])"]
    found = subprocess.run([*closing, sys.executable, "-c", code], cwd=tmp_path)
    assert found.returncode == 0
    assert int((tmp_path / "g").read_text()) > 2


def test_writing_a_result_raises_errors(monkeypatch, capsys) -> None:
    with open("/dev/full", "w", encoding="ascii") as full:
        monkeypatch.setattr(sys, "stdout", full)

        @one_line_errors()
        def command() -> None:
            with translation_writer("-") as file:
                file.write("日本\n")

        with pytest.raises(SystemExit), displayed():
            command()
    assert capsys.readouterr().err == "error: stdout: No space left on device\n"


def test_a_result_for_a_closed_stdout_is_refused_before_the_work(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with displayed():
        assert isinstance(sys.stdout, Display)
        print("shown nowhere")
        with pytest.raises(ValueError, match="stdout is closed, but the result goes there: name an output file"):
            result_stream()


def test_one_thing_is_said_in_the_singular():
    assert counted_as(1, "segments left as they are") == "1 segment left as they are"
    assert counted_as(1, "fuzzy units") == "1 fuzzy unit"
    assert counted_as(1200, "cues without words") == "1,200 cues without words"
