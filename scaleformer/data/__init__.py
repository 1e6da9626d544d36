"""Data: corpora, tokenizers, batches, and the Lightning data module that joins them."""

from scaleformer.data.batching import Example, collate
from scaleformer.data.config import DataConfig, HubConfig
from scaleformer.data.corpora import Corpus, join_documents
from scaleformer.data.datamodule import DocumentDataModule
from scaleformer.data.errors import DataError
from scaleformer.data.readers.documents import Document, parse_document, read_jsonl
from scaleformer.data.readers.lines import read_lines
from scaleformer.data.report import DataReport
from scaleformer.data.synthetic.corpus import Label, SyntheticConfig, generate
from scaleformer.data.tokenizer import Tokenizer, TokenizerConfig
from scaleformer.system.schema import from_mapping

__all__ = [
    "Corpus",
    "DataConfig",
    "DataError",
    "DataReport",
    "Document",
    "DocumentDataModule",
    "Example",
    "HubConfig",
    "Label",
    "SyntheticConfig",
    "Tokenizer",
    "TokenizerConfig",
    "collate",
    "from_mapping",
    "generate",
    "join_documents",
    "parse_document",
    "read_jsonl",
    "read_lines",
]
