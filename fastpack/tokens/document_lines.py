"""The side file `<output>.lines` of a token file: the line or row of the raw corpus that each document comes from.

Layout, little-endian: 8 bytes b"FPLINES1"; uint64, the length of the text that follows; that text, a JSON list of the
paths of the sources, padded with spaces to a multiple of 8 bytes; one uint64 per document: the number of its source
times 2**40, plus its line or row, from 1.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import AtomicFile, ExistencePolicy, exists, map_bytes

SUFFIX, MAGIC, LINE_BITS = ".lines", b"FPLINES1", 40


class DocumentLines(NamedTuple):
    """The sources of a token file, and the source and line of each of its documents."""

    sources: list[str]
    places: npt.NDArray[np.uint64]

    def place(self, document: int) -> tuple[str, int]:
        """Return the source of a document, and its line or row, from 1."""
        place = int(self.places[document])
        return self.sources[place >> LINE_BITS], place & ((1 << LINE_BITS) - 1)


class LinesWriter:
    """Writes the side file of a token file, which gets its name on `commit`."""

    def __init__(self, output: str, sources: Sequence[str], if_exists: ExistencePolicy) -> None:
        self._file = AtomicFile(output + SUFFIX, policy="overwrite" if if_exists == "skip" else if_exists)
        text = json.dumps(list(sources)).encode()
        text += b" " * (-len(text) % 8)
        self._file.write(MAGIC + len(text).to_bytes(8, "little") + text)

    def append(self, source: int, lines: npt.NDArray[np.int64]) -> None:
        """Append documents of a source, by line or row, from 1."""
        self._file.write((lines + (source << LINE_BITS)).astype("<u8").tobytes())

    def commit(self) -> None:
        """Give the file its name."""
        self._file.commit()

    def abort(self) -> None:
        """Remove what was written."""
        self._file.abort()


def read_lines(path: str) -> DocumentLines | None:
    """Return the contents of the side file of a token file; None if there is none. Raises FormatError if damaged."""
    side = path + SUFFIX
    if not exists(side):
        return None
    data = map_bytes(side)
    if len(data) < 16 or bytes(data[:8]) != MAGIC:
        raise FormatError(side, 0, f"{bytes(data[:8])!r}", f"{MAGIC!r}, which begins a file of lines")
    start = 16 + int.from_bytes(bytes(data[8:16]), "little")
    if start > len(data) or (len(data) - start) % 8:
        raise FormatError(side, 8, f"a file of {len(data)} bytes", "a list of sources and 8 bytes per document")
    return DocumentLines(json.loads(bytes(data[16:start])), data[start:].view("<u8"))
