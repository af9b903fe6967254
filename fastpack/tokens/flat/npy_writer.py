"""Writing `.npy` files of tokens as KempnerForge reads them: NumPy's header and the tokens, without an index."""

from __future__ import annotations

import io
import os

import numpy as np

from fastpack.io import AtomicFile, PathLike
from fastpack.tokens.journal import CheckpointedWriter
from fastpack.tokens.token_writer import BufferedTokenWriter

HEADER_BYTES = 128  # NumPy pads the header, so that any number of tokens fits
SMALLEST_TOKEN = 2  # bytes; KempnerForge reads uint16 and uint32


def is_npy(path: PathLike) -> bool:
    """Return whether a file of this name is a `.npy` file."""
    return os.fspath(path).endswith(".npy")


def npy_header(n_tokens: int, token_size: int) -> bytes:
    """Return what `np.save` writes before `n_tokens` tokens of 2 or 4 bytes."""
    header = io.BytesIO()
    described = {"descr": f"<u{token_size}", "fortran_order": False, "shape": (n_tokens,)}
    np.lib.format.write_array_header_1_0(header, described)
    assert header.tell() == HEADER_BYTES
    return header.getvalue()


class NpyWriter(BufferedTokenWriter):
    """Writes a `.npy` file of tokens. Document lengths are not stored: EOS tokens end documents."""

    header_bytes = HEADER_BYTES

    def _finish(self, output: AtomicFile) -> None:
        output.patch(0, npy_header(self.n_tokens, self.token_size_in_bytes))


class CheckpointedNpyWriter(CheckpointedWriter, NpyWriter):
    """A NpyWriter with checkpoints."""
