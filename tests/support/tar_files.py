"""Write tar files of members in memory."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path

Members = Mapping[str, bytes] | Iterable[tuple[str | tarfile.TarInfo, bytes]]  # name or header -> content


def tar_bytes(members: Members, format: int = tarfile.DEFAULT_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format, errors="surrogateescape") as tar:
        for name, data in members.items() if isinstance(members, Mapping) else members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return file.getvalue()


def write_tar(path: Path, members: Members, format: int = tarfile.DEFAULT_FORMAT) -> Path:
    """Write a tar file, and its folder if needed; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(tar_bytes(members, format))
    return path
