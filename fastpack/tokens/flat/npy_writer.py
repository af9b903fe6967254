"""Flat shards `.npy`, as KempnerForge reads them: the tokens of a packed file behind numpy's header, and no index."""

from __future__ import annotations

import io
import os

import numpy as np

from fastpack.io import AtomicFile, PathLike
from fastpack.tokens.pbin.journal import CheckpointedWriter

HEADER_BYTES = 128  # numpy leaves room in it for any number of tokens
SMALLEST_TOKEN = 2  # KempnerForge takes uint16 and uint32


def is_npy(path: PathLike) -> bool:
    """Whether a file of this name is a flat shard, and no packed file."""
    return os.fspath(path).endswith(".npy")


def npy_header(n_tokens: int, token_size: int) -> bytes:
    """What `np.save` writes before so many tokens of 2 or 4 bytes."""
    header = io.BytesIO()
    described = {"descr": f"<u{token_size}", "fortran_order": False, "shape": (n_tokens,)}
    np.lib.format.write_array_header_1_0(header, described)
    assert header.tell() == HEADER_BYTES
    return header.getvalue()


class NpyWriter(CheckpointedWriter):
    """As `CheckpointedWriter`, of a flat shard: what is appended is the same, documents are only told by their EOS."""

    header_bytes = HEADER_BYTES

    def _finish(self, output: AtomicFile) -> None:
        output.patch(0, npy_header(self.n_tokens, self.token_size_in_bytes))
