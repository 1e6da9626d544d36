"""The public test sets of sacrebleu, as documents."""

from __future__ import annotations

from collections.abc import Iterator

from sacrebleu.dataset import DATASETS

from scaleformer.formats.text_pairs import read_text_pair
from scaleformer.system.errors import DataError
from scaleformer.system.schema import shown
from scaleformer.text.documents import Document


def read_test_set(name: str) -> Iterator[Document]:
    """Documents of a sacrebleu test set and language pair, such as "wmt22:en-de": its source and its first reference,
    split by document id.

    sacrebleu downloads a set once, to ~/.sacrebleu (or $SACREBLEU). Raises DataError: no such set or pair, no document
    ids, no network.
    """
    set_name, _, pair = name.partition(":")
    if set_name not in DATASETS:
        raise DataError(
            f"{shown(name)}: wanted a sacrebleu test set (sacrebleu --list) and a language pair, such as wmt22:en-de"
        )
    test_set = DATASETS[set_name]
    if pair not in test_set.langpairs:
        raise DataError(
            f"{shown(name)}: {set_name} has no language pair {pair!r}; choose from {', '.join(test_set.langpairs)}"
        )
    try:
        files = dict(zip(test_set.fieldnames(pair), test_set.get_files(pair), strict=True))
        reference = test_set.get_reference_files(pair)[0]
    except (Exception, SystemExit) as error:  # sacrebleu raises many types, or prints a message and exits
        reason = "see above" if isinstance(error, SystemExit) else " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{name}: sacrebleu cannot load it: {reason}") from error
    if "docid" not in files:
        raise DataError(f"{name}: the test set has no document ids (sacrebleu -t {set_name} -l {pair} --echo docid)")
    return read_text_pair(files["src"], reference, "ids", files["docid"])
