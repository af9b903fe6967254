"""Writing packed files `.pbin` of generation 5."""

from __future__ import annotations

import numpy as np

from fastpack.io import AtomicFile
from fastpack.tokens.journal import CheckpointedWriter
from fastpack.tokens.pbin.layout import HEADER, HEADER_BYTES
from fastpack.tokens.pbin.packed_index import index_rows, write_index
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

    def _finish(self, output: AtomicFile) -> None:
        write_index(output.write, index_rows([np.asarray(self._lengths)], self.token_size_in_bytes))
        output.patch(0, HEADER[5].pack(self.n_tokens * self.token_size_in_bytes, self.token_size_in_bytes))


class CheckpointedPackedWriter(CheckpointedWriter, PackedWriter):
    """A PackedWriter with checkpoints."""
