"""The public test sets that sacrebleu knows, with their documents."""

from __future__ import annotations

from collections.abc import Iterator

from sacrebleu.dataset import DATASETS

from scaleformer.data.errors import DataError
from scaleformer.data.readers.documents import Document, read_text_pair
from scaleformer.system.schema import shown


def read_test_set(name: str) -> Iterator[Document]:
    """Documents of a test set and language pair of sacrebleu, such as "wmt22:en-de": its source, the first of its
    references, cut by its document ids.

    sacrebleu fetches a set once, to ~/.sacrebleu (or $SACREBLEU). Raises DataError: no such set or pair, one without
    document ids, no network.
    """
    set_name, _, pair = name.partition(":")
    if set_name not in DATASETS:
        raise DataError(
            f"{shown(name)}: wanted a test set of sacrebleu (sacrebleu --list) and its languages: wmt22:en-de"
        )
    test_set = DATASETS[set_name]
    if pair not in test_set.langpairs:
        raise DataError(
            f"{shown(name)}: {set_name} has no languages {pair!r}; there are {', '.join(test_set.langpairs)}"
        )
    try:
        files = dict(zip(test_set.fieldnames(pair), test_set.get_files(pair), strict=True))
        reference = test_set.get_reference_files(pair)[0]
    except (Exception, SystemExit) as error:  # sacrebleu raises whatever stands in its way, or tells it and exits
        reason = "see above" if isinstance(error, SystemExit) else " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"{name}: sacrebleu cannot get it: {reason}") from error
    if "docid" not in files:
        raise DataError(f"{name}: the test set names no documents (sacrebleu -t {set_name} -l {pair} --echo docid)")
    return read_text_pair(files["src"], reference, "ids", files["docid"])
