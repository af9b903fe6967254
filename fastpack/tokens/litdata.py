"""litData's folders of token chunks: `chunk-<rank>-<n>.bin` and `index.json`.

A chunk contains uint32 n, uint32 [n + 1] offsets of its items in bytes, and the items: the tokens of one document each.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.errors import FormatError
from fastpack.io import AnyPath, AtomicFile, open_bytes
from fastpack.tokens.chunk_index import ChunkIndex, has_index
from fastpack.tokens.chunk_writer import ChunkedTokenWriter, predicted_chunks, put_run
from fastpack.tokens.indexed_tokens import IndexedTokens, check_given_dtype, check_size, raw_segment, read_array
from fastpack.tokens.token_file import DocumentEnds, Rows, Run
from fastpack.tokens.token_segment import TokenSegment

NUMPY_CODES = {0: "i1", 1: "i2", 2: "i4", 3: "i8", 4: "u1", 5: "u2", 6: "u4", 7: "u8"}
TORCH_CODES = {11: "u1", 12: "i1", 13: "i2", 14: "i2", 15: "i4", 16: "i4", 17: "i8", 18: "i8", 20: "u2"}
_FORMAT = re.compile(r"no_header_(numpy|tensor):(\d{1,3})\Z", re.ASCII)


def fits(path: AnyPath) -> bool:
    """Return whether a folder has an `index.json` with chunks."""
    return has_index(path, "chunks", "chunk-*.bin")


class LitdataTokens(IndexedTokens):
    """A folder of chunks without compression, one document per item."""

    def __init__(self, path: AnyPath, dtype: np.dtype[Any] | None = None) -> None:
        index = ChunkIndex(path)
        self._dtype = _dtype(index)
        check_given_dtype(index.path, 0, self._dtype, dtype)
        segments, self._n_items = [], []
        for chunk in index.entries("chunks"):
            n_items = index.number(chunk, "chunk_size")
            segments.append(self._segment(index, chunk, n_items))
            self._n_items.append(n_items)
        super().__init__(path, "litdata", segments, sum(self._n_items))

    def _segment(self, index: ChunkIndex, chunk: dict[str, Any], n_items: int) -> TokenSegment:
        file, n_bytes = index.file(chunk.get("filename")), index.number(chunk, "chunk_bytes")
        stamp = check_size(file, n_bytes, f"as {index.path} says")
        header = 4 * (n_items + 2)
        if n_bytes < header:
            raise FormatError(file, n_bytes, f"a file of {n_bytes} bytes", f"a header of {header} for {n_items} items")
        segment = raw_segment(file, self._dtype, header, stamp=stamp)
        if chunk.get("dim") is not None and index.number(chunk, "dim") != segment.length:
            index.wrong(f"dim {chunk['dim']} of {file.name}", f"{segment.length} tokens, as the file contains")
        return segment

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored tokens."""
        return self._dtype

    def _read_document_ends(self) -> DocumentEnds:
        ends, before = np.empty(self._n_documents, np.int64), 0
        done = 0
        for segment, n_items in zip(self._segments, self._n_items, strict=True):
            offsets = _read_offsets(segment, n_items)
            ends[done : done + n_items] = (offsets[1:] - segment.offset) // self._dtype.itemsize + before
            before += segment.length
            done += n_items
        return ends


def _dtype(index: ChunkIndex) -> np.dtype[Any]:
    config = index.tree.get("config")
    if not isinstance(config, dict):
        index.wrong("no config", "the configuration of the chunks")
    for key in ("compression", "encryption"):
        if config.get(key) is not None:
            index.wrong(f"{key} {str(config[key])[:40]!r}", f"chunks without {key}")
    formats = config.get("data_format")
    match = _FORMAT.match(str(formats[0])) if isinstance(formats, list) and len(formats) == 1 else None
    codes = TORCH_CODES if match is not None and match[1] == "tensor" else NUMPY_CODES
    if match is None or int(match[2]) not in codes:
        index.wrong(f"data_format {str(formats)[:60]}", "items of integer tokens: no_header_numpy or no_header_tensor")
    return np.dtype(f"<{codes[int(match[2])]}")


def _read_offsets(segment: TokenSegment, n_items: int) -> npt.NDArray[np.int64]:
    """Return the offsets of the items and of the end, int64 [n_items + 1]; raise FormatError unless they ascend."""
    data = open_bytes(segment.path, segment.version)
    found = int(read_array(data, 0, 1, "<u4")[0])
    if found != n_items:
        raise FormatError(segment.path, 0, f"{found} items", f"{n_items}, as the index says")
    offsets: npt.NDArray[np.int64] = read_array(data, 4, n_items + 1, "<u4").astype(np.int64)
    size = segment.dtype.itemsize
    end = segment.offset + segment.length * size
    wrong = np.diff(offsets, prepend=segment.offset) < 0
    wrong |= (offsets > end) | ((offsets - segment.offset) % size != 0)
    wrong[0] |= offsets[0] != segment.offset
    wrong[-1] |= offsets[-1] != end
    if wrong.any():
        at = int(wrong.argmax())
        expected = f"ascending offsets from {segment.offset} to {end} at whole tokens of {size} bytes"
        raise FormatError(segment.path, 4 + 4 * at, f"offset {offsets[at]}", expected)
    return offsets


class LitdataWriter(ChunkedTokenWriter):
    """Writes chunks as litData's writer does for arrays of tokens, for its TokensLoader."""

    def _overhead(self) -> int:
        return 8

    def _document_bytes(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return lengths * self._dtype.itemsize + 4

    def _chunk_name(self, number: int) -> str:
        return f"chunk-0-{number}.bin"

    def _write_chunk(self, output: AtomicFile, lengths: npt.NDArray[np.int64], runs: Iterable[Run]) -> dict[str, Any]:
        header = 4 * (len(lengths) + 2)
        offsets = np.cumsum(np.concatenate([[header], lengths * self._dtype.itemsize]))
        output.write(np.concatenate([[len(lengths)], offsets]).astype("<u4"))
        for run in runs:
            put_run(output, run)
        return {
            "chunk_bytes": int(offsets[-1]),
            "chunk_size": len(lengths),
            "dim": int(lengths.sum()),
            "filename": self._chunk_name(len(self._chunks)),
        }

    def _index(self) -> dict[str, Any]:
        code = {dtype: code for code, dtype in NUMPY_CODES.items()}[self._dtype.str[1:]]
        config = {
            "chunk_bytes": self._chunk_bytes,
            "chunk_size": None,
            "compression": None,
            "data_format": [f"no_header_numpy:{code}"],
            "data_spec": json.dumps([1, {"type": None, "context": None, "children_spec": []}]),
            "encryption": None,
            "item_loader": "TokensLoader",
        }
        return {"chunks": self._chunks, "config": config, "updated_at": str(time.time())}


def open_file(path: AnyPath, dtype: np.dtype[Any] | None, _eos: int | None) -> LitdataTokens:
    """Open a folder of this format."""
    return LitdataTokens(path, dtype)


def create(path: AnyPath, dtype: np.dtype[Any], policy: Any) -> LitdataWriter:
    """Create a folder of chunks."""
    return LitdataWriter(path, dtype, if_exists=policy)


def predicted_size(n_tokens: int, token_size: int, documents: Iterable[Rows]) -> int:
    """Return the size of the chunks in bytes."""
    del n_tokens  # the rows have it
    return predicted_chunks((rows[:, 1] * token_size + 4 for rows in documents), 8)
