"""Maps and readers of local files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from fastpack import io as files
from fastpack.errors import JobError
from fastpack.io import map_bytes


def test_mappings_are_read_only_and_empty_files_give_empty_arrays(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "empty").touch()
    data = map_bytes(tmp_path / "a")
    assert data.tobytes() == b"abc"
    assert not data.flags.writeable
    assert len(map_bytes(tmp_path / "empty")) == 0
    os.mkfifo(tmp_path / "pipe")
    holder = os.open(tmp_path / "pipe", os.O_RDWR)  # so that opening the pipe for reading does not block
    try:
        with pytest.raises(JobError, match="not a regular file"):
            map_bytes(tmp_path / "pipe")
    finally:
        os.close(holder)


def test_read_errors_contain_the_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "a.bin").write_bytes(b"abc")
    file = files.open_reader(tmp_path / "a.bin")
    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match=r"Input/output error: '.*a\.bin'"):
        file.read_into(np.empty(3, np.uint8), 0)
