"""The interface of token files: what readers, writers and checks of every format have in common."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.analysis.file_facts import FileFacts
from fastpack.analysis.findings import VerifyReport
from fastpack.analysis.options import InspectOptions, VerifyOptions
from fastpack.display import Described, facts
from fastpack.errors import spoken
from fastpack.io import AnyPath, Bytes, ExistencePolicy, mapped, open_bytes
from fastpack.tokens.mask_bits import MaskBits
from fastpack.tokens.token_segment import TokenSegment
from fastpack.tokens.tokenizer_fingerprint import TokenizerFingerprint

DocumentEnds: TypeAlias = npt.NDArray[np.int64]
Rows: TypeAlias = npt.NDArray[np.int64]
Piece: TypeAlias = tuple[str, int, int]  # of a local file: path, offset in bytes, number of bytes
Run: TypeAlias = npt.NDArray[Any] | Piece  # tokens in memory, or in a file as the output stores them

BLOCK_ROWS = 1 << 16  # rows of documents computed at once: they stay in the cache


def rows_of_lengths(lengths: Iterable[npt.NDArray[np.int64]], unit: int = 1) -> Iterator[Rows]:
    """Yield start and length, int64 [k, 2], of contiguous documents; `lengths` are in units of `unit`."""
    end = 0
    for array in lengths:
        for first in range(0, len(array), BLOCK_ROWS):
            block = array[first : first + BLOCK_ROWS] * unit
            ends = end + np.cumsum(block)
            yield np.stack([ends - block, block], axis=1)
            end = int(ends[-1])


@dataclass(frozen=True, slots=True)
class DocumentSpans:
    """Documents of one file, as byte ranges.

    Attributes
    ----------
    data
        The whole file.
    rows
        Start and length of each document in bytes, int64 [n_documents, 2].
    base
        What the starts are relative to, in bytes from the start of the file.
    swap
        The token size if the byte order of the tokens must be swapped, else 1.
    """

    data: npt.NDArray[np.uint8]
    rows: npt.NDArray[np.int64]
    base: int = 0
    swap: int = 1


class TokenFile(Protocol):
    """An open token file, or a set of files, of any format. Documents are numbered from 0."""

    @property
    def path(self) -> str:
        """The file, or the folder of the files."""
        ...

    @property
    def format(self) -> str:
        """The name of the format in `FORMATS`."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored tokens."""
        ...

    @property
    def n_tokens(self) -> int:
        """The number of tokens."""
        ...

    @property
    def n_documents(self) -> int | None:
        """The number of documents; None if the document boundaries are unknown."""
        ...

    def segments(self) -> Sequence[TokenSegment]:
        """Return the runs of tokens, in order."""
        ...

    def document_ends(self) -> DocumentEnds:
        """Return the end of each document (exclusive) in tokens, int64 [n_documents]; read at the first call.

        Raises ValueError if the document boundaries are unknown, FormatError if documents are not contiguous.
        """
        ...

    def document_rows(self, first: int = 0, end: int | None = None) -> Rows:
        """Return start and length in tokens, int64 [k, 2], of the documents [first, end).

        Documents may overlap and be in any order. Raises ValueError if the document boundaries are unknown.
        """
        ...

    def document(self, i: int) -> npt.NDArray[Any]:
        """Return the tokens of document `i`, 0 <= i < n_documents, in the dtype of the file."""
        ...

    def tokens(self, start: int, end: int) -> npt.NDArray[Any]:
        """Return the tokens [start, end), which must be in one segment, in the dtype of the file."""
        ...

    def document_spans(self, first: int = 0, end: int | None = None) -> list[DocumentSpans]:
        """Return the documents [first, end) as byte ranges of each file; ValueError if boundaries are unknown."""
        ...

    def is_contiguous(self) -> bool:
        """Return whether the segments contain the documents in order, and nothing else."""
        ...

    def close(self) -> None:
        """Release the mappings. Arrays that were returned stay valid."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class TokenWriter(Protocol):
    """Writes a token file that is complete under its name, or not there."""

    @property
    def n_documents(self) -> int:
        """The number of documents appended so far."""
        ...

    n_tokens: int
    fingerprint: TokenizerFingerprint | None  # recorded in a side file, if it is set before `close`
    mask: MaskBits | None  # of all tokens: written to a side file, if it is set before `close`

    def reserve(self, n_tokens: int) -> None:
        """Allocate disk space for the tokens that will be appended."""
        ...

    def append_many(self, flat_tokens: npt.ArrayLike, lengths: npt.ArrayLike) -> None:
        """Append documents, given as concatenated tokens and their lengths in tokens."""
        ...

    def append_bytes(self, data: Bytes, lengths_in_tokens: npt.ArrayLike) -> None:
        """Append documents whose tokens are already encoded as the file stores them."""
        ...

    def append_blocks(self, blocks: Iterable[npt.NDArray[Any]], lengths: npt.NDArray[np.int64]) -> None:
        """Append documents of these lengths, int64 [n], whose tokens arrive in blocks, which may divide documents."""
        ...

    def append_copies(self, runs: Iterable[Run], lengths: npt.NDArray[np.int64]) -> None:
        """As `append_blocks`, also from pieces of local files that contain tokens as the file stores them."""
        ...

    def append_tokens(self, flat_tokens: npt.ArrayLike) -> None:
        """Append tokens whose documents `append_documents` describes."""
        ...

    def append_documents(self, blocks: Iterable[Rows]) -> None:
        """Add documents in appended tokens: start in the file and length, in tokens, int64 [k, 2].

        The blocks may be read when the file is closed. A format that cannot store them raises ValueError.
        """
        ...

    def close(self) -> None:
        """Finish the file and give it its name."""
        ...

    def abort(self) -> None:
        """Remove what was written."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def check_mask(writer: TokenWriter) -> None:
    """Raise ValueError if the loss mask of a writer is not that of its tokens."""
    if writer.mask is not None and writer.mask.n_tokens != writer.n_tokens:
        raise ValueError(f"a loss mask of {writer.mask.n_tokens} tokens for {writer.n_tokens} tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """What the user knows about a damaged file, and whether it is to be replaced."""

    eos_token_id: int | None = None
    token_size_in_bytes: int | None = None
    in_place: bool = False


class Recovery(NamedTuple):
    """What can be recovered of a damaged file.

    `problem` is empty if the file is sound. `lost_bytes` counts the bytes that are not part of a complete document.
    `write` writes the repaired file; for None in place of the damaged one. mask: of an unfinished file, if it has one.
    """

    problem: str
    n_documents: int
    n_tokens: int
    lost_bytes: int
    write: Callable[[AnyPath | None], object]
    mask: MaskBits | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFormat:
    """One row of the table of token formats.

    Attributes
    ----------
    name
        The name of the format, as in `open_tokens(format=...)`.
    kind
        What `verify` and `inspect` call it; formats that are checked together have the same kind.
    description
        What `verify` accepts, for error messages.
    suffixes
        Suffixes of its files.
    stores_documents
        Whether its files contain the document boundaries.
    dtypes
        The dtypes of tokens that it can store, the smallest first.
    stores_empty
        Whether it can store documents without tokens.
    loses
        What a file in this format does not contain of another, for the documentation.
    detect
        Whether a path is of this format: (path, names of the files in it, or None if it is not a folder). It reads the
        first bytes of a file where names do not tell.
    open
        Open (path, dtype, EOS token id); None for what the file says.
    create
        Create a file (path, dtype, policy for an existing one); None if the format is written by other functions.
    predict_size
        The size in bytes of the files, or of the chunks in a folder, for (n_tokens, token size, rows of its documents
        in tokens); None if the format is written by other functions.
    check
        Fill a report with findings. It receives a path, because damaged files cannot be opened.
    facts
        Return the facts that `inspect` and `report` show.
    recover
        Return what can be recovered of a damaged or unfinished file; None if there is no recovery.
    """

    name: str
    kind: str
    description: str
    suffixes: tuple[str, ...]
    stores_documents: bool
    dtypes: tuple[str, ...]
    loses: str
    stores_empty: bool = True
    detect: Callable[[AnyPath, Collection[str] | None], bool]
    open: Callable[[AnyPath, np.dtype[Any] | None, int | None], TokenFile]
    create: Callable[[AnyPath, np.dtype[Any], ExistencePolicy], TokenWriter] | None
    predict_size: Callable[[int, int, Iterable[Rows]], int] | None
    check: Callable[[AnyPath, VerifyReport, VerifyOptions], None]
    facts: Callable[[AnyPath, InspectOptions], FileFacts]
    recover: Callable[[AnyPath, RecoveryOptions], Recovery] | None = None


class SegmentedTokens(Described):
    """Base of token files that consist of segments and know their document ends.

    A subclass defines `path`, `format`, `_segments` and `_read_document_ends`.
    """

    _subject = "path"
    _shown = facts("format", tokens="n_tokens", dtype="dtype")

    path: str
    format: str
    _segments: Sequence[TokenSegment]
    _ends: DocumentEnds | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored tokens."""
        return self._segments[0].dtype

    @property
    def n_tokens(self) -> int:
        """The number of tokens."""
        return self._segment_ends[-1] if self._segment_ends else 0

    @property
    def n_documents(self) -> int | None:
        """The number of documents; None if the document boundaries are unknown."""
        return len(self.document_ends()) if self._has_documents() else None

    @cached_property
    def _segment_ends(self) -> list[int]:
        return list(accumulate(segment.length for segment in self._segments))

    def segments(self) -> Sequence[TokenSegment]:
        """Return the runs of tokens, in order."""
        return self._segments

    def document_ends(self) -> DocumentEnds:
        """Return the end of each document (exclusive) in tokens, int64 [n_documents], read-only.

        Documents do not span segments. Raises ValueError if the document boundaries are unknown.
        """
        if self._ends is None:
            if not self._has_documents():
                raise ValueError(f"{self.path}: the document boundaries are unknown: pass {spoken('eos_token_id')}")
            self._ends = self._read_document_ends()
            self._ends.flags.writeable = False
        return self._ends

    def _has_documents(self) -> bool:
        return True

    def _read_document_ends(self) -> DocumentEnds:
        raise NotImplementedError

    def document_rows(self, first: int = 0, end: int | None = None) -> Rows:
        """Return start and length in tokens, int64 [k, 2], of the documents [first, end)."""
        ends = self.document_ends()
        before = ends[first - 1 : first] if first else np.zeros(1, np.int64)
        ends = ends[first:end]
        starts = np.concatenate([before, ends[:-1]])[: len(ends)]
        return np.stack([starts, ends - starts], axis=1)

    def document(self, i: int) -> npt.NDArray[Any]:
        """Return the tokens of document `i`, 0 <= i < n_documents, in the dtype of the file; read-only."""
        rows = self.document_rows(i, i + 1)
        if i < 0 or not len(rows):
            raise IndexError(f"document {i} of {self.n_documents} in {self.path}")
        start, length = rows[0].tolist()
        return self.tokens(start, start + length)

    def tokens(self, start: int, end: int) -> npt.NDArray[Any]:
        """Return the tokens [start, end), which must be in one segment, in the dtype of the file; read-only."""
        number = min(bisect_right(self._segment_ends, start), len(self._segments) - 1)
        before = self._segment_ends[number] - self._segments[number].length
        return self._segments[number].open()[start - before : end - before]

    def document_spans(self, first: int = 0, end: int | None = None) -> list[DocumentSpans]:
        """Return the documents [first, end) as byte ranges of each file; ValueError if boundaries are unknown."""
        documents = self.document_rows(first, end)
        ends = documents.sum(axis=1)
        spans, before, done = [], 0, 0
        for segment, segment_end in zip(self._segments, self._segment_ends, strict=True):
            chosen = slice(done, done := int(np.searchsorted(ends, segment_end, "right")))
            rows = (documents[chosen] - np.array([before, 0])) * segment.dtype.itemsize
            data = mapped(open_bytes(segment.path, segment.version))
            swap = 1 if segment.dtype.newbyteorder("<") == segment.dtype else segment.dtype.itemsize
            spans.append(DocumentSpans(data, rows, segment.offset, swap))
            before = segment_end
        return spans

    def is_contiguous(self) -> bool:
        """Return whether the segments contain the documents in order, and nothing else."""
        ends = self.document_ends()
        return self.n_tokens == (int(ends[-1]) if len(ends) else 0)

    def close(self) -> None:
        """Release the document ends. Mappings end with the last array that was returned."""
        self._ends = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
