"""Writing packed files `.pbin` of generation 5."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

import numpy as np

from fastpack.io import AtomicFile
from fastpack.tokens.journal import CheckpointedWriter
from fastpack.tokens.pbin.layout import HEADER, HEADER_BYTES
from fastpack.tokens.pbin.packed_index import WriteIndex, write_index
from fastpack.tokens.token_file import Rows, rows_of_lengths
from fastpack.tokens.token_writer import BufferedTokenWriter


class PackedWriter(BufferedTokenWriter):
    """Write a packed file `.pbin` (generation 5).

    The file is complete under its name, or not there: `close` finishes it, `abort` and an error in a with block keep
    an existing file of that name. Memory grows by 8 bytes per document.

    Parameters
    ----------
    path
        The packed file.
    token_size_in_bytes
        1, 2 or 4.
    if_exists
        "error" raises if the file exists; "override" replaces it; "skip" raises too, because a writer cannot skip.

    Attributes
    ----------
    path, token_size_in_bytes
        The arguments.
    n_documents, n_tokens
        Number of documents and tokens appended so far.

    Raises
    ------
    ValueError
        If the token size is not 1, 2 or 4.
    TargetExists
        If the file exists, as `if_exists` says (a ValueError and FileExistsError).
    JobError
        If another process is writing the same file.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/corpus.pbin", token_size_in_bytes=2) as writer:
    ...     writer.append([5, 6, 7, 0])
    ...     writer.append_many([8, 0, 9, 9, 0], lengths=[2, 3])
    >>> writer.n_documents, writer.n_tokens
    (3, 9)
    >>> [document.tolist() for document in fastpack.PackedFile(writer.path)]
    [[5, 6, 7, 0], [8, 0], [9, 9, 0]]
    >>> folder.cleanup()
    """

    header_bytes = HEADER_BYTES

    _described: Iterable[Rows] = ()  # by `append_documents`

    def append_documents(self, blocks: Iterable[Rows]) -> None:
        """Add documents in tokens that `append_tokens` appended.

        Parameters
        ----------
        blocks
            Start in the file and length of documents, in tokens: int64 [k, 2] each. Documents may overlap, leave gaps
            and be in any order. They are read when the file is closed, and are not part of `n_documents`.
        """
        self._described = chain(self._described, blocks)

    @staticmethod
    def _write_index(write: Callable[[memoryview], object], blocks: Iterable[Rows]) -> int:
        return write_index(write, blocks)

    def _finish(self, output: AtomicFile) -> None:
        rows = chain(rows_of_lengths([np.asarray(self._lengths)]), self._described)
        self._write_index(output.write, (block * self.token_size_in_bytes for block in rows))
        output.patch(0, HEADER[5].pack(self.n_tokens * self.token_size_in_bytes, self.token_size_in_bytes))


class CheckpointedPackedWriter(CheckpointedWriter, PackedWriter):
    """A PackedWriter with checkpoints."""


def packed_size(
    n_tokens: int, token_size: int, documents: Iterable[Rows], write_index: WriteIndex = write_index
) -> int:
    """Return the size of a packed file in bytes; `documents`: as in `PackedWriter.append_documents`."""
    return HEADER_BYTES + n_tokens * token_size + write_index(len, (rows * token_size for rows in documents))
