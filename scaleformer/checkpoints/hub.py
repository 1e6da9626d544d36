"""Models on the Hugging Face Hub: OWNER/NAME, or OWNER/NAME@REVISION (a branch, a tag or a commit).

A model there consists of the files that `export_model` writes (safetensors, YAML, tokenizers) and a model card, so
loading one runs no foreign code. huggingface_hub reads HF_TOKEN, HF_ENDPOINT, HF_HOME and HF_HUB_OFFLINE.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAME = re.compile(r"(?P<name>(?P<owner>\w[\w.-]*)/\w[\w.-]*)(@(?P<revision>\w[\w./-]*))?")


def is_hub_name(path: str) -> bool:
    """Whether a path that does not exist can be a Hub name. If a local folder OWNER exists, it is a mistyped path."""
    found = NAME.fullmatch(path)
    return found is not None and not Path(found["owner"]).exists()


def fetch_model(name: str, files: Sequence[str], other: Sequence[str] = ()) -> Path:
    """The local cache folder with these files of a model, after asking the Hub for newer ones; or, if it has the first
    of the patterns `other`, with the files of these. Raises ValueError in one line if neither the Hub nor the cache has
    them."""
    from huggingface_hub import snapshot_download  # half a second to import

    found = NAME.fullmatch(name)
    assert found is not None, name
    choice: dict[str, Any] = {
        "revision": found["revision"],
        "allow_patterns": [*files, *other],
        "endpoint": _endpoint(),
    }
    try:
        folder = Path(str(snapshot_download(found["name"], **choice)))
    except Exception as error:  # from huggingface_hub or the HTTP library beneath it
        raise ValueError(
            f"{name}: no such run directory, checkpoint file or exported model, and the Hugging Face Hub does not "
            f"provide it: {_reason(error)}"
        ) from error
    if other and (folder / other[0]).is_file():
        return folder
    if missing := [file for file in files if not (folder / file).is_file()]:
        raise ValueError(f"{name}: on the Hugging Face Hub, but not a scaleformer model: it has no {missing[0]}")
    return folder


def push_model(folder: Path, name: str, private: bool) -> str:
    """Upload a folder as a model, creating the repository if needed. Returns its address. Raises ValueError in one line
    if the Hub cannot be reached or refuses access."""
    from huggingface_hub import HfApi

    api = HfApi(_endpoint(), library_name="scaleformer")
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload a scaleformer model")
    except Exception as error:
        raise ValueError(f"push={name}: {_reason(error)} (set HF_TOKEN to your access token)") from error
    return str(address)


def check_name(name: str) -> None:
    """Raise ValueError unless a model can be pushed to this name."""
    found = NAME.fullmatch(name)
    if found is None or found["revision"]:
        raise ValueError(f"push={name}: wanted OWNER/NAME, as the Hugging Face Hub names models")


def _endpoint() -> str | None:
    """Read at every call: huggingface_hub itself reads HF_ENDPOINT only once, at its first import."""
    return os.environ.get("HF_ENDPOINT") or None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
