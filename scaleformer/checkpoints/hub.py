"""Models at the Hugging Face Hub: OWNER/NAME, or OWNER/NAME@REVISION (a branch, a tag or a commit).

What is there is what `export_model` writes, with a model card: weights as safetensors, YAML and tokenizers, so that
nobody's code is run. Access and endpoint are those of huggingface_hub: HF_TOKEN, HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAME = re.compile(r"(?P<name>(?P<owner>\w[\w.-]*)/\w[\w.-]*)(@(?P<revision>\w[\w./-]*))?")


def is_hub_name(path: str) -> bool:
    """Whether a path that is not there may be a name: one where the folder OWNER is there too is a file mistyped."""
    found = NAME.fullmatch(path)
    return found is not None and not Path(found["owner"]).exists()


def fetch_model(name: str, files: Sequence[str]) -> Path:
    """The folder in the local cache with those files of a model, asked for at the Hub where they may be newer.

    Raises ValueError in one line where they are neither there nor here.
    """
    from huggingface_hub import snapshot_download  # half a second to import

    found = NAME.fullmatch(name)
    assert found is not None, name
    choice: dict[str, Any] = {"revision": found["revision"], "allow_patterns": list(files), "endpoint": _endpoint()}
    try:
        folder = Path(str(snapshot_download(found["name"], **choice)))
    except Exception as error:  # of huggingface_hub, or of whatever library it asks by
        raise ValueError(
            f"{name}: no such run directory, checkpoint file or exported model, and no such model of the Hugging Face "
            f"Hub to be had: {_reason(error)}"
        ) from error
    if missing := [file for file in files if not (folder / file).is_file()]:
        raise ValueError(f"{name}: at the Hugging Face Hub, but no model of scaleformer: it has no {missing[0]}")
    return folder


def push_model(folder: Path, name: str, private: bool) -> str:
    """Upload a folder as a model of that name, made where there is none; its address.

    Raises ValueError in one line where the Hub cannot be reached or does not let the user.
    """
    from huggingface_hub import HfApi

    api = HfApi(_endpoint(), library_name="scaleformer")
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload a model of scaleformer")
    except Exception as error:
        raise ValueError(f"push={name}: {_reason(error)} (HF_TOKEN is the key to the Hub)") from error
    return str(address)


def check_name(name: str) -> None:
    """ValueError for what is no name to push to."""
    found = NAME.fullmatch(name)
    if found is None or found["revision"]:
        raise ValueError(f"push={name}: wanted OWNER/NAME, as the Hugging Face Hub names models")


def _endpoint() -> str | None:
    """huggingface_hub reads it once, when it is imported by whatever library first."""
    return os.environ.get("HF_ENDPOINT") or None


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
