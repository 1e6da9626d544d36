"""The files of scripts/ that start a command, called by their path: on every format.

Python puts their folder first on its path, where a file could hide a package of the same name.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from docx import Document

from tests.books import book
from tests.runs import make_run

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "data" / "samples"
LANGUAGES = ("source_language=en", "target_language=es")
PREPARED = {
    "text": (f"input={SAMPLES / 'text' / 'train.en'}", f"target={SAMPLES / 'text' / 'train.es'}"),
    "jsonl": (f"input={SAMPLES / 'one_file.jsonl.gz'}",),
    "tsv": (f"input={SAMPLES / 'documents.tsv'}",),
    "csv": (f"input={SAMPLES / 'tables' / 'rows.csv'}", "source_column=en", "target_column=es"),
    "po": (f"input={SAMPLES / 'po'}",),
    "xliff": (f"input={SAMPLES / 'catalogues'}",),
    "tmx": (f"input={SAMPLES / 'catalogues'}", *LANGUAGES),
    "raw": (f"source={SAMPLES / 'raw' / 'en'}", f"target={SAMPLES / 'raw' / 'es'}", *LANGUAGES),
}
PAGES: dict[str, str | bytes] = {
    "a.md": "# One\n\nTwo words.\n",
    "b.html": "<p>One <b>two</b></p>\n",
    "c.po": 'msgid ""\nmsgstr "Language: es\\n"\n\nmsgid "One"\nmsgstr ""\n',
    "d.xlf": '<xliff version="1.2"><file original="a" source-language="en" target-language="es" datatype="plaintext">'
    '<body><trans-unit id="1"><source>One</source></trans-unit></body></file></xliff>\n',
    "e.srt": "1\n00:00:01,000 --> 00:00:02,000\nOne.\n\n",
    "f.vtt": "WEBVTT\n\n00:01.000 --> 00:02.000\nOne.\n",
    "g.txt": "One.\n",
    "h.epub": book(),
}
CALLS = """
import json, os, runpy, sys
for script, *arguments in json.load(sys.stdin):
    sys.argv, sys.path[0] = [script, *arguments], os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")
"""


def test_every_script_reads_every_format(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    for name, content in PAGES.items():
        (pages / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    document = Document()
    document.add_paragraph("One.")
    document.save(str(pages / "i.docx"))
    run, memory = make_run(tmp_path / "run"), f"translation_memory={SAMPLES / 'catalogues' / 'kitchen.tmx'}"
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"id": "a", "source": ["One."]}\n', encoding="utf-8")
    own = ("data=jsonl", f"data.path={SAMPLES / 'jsonl'}")
    text = ("data=text", f"data.path={SAMPLES / 'text'}", "data.source_suffix=en", "data.target_suffix=es")
    calls = [("prepare_data", f"format={n}", *w, f"output={tmp_path / n}", "valid=0") for n, w in PREPARED.items()]
    calls = [(*call, "test=0") for call in calls] + [
        ("translate", f"checkpoint={run}", f"input={pages}", f"output={tmp_path / 'es'}", memory, *LANGUAGES[:1]),
        ("translate", f"checkpoint={run}", f"input={lines}", f"output={tmp_path / 'lines.es.jsonl'}"),
        *(("evaluate_bleu", f"checkpoint={run}", *data, "ter=false", f"output={run}") for data in (own, text)),
        ("evaluate_extrapolation", f"checkpoint={run}", *own, "lengths=[segment]", "modes=[segments]", f"output={run}"),
    ]
    given = json.dumps([(str(ROOT / "scripts" / f"{script}.py"), *rest) for script, *rest in calls])
    done = subprocess.run(
        [sys.executable, "-c", CALLS], input=given, capture_output=True, text=True, cwd=ROOT, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    assert {path.parent.name for path in tmp_path.glob("*/train.jsonl.gz")} == set(PREPARED)
    assert {path.name for path in (tmp_path / "es").iterdir()} == {path.name for path in pages.iterdir()}
