"""Tokenizers on the Hugging Face Hub: `ORG/NAME` is found in the local cache, or downloaded into it."""

from __future__ import annotations

import os
import re
from typing import Any

from fastpack.errors import JobError
from fastpack.io.store_clients import first_line

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?:@[\w./-]+)?")
FILES = (
    "tokenizer*",
    "*.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
)
FOUND_BY = ("tokenizer.json", "tokenizer.model", "vocab.json")


def is_hub_name(name: str) -> bool:
    """Return whether a name has the form ORG/NAME[@REVISION], and no such path exists."""
    is_file_name = name.endswith((".json", ".model"))
    return not is_file_name and _NAME.fullmatch(name) is not None and not os.path.exists(name)


def tokenizer_folder(name: str) -> str:
    """Return the folder of a tokenizer in the local cache; download its files if they are not there.

    HF_HOME, HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE have the meaning
    that huggingface_hub gives them. Raises FileNotFoundError for a repository that does not exist, or that is not in
    the cache while HF_HUB_OFFLINE is set, JobError for one without a tokenizer, or if the Hub cannot be reached.
    """
    from huggingface_hub import constants, errors, snapshot_download

    repository, _, revision = name.partition("@")
    options: dict[str, Any] = {"revision": revision or None, "allow_patterns": list(FILES)}
    try:
        folder = snapshot_download(repository, local_files_only=True, **options)
    except (errors.LocalEntryNotFoundError, FileNotFoundError):
        folder = None
    if folder is not None and _has_tokenizer(folder):
        return str(folder)
    if constants.HF_HUB_OFFLINE:
        raise FileNotFoundError(f"{name} is not in the cache of the Hugging Face Hub, and HF_HUB_OFFLINE is set")
    try:
        folder = snapshot_download(repository, **options)
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        reason = "nor is it a repository of the Hugging Face Hub that HF_TOKEN gives access to"
        raise FileNotFoundError(f"{name} is not a path that exists, {reason}") from None
    except Exception as error:
        raise JobError(f"{name}: the tokenizer cannot be downloaded: {first_line(error)}") from None
    if not _has_tokenizer(folder):
        raise JobError(f"{name}: the repository contains none of {', '.join(FOUND_BY)}")
    return str(folder)


def _has_tokenizer(folder: str) -> bool:
    return any(os.path.isfile(os.path.join(folder, file)) for file in FOUND_BY)
