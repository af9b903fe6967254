"""llm.c's token files: a header of 256 int32 (magic, version, number of tokens), then the tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import AnyPath, AtomicFile, check_exists, exists, read_head
from fastpack.tokens.indexed_tokens import IndexedTokens, check_given_dtype, raw_segment
from fastpack.tokens.token_file import DocumentEnds, Rows
from fastpack.tokens.token_scan import eos_ends
from fastpack.tokens.token_segment import TokenSegment
from fastpack.tokens.token_writer import BufferedTokenWriter

HEADER_BYTES = 1024
VERSIONS: dict[int, tuple[int, np.dtype[Any]]] = {
    20240520: (1, np.dtype("<u2")),
    20240801: (7, np.dtype("<u4")),
}  # magic -> version, dtype
EVALUATION_MAGIC = 20240522
MAX_TOKENS = (1 << 31) - 1


def fits(path: AnyPath) -> bool:
    """Return whether a file begins with one of llm.c's magics and its version."""
    if path.suffix != ".bin" or path.is_dir() or not exists(path):
        return False
    head = np.frombuffer(read_head(path, 8)[0].ljust(8, b"\0"), "<i4").tolist()
    return tuple(head) in {(EVALUATION_MAGIC, 1), *((magic, row[0]) for magic, row in VERSIONS.items())}


class LlmcTokens(IndexedTokens):
    """A token file of llm.c.

    With `eos_token_id`, documents begin with this token if the file begins with it and does not end with it, as llm.c
    writes them; otherwise they end with it.
    """

    def __init__(self, path: AnyPath, dtype: np.dtype[Any] | None = None, eos_token_id: int | None = None) -> None:
        check_exists(path)
        head, _ = read_head(path, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            found = f"the end of the file after {len(head)} bytes"
            raise FormatError(path, len(head), found, f"a header of {HEADER_BYTES} bytes")
        magic, version, n_tokens = np.frombuffer(head, "<i4")[:3].tolist()
        if magic == EVALUATION_MAGIC:
            raise FormatError(path, 0, "an evaluation file of llm.c (multiple choice)", "a file of tokens")
        if magic not in VERSIONS:
            raise FormatError(path, 0, f"magic {magic}", f"a magic of llm.c: {', '.join(map(str, VERSIONS))}")
        expected, stored = VERSIONS[magic]
        if version != expected:
            raise FormatError(path, 4, f"version {version}", f"version {expected} for magic {magic}")
        check_given_dtype(path, 0, stored, dtype)
        segment = raw_segment(path, stored, HEADER_BYTES)
        if n_tokens != segment.length:
            raise FormatError(path, 8, f"a count of {n_tokens} tokens", f"{segment.length}, as the file contains")
        super().__init__(path, "llmc", [segment], -1)
        self._eos = eos_token_id

    @property
    def n_documents(self) -> int | None:  # type: ignore[override]
        """The number of documents; None without an EOS token."""
        return len(self.document_ends()) if self._has_documents() else None

    def _has_documents(self) -> bool:
        return self._eos is not None

    def _read_document_ends(self) -> DocumentEnds:
        return llmc_ends(self._segments, self._eos)


def llmc_ends(segments: Sequence[TokenSegment], eos_token_id: int | None) -> DocumentEnds:
    """Return the document ends of one or several files of one corpus."""
    ends = eos_ends(segments, eos_token_id, joined=True)
    filled = [segment for segment in segments if segment.length]
    if not filled or filled[0].open()[0] != eos_token_id or filled[-1].open()[-1] == eos_token_id:
        return ends
    # every EOS token but the first ends the document before it
    return np.append(ends[1:-1] - 1, sum(segment.length for segment in segments))


class LlmcWriter(BufferedTokenWriter):
    """Writes a token file of llm.c. Document lengths are not stored."""

    header_bytes = HEADER_BYTES
    token_sizes = (2, 4)

    def _check_documents(self, lengths: npt.NDArray[np.int64]) -> None:
        _check_count(self.n_tokens + int(lengths.sum()))

    def _finish(self, output: AtomicFile) -> None:
        _check_count(self.n_tokens)
        header = np.zeros(HEADER_BYTES // 4, "<i4")
        magic, version = next((magic, row[0]) for magic, row in VERSIONS.items() if row[1] == self._dtype)
        header[:3] = magic, version, self.n_tokens
        output.patch(0, header.tobytes())


def _check_count(n_tokens: int) -> None:
    if n_tokens > MAX_TOKENS:
        raise ValueError(f"{n_tokens} tokens: the header of llm.c counts at most {MAX_TOKENS}; write several files")


def open_file(path: AnyPath, dtype: np.dtype[Any] | None, eos_token_id: int | None) -> LlmcTokens:
    """Open a file of this format."""
    return LlmcTokens(path, dtype, eos_token_id)


def create(path: AnyPath, dtype: np.dtype[Any], policy: Any) -> LlmcWriter:
    """Create a token file of llm.c."""
    if dtype not in (row[1] for row in VERSIONS.values()):
        raise ValueError(f"llm.c stores uint16 and uint32, not {dtype}")
    return LlmcWriter(path, dtype.itemsize, if_exists=policy)


def predicted_size(n_tokens: int, token_size: int, documents: Iterable[Rows]) -> int:
    """Return the size of the file in bytes."""
    del documents
    return HEADER_BYTES + n_tokens * token_size
