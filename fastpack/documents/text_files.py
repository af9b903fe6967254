"""Plain text files: one document per file, or documents between separators."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fastpack.documents.compressed import open_text
from fastpack.documents.text_columns import MAX_ROWS, TextBatch
from fastpack.errors import FormatError
from fastpack.io import PathLike

MAX_TEXT_BYTES = 1 << 30  # a longer document is a compression bomb or a missing separator
_BLOCK = 1 << 20  # bytes that are read at once


def read_text_file(path: PathLike, separator: bytes | None, first_row: int, n_bytes: int) -> Iterator[TextBatch]:
    """Yield the documents of a plain text file, from number `first_row` on, in batches of about `n_bytes`.

    separator: the bytes between two documents, which belong to neither; None: the file is one document. An empty
    document after the last separator does not count. The file may be compressed (.gz, .zst).
    """
    row, texts, n_waiting = 0, list[bytes](), 0
    done = 0
    for text, done in _documents(path, separator):
        if row >= first_row:
            texts.append(text)
            n_waiting += len(text)
        row += 1
        if texts and (n_waiting >= n_bytes or len(texts) == MAX_ROWS):
            yield _batch(row - len(texts), texts, done)
            texts, n_waiting = [], 0
    if texts:
        yield _batch(row - len(texts), texts, done)


def _batch(first_row: int, texts: list[bytes], done: int) -> TextBatch:
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    rows = np.stack([np.cumsum(lengths) - lengths, lengths], axis=1)
    return TextBatch(first_row, np.frombuffer(b"".join(texts), np.uint8), rows, done)


def _documents(path: PathLike, separator: bytes | None) -> Iterator[tuple[bytes, int]]:
    """Yield each document with the number of bytes of the file that were read."""
    buffer = bytearray()  # from the start of the first incomplete document
    searched = 0
    with open_text(path) as (read, position):
        while block := read(_BLOCK):
            buffer += block
            if separator is not None:
                start = 0
                while (end := buffer.find(separator, max(start, searched))) >= 0:
                    yield bytes(buffer[start:end]), position()
                    start = end + len(separator)
                del buffer[:start]
                searched = max(0, len(buffer) - len(separator) + 1)
            if len(buffer) > MAX_TEXT_BYTES:
                found = f"a document of more than {MAX_TEXT_BYTES:,} bytes"
                raise FormatError(path, position(), found, "a separator" if separator else "a shorter file")
        if buffer or separator is None:
            yield bytes(buffer), position()
