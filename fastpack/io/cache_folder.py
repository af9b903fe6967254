"""The user's cache folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from fastpack.errors import JobError


def cache_folder() -> Path:
    """Return FASTPACK_CACHE_DIR, else `fastpack` in XDG_CACHE_HOME or ~/.cache; created with mode 0700.

    Raises JobError if others can write to the folder, because its contents are trusted.
    """
    named = os.environ.get("FASTPACK_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(named or os.path.join(home, "fastpack"))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise JobError(
            f"{folder} can be written by others: run `chmod go-w` on it, or set another folder in FASTPACK_CACHE_DIR"
        )
    return folder
