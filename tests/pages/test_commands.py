"""The check of the commands in pages finds them and their output, and tells right from wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.pages.commands import PAGES, check_other, composed, name_of, obstacle, shortened
from scripts.pages.shown import commands, masked, missing
from scripts.pages.workspace import ROOT, Workspace

PAGE = """\
# Title

    make train      # comment
    scaleformer translate checkpoint=RUN \\
        input=a.md output=b.md

The last one prints

    3 files

and `make train` ends with

```
test: 100 documents
...
```

```python
scaleformer = 1
```

## Other

    a formula = b

    $ X=1 python scripts/translate.py 'a=b
      c'
    12 lines
    # none
    scaleformer --help
"""


def test_commands_and_their_output_are_found(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    found = [(shown.line, " ".join(shown.words), shown.output) for shown in commands(tmp_path / "page.md")]
    assert found == [
        (3, "make train", ["test: 100 documents", "..."]),
        (4, "scaleformer translate checkpoint=RUN input=a.md output=b.md", ["    3 files".strip()]),
        (26, "python scripts/translate.py a=b\n  c", ["12 lines", "# none"]),
        (30, "scaleformer --help", []),
    ]


def test_numbers_tables_and_words_of_the_corpus_are_masked() -> None:
    corpus = frozenset({"geka", "vira"})
    assert masked("│ d-BLEU │ 98.43 │  1,000 │", corpus) == "d-BLEU # #"
    assert masked("source   geka vira .", corpus) == "source ~"
    assert masked("geka, vira", corpus) == "geka, ~"


def test_lines_that_the_output_lacks_are_told_in_their_order() -> None:
    output = ["run folder/runs/smoke/2026: 4 parameters", "loss 8.1", "geka vira", "segments: 7 of 7"]
    corpus = frozenset({"geka", "vira"})
    shown = ["run .../runs/smoke/TIME: 9 parameters", "...", "vira geka vira", "segments: 668 of 668"]
    assert missing(shown, output, corpus) == []
    assert missing([*shown[::-1]], output, corpus) == [shown[0]]
    assert missing(["segments: 7 of 7; more"], output) == ["segments: 7 of 7; more"]


def test_settings_that_do_not_exist_are_found() -> None:
    composed("translate", ["checkpoint=RUN", "input=a", "output=b", "decoding.beam_size=3"])
    composed("train", ["-m", "model/attention=softmax,rotary"])
    with pytest.raises(Exception, match="beams"):
        composed("translate", ["checkpoint=RUN", "input=a", "output=b", "beams=3"])
    with pytest.raises(ValueError, match="max_documents"):
        composed("evaluate", ["checkpoint=RUN", "max_documents=few"])


def test_what_cannot_run_here_is_told(tmp_path: Path) -> None:
    place = Workspace(tmp_path / "place", tmp_path)
    assert obstacle("translate", ["checkpoint=RUN", "input=source.txt", "output=x"], place.folder) is None
    assert obstacle("translate", ["checkpoint=RUN", "input=theirs.txt"], place.folder) == "no theirs.txt here"
    assert obstacle("plot", ["runs=[A,C]"], place.folder) == "no C here"
    assert obstacle("prepare", ["format=hub", "input=a/b"], place.folder) == "format= needs more than this machine"
    assert obstacle("serve", ["checkpoint=RUN"], place.folder) == "serves until it is stopped"
    assert obstacle("train", ["data.corpora={a: {path: none}}"], place.folder) == "no none here"


def test_trainings_are_shortened() -> None:
    arguments = ["experiment=documents", "data.path=x", "trainer.max_steps=5"]
    short = shortened("train", arguments, composed("train", arguments))
    assert {"trainer.val_check_interval=2", "trainer.max_steps=2", "data.path=x"} <= set(short)
    assert "trainer.max_steps=5" not in short
    assert not [word for word in short if word.startswith("tokenizer.vocab_size=")][1:]
    assert not [word for word in short if word.startswith("data.synthetic")]
    assert shortened("train", ["resume=RUN"], None) == ["resume=RUN"]


def test_other_programs_are_checked_as_far_as_they_are_known() -> None:
    assert check_other(["make", "train"]) == ""
    assert check_other(["make", "nothing"]) == "no target nothing in the Makefile"
    assert check_other(["pip", "install", "scaleformer[serve,none]"]) == "no extra none in pyproject.toml"
    assert check_other(["python", "-m", "scripts.nothing"]) == "no module scripts.nothing"
    assert check_other(["python", "-m", "scripts.gpu"]) == "no module scripts.gpu"  # nothing to run in it
    assert check_other(["python", "-m", "scripts.check_prose"]) == ""
    assert check_other(["python", "-m", "scripts.mechanisms", "--threads", "1"]) == ""
    assert name_of(["python", "scripts/evaluate_bleu.py", "a=b"]) == ("evaluate", ["a=b"])
    assert name_of(["scaleformer", "attention-maps", "a=b"]) == ("attention-maps", ["a=b"])
    assert name_of(["curl", "x"]) is None


def test_a_command_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    place = Workspace(tmp_path / "place", None)
    code, output = place.run(["evaluate", "checkpoint=nothing"])
    assert code == 1
    assert output.startswith("error: nothing")
    assert place.run(["--help"])[0] == 0


def test_all_pages_of_docs_are_read() -> None:
    assert {"README.md", "docs/own-documents.md"} <= set(PAGES)
    assert all((ROOT / page).exists() for page in PAGES)
    assert len(commands(ROOT / "docs/own-documents.md")) > 4
