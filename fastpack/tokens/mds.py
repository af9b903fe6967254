"""MDS folders (MosaicML Streaming): `shard.<n>.mds` and `index.json`.

A shard contains uint32 n, uint32 [n + 1] offsets of its samples in bytes, its configuration as JSON, and the samples. A
sample consists of the uint32 sizes of its columns of variable size, then of the columns, sorted by name. A column of
tokens is an array ("ndarray", with dtype and shape in the encoding or before the values) or "bytes".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import AnyPath, drop_pages, mapped, open_bytes
from fastpack.tokens.chunk_index import ChunkIndex, has_index
from fastpack.tokens.indexed_tokens import check_given_dtype, check_size, raw_segment, read_array
from fastpack.tokens.token_file import DocumentEnds, DocumentSpans, SegmentedTokens
from fastpack.tokens.token_segment import Stamp, TokenSegment, version_of

# The byte that says the dtype of an array of any dtype.
DTYPE_CODES = {8: "u1", 9: "i1", 16: "u2", 17: "i2", 32: "u4", 33: "i4", 64: "u8", 65: "i8"}
TOKEN_COLUMNS = ("tokens", "input_ids")
_ENCODING = re.compile(r"ndarray(?::(u?int(?:8|16|32|64))(?::(\d{1,12}))?)?\Z", re.ASCII)


def fits(path: AnyPath) -> bool:
    """Return whether a folder has an `index.json` with shards."""
    return has_index(path, "shards", "*.mds")


@dataclass(frozen=True)
class Shard:
    """A shard: its file, its number of samples, where its offsets end, and how the samples contain tokens.

    Attributes
    ----------
    fixed_before
        Bytes of the columns of fixed size before the tokens.
    variable_before
        Numbers, among the columns of variable size, of those before the tokens.
    n_variable
        Number of columns of variable size.
    own
        Number of the column of tokens among those of variable size; None if its size is fixed.
    dtype
        The dtype of the tokens; None if every array states its own.
    has_shape
        Whether the shape of the array precedes its values.
    n_bytes
        Size of the tokens of a sample if it is fixed; else None.
    stamp
        Size, modification time and inode or tag of the file.
    """

    path: AnyPath
    n_samples: int
    fixed_before: int
    variable_before: tuple[int, ...]
    n_variable: int
    own: int | None
    dtype: np.dtype[Any] | None
    has_shape: bool
    n_bytes: int | None
    stamp: Stamp

    def data(self) -> npt.NDArray[np.uint8]:
        """Map the file; an object in a store is fetched into the cache."""
        return mapped(open_bytes(self.path, version_of(self.stamp)))


class MdsTokens(SegmentedTokens):
    """A folder of shards without compression, one document per sample."""

    format = "mds"

    def __init__(self, path: AnyPath, dtype: np.dtype[Any] | None = None) -> None:
        self.path = str(path)
        index = ChunkIndex(path)
        self._shards = [_shard(index, entry, dtype) for entry in index.entries("shards")]
        dtypes = {shard.dtype for shard in self._shards if shard.dtype is not None}
        if len(dtypes) > 1:
            index.wrong(f"shards of {', '.join(sorted(map(str, dtypes)))}", "tokens of one dtype")
        stated = next(iter(dtypes), None)
        if self._shards and stated is None:
            stated = _first_dtype(self._shards)
        self._dtype = stated or dtype or np.dtype("<u4")
        check_given_dtype(index.path, 0, self._dtype, dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored tokens."""
        return self._dtype

    @property
    def n_documents(self) -> int:
        """The number of samples."""
        return sum(shard.n_samples for shard in self._shards)

    @property
    def n_tokens(self) -> int:
        """The number of tokens; reads the sizes of all samples at the first call."""
        return int(self._rows[:, 1].sum()) // self._dtype.itemsize

    @cached_property
    def _rows(self) -> npt.NDArray[np.int64]:
        """Start and length of the tokens of each sample in its file, in bytes, int64 [n, 2]."""
        return np.concatenate(
            [np.empty((0, 2), np.int64), *(_token_rows(shard, self._dtype) for shard in self._shards)]
        )

    @cached_property
    def _shard_ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum([shard.n_samples for shard in self._shards], dtype=np.int64)

    def segments(self) -> Sequence[TokenSegment]:
        """Return one run of tokens for each document."""
        return _Samples(self)

    def shard_segments(self) -> list[TokenSegment]:
        """Return the shards as segments of bytes: each file whole."""
        return [raw_segment(shard.path, np.dtype(np.uint8)) for shard in self._shards]

    def places(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the shard of each document, int64 [n], and start and length of its tokens there in bytes, [n, 2]."""
        return np.repeat(np.arange(len(self._shards)), [shard.n_samples for shard in self._shards]), self._rows

    def segment(self, i: int) -> TokenSegment:
        """Return the location of the tokens of document `i`."""
        shard = self._shards[int(np.searchsorted(self._shard_ends, i, "right"))]
        start, n_bytes = self._rows[i].tolist()
        return TokenSegment(str(shard.path), self._dtype, n_bytes // self._dtype.itemsize, start, stamp=shard.stamp)

    def is_contiguous(self) -> bool:
        """Return False: sizes precede the tokens of every sample."""
        return False

    def _read_document_ends(self) -> DocumentEnds:
        return np.cumsum(self._rows[:, 1]) // self._dtype.itemsize

    def document(self, i: int) -> npt.NDArray[Any]:
        """Return the tokens of document `i`, 0 <= i < n_documents, in the dtype of the file; read-only."""
        if not 0 <= i < self.n_documents:
            raise IndexError(f"document {i} of {self.n_documents} in {self.path}")
        return self.segment(i).open()

    def tokens(self, start: int, end: int) -> npt.NDArray[Any]:
        """Return the tokens [start, end), which must be in one document, in the dtype of the file; read-only."""
        ends = self.document_ends()
        i = min(int(np.searchsorted(ends, start, "right")), len(ends) - 1)
        before = int(ends[i]) - self.segment(i).length
        return self.segment(i).open()[start - before : end - before]

    def document_spans(self, first: int = 0, end: int | None = None) -> list[DocumentSpans]:
        """Return the documents [first, end) as byte ranges of each shard."""
        stop = self.n_documents if end is None else min(end, self.n_documents)
        spans, before = [], 0
        for shard in self._shards:
            after = before + shard.n_samples
            rows = self._rows[min(max(first, before), after) : max(before, min(stop, after))]
            spans.append(DocumentSpans(shard.data(), rows))
            before = after
        return spans


def open_file(path: AnyPath, dtype: np.dtype[Any] | None, _eos: int | None) -> MdsTokens:
    """Open a folder of this format."""
    return MdsTokens(path, dtype)


class _Samples(Sequence[TokenSegment]):
    """The segments of all samples, made when they are used."""

    def __init__(self, tokens: MdsTokens) -> None:
        self._tokens = tokens

    def __len__(self) -> int:
        return self._tokens.n_documents

    @overload
    def __getitem__(self, i: int) -> TokenSegment: ...

    @overload
    def __getitem__(self, i: slice) -> Sequence[TokenSegment]: ...

    def __getitem__(self, i: int | slice) -> TokenSegment | Sequence[TokenSegment]:
        numbers = range(len(self))[i]
        return self._tokens.segment(numbers) if isinstance(numbers, int) else [self._tokens.segment(n) for n in numbers]


def _shard(index: ChunkIndex, entry: dict[str, Any], dtype: np.dtype[Any] | None) -> Shard:
    if entry.get("version") != 2 or entry.get("format") != "mds":
        index.wrong(f"a shard of format {str(entry.get('format'))[:20]!r}", "shards of the format mds, version 2")
    if entry.get("zip_data") is not None or entry.get("compression"):
        index.wrong("compressed shards", "shards without compression")
    raw = entry.get("raw_data")
    if not isinstance(raw, dict):
        index.wrong("a shard without raw_data", "the name and size of its file")
    columns = [entry.get(f"column_{key}") for key in ("names", "encodings", "sizes")]
    if not all(isinstance(column, list) and len(column) == len(columns[0] or ()) for column in columns):
        index.wrong("columns of different numbers", "a name, an encoding and a size for each column")
    names, encodings, sizes = columns
    assert names is not None
    assert encodings is not None
    assert sizes is not None
    at = _token_column(index, names, encodings)
    if not all(size is None or (type(size) is int and 0 < size < 1 << 32) for size in sizes):
        index.wrong(f"column sizes {str(sizes)[:60]}", "sizes in bytes, or null")
    file = index.file(raw.get("basename"))
    stamp = check_size(file, index.number(raw, "bytes"), f"as {index.path} says")
    match = _ENCODING.match(encodings[at])
    if match is None and dtype is None:
        index.wrong(f"tokens encoded as {encodings[at]!r}, whose dtype is unknown", "dtype=")
    stored = dtype if match is None else np.dtype(np.dtype(match[1]).newbyteorder("<").str) if match[1] else None
    n_bytes = int(match[2]) * np.dtype(match[1]).itemsize if match is not None and match[2] else None
    if n_bytes != sizes[at]:
        index.wrong(f"size {sizes[at]} of the column {names[at]!r}", f"{n_bytes}, by its encoding {encodings[at]!r}")
    variable = [number for number, size in enumerate(sizes) if size is None]
    return Shard(
        path=file,
        n_samples=index.number(entry, "samples"),
        fixed_before=sum(size for size in sizes[:at] if size is not None),
        variable_before=tuple(range(sum(number < at for number in variable))),
        n_variable=len(variable),
        own=None if sizes[at] is not None else variable.index(at),
        dtype=stored,
        has_shape=match is not None and match[2] is None,
        n_bytes=n_bytes,
        stamp=stamp,
    )


def _token_column(index: ChunkIndex, names: list[Any], encodings: list[Any]) -> int:
    """Return the number of the column of tokens: by its name, else the only column that can contain tokens."""
    able = [i for i, encoding in enumerate(encodings) if isinstance(encoding, str) and _holds_tokens(encoding)]
    named = [i for i in able if names[i] in TOKEN_COLUMNS]
    chosen = named if named else able
    if len(chosen) != 1:
        expected = f"one column of tokens (ndarray or bytes), named {' or '.join(TOKEN_COLUMNS)} if there are several"
        index.wrong(f"the columns {str(names)[:60]} of the encodings {str(encodings)[:60]}", expected)
    return chosen[0]


def _holds_tokens(encoding: str) -> bool:
    return encoding == "bytes" or _ENCODING.match(encoding) is not None


def _first_dtype(shards: list[Shard]) -> np.dtype[Any] | None:
    """Return the dtype that the first array states."""
    shard = next((shard for shard in shards if shard.n_samples), None)
    if shard is None:
        return None
    data, starts, ends = _column(shard)
    _check(shard, starts[:1], starts[:1] >= ends[:1], "an array without a dtype")
    return _stated_dtype(shard, int(data[int(starts[0])]), int(starts[0]))


def _stated_dtype(shard: Shard, code: int, offset: int) -> np.dtype[Any]:
    if code not in DTYPE_CODES:
        raise FormatError(shard.path, offset, f"dtype code {code}", "an integer dtype")
    return np.dtype(f"<{DTYPE_CODES[code]}")


def _sample_offsets(shard: Shard) -> npt.NDArray[np.int64]:
    data = shard.data()
    n_bytes, header = len(data), 4 * (shard.n_samples + 2)
    if n_bytes < header:
        raise FormatError(shard.path, n_bytes, f"a file of {n_bytes} bytes", f"a header of {header} bytes")
    found = int(read_array(data, 0, 1, "<u4")[0])
    if found != shard.n_samples:
        raise FormatError(shard.path, 0, f"{found} samples", f"{shard.n_samples}, as the index says")
    offsets: npt.NDArray[np.int64] = read_array(data, 4, shard.n_samples + 1, "<u4").astype(np.int64)
    wrong = np.diff(offsets, prepend=header) < 0
    wrong |= offsets > n_bytes
    wrong[-1] |= offsets[-1] != n_bytes
    if wrong.any():
        at = int(wrong.argmax())
        raise FormatError(
            shard.path, 4 + 4 * at, f"offset {offsets[at]}", f"ascending offsets from {header} to {n_bytes}"
        )
    return offsets


def _column(shard: Shard) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the file, and the start and the end of the column of tokens of each sample, int64 [n]."""
    offsets = _sample_offsets(shard)
    data = shard.data()
    starts, ends = offsets[:-1], offsets[1:]
    heads = starts + 4 * shard.n_variable
    _check(shard, starts, heads + shard.fixed_before > ends, "a sample that is smaller than its columns")
    column = heads + shard.fixed_before
    for number in shard.variable_before:
        column = column + _u4(data, starts + 4 * number)
    if shard.own is not None:
        ends = column + _u4(data, starts + 4 * shard.own)
    elif shard.n_bytes is not None:
        ends = column + shard.n_bytes
    _check(shard, starts, ends > offsets[1:], "columns that are larger than their sample")
    return data, column, ends


def _token_rows(shard: Shard, dtype: np.dtype[Any]) -> npt.NDArray[np.int64]:
    """Return the start and the size of the tokens of each sample in bytes, int64 [n, 2], after checking them."""
    if shard.n_samples == 0:
        _sample_offsets(shard)
        return np.empty((0, 2), np.int64)
    data, starts, ends = _column(shard)
    if shard.has_shape:
        if shard.dtype is None:
            _check(shard, starts, starts >= ends, "an array without a dtype")
            codes = data[starts]
            expected = {code for code, name in DTYPE_CODES.items() if np.dtype(f"<{name}") == dtype}
            _check(shard, starts, codes != next(iter(expected)), f"an array of another dtype than {dtype}")
            starts = starts + 1
        starts = _skip_shape(shard, data, starts, ends, dtype.itemsize)
    _check(shard, starts, (ends - starts) % dtype.itemsize != 0, f"a part of a token of {dtype}")
    drop_pages(data, 0, len(data))
    return np.stack([starts, ends - starts], axis=1)


def _skip_shape(
    shard: Shard,
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    size: int,
) -> npt.NDArray[np.int64]:
    """Return where the values of the arrays start, after comparing the shapes before them with their sizes."""
    _check(shard, starts, starts >= ends, "an array without a shape")
    kinds = data[starts]
    _check(shard, starts, (kinds >> 2) != 1, "an array that is not one-dimensional")
    widths = np.int64(1) << (kinds & 3).astype(np.int64)
    values = starts + 1 + widths
    _check(shard, starts, values > ends, "an incomplete shape")
    counts = np.zeros(len(starts), np.uint64)
    for byte in range(8):
        is_used = widths > byte
        if is_used.any():
            counts[is_used] |= data[starts[is_used] + 1 + byte].astype(np.uint64) << np.uint64(8 * byte)
    _check(shard, starts, counts != ((ends - values) // size).astype(np.uint64), "a shape that contradicts its size")
    return values


def _u4(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the little-endian uint32 numbers at these bytes, wherever they are, as int64."""
    return sum((data[at + byte].astype(np.int64) << 8 * byte for byte in range(4)), np.zeros(len(at), np.int64))


def _check(shard: Shard, starts: npt.NDArray[np.int64], wrong: npt.NDArray[np.bool_], found: str) -> None:
    if wrong.any():
        number = int(wrong.argmax())
        raise FormatError(shard.path, int(starts[number]), f"{found} (sample {number})", "a sample as the index says")
