"""Writing MDS folders (MosaicML Streaming); see `mds.py` for the layout."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.io import AnyPath, AtomicFile
from fastpack.io.gathered_write import Spans
from fastpack.tokens.chunk_writer import CHUNK_BYTES, ChunkedTokenWriter, TokenRuns, predicted_chunks, put_run
from fastpack.tokens.token_file import Rows, Run

_ARRAY_1D = 1 << 2  # number of dimensions, above 2 bits that say the dtype of the shape
_WRITTEN_BYTES = 1 << 24  # of tokens that are written together


class MdsWriter(ChunkedTokenWriter):
    """Writes shards with one column, `tokens`, of arrays of one dtype. Empty documents cannot be stored."""

    def __init__(self, path: AnyPath, dtype: np.dtype[Any], **options: Any) -> None:
        super().__init__(path, dtype, **options)
        self._entry = _entry(dtype, self._chunk_bytes)
        self._config = _config(self._entry)

    def _overhead(self) -> int:
        return 8 + len(self._config)

    def _document_bytes(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return lengths * self._dtype.itemsize + _prefix_bytes(lengths) + 4

    def _check_sizes(self, lengths: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None:
        if (lengths == 0).any():
            raise ValueError(
                f"document {self.n_documents + int((lengths == 0).argmax())} is empty: MDS has no such arrays"
            )
        super()._check_sizes(lengths, sizes)

    def _chunk_name(self, number: int) -> str:
        return f"shard.{number:05}.mds"

    def _write_chunk(self, output: AtomicFile, lengths: npt.NDArray[np.int64], runs: Iterable[Run]) -> dict[str, Any]:
        header = 4 * (len(lengths) + 2) + len(self._config)
        offsets = np.cumsum(np.concatenate([[header], self._document_bytes(lengths) - 4]))
        output.write(np.concatenate([[len(lengths)], offsets]).astype("<u4"))
        output.write(self._config)
        self._write_samples(output, lengths, TokenRuns(runs, self._dtype))
        entry = {"raw_data": {"basename": self._chunk_name(len(self._chunks)), "bytes": int(offsets[-1]), "hashes": {}}}
        return {**self._entry, **entry, "samples": len(lengths), "zip_data": None}

    def _write_samples(self, output: AtomicFile, lengths: npt.NDArray[np.int64], tokens: TokenRuns) -> None:
        size, first = self._dtype.itemsize, 0
        rows, prefixes, sizes = _prefixes(lengths, size), _prefix_bytes(lengths), lengths * size
        ends, starts = np.cumsum(sizes), np.arange(len(lengths), dtype=np.int64) * rows.shape[1]
        while first < len(lengths):
            before = int(ends[first - 1]) if first else 0
            n_bytes = min(tokens.at_hand() * size, _WRITTEN_BYTES)
            end = int(np.searchsorted(ends, before + n_bytes, "right"))
            if end <= first:  # a sample of several runs
                output.write(rows[first, : int(prefixes[first])].copy())
                for run in tokens.take(int(lengths[first])):
                    put_run(output, run)
                first += 1
                continue
            some, first = slice(first, end), end
            data = tokens.bytes_of((int(ends[end - 1]) - before) // size)
            values = Spans(data, ends[some] - sizes[some] - before, sizes[some])
            output.write_interleaved([Spans(rows.reshape(-1), starts[some], prefixes[some]), values])

    def _index(self) -> dict[str, Any]:
        return {"shards": self._chunks, "version": 2}


def _entry(dtype: np.dtype[Any], chunk_bytes: int) -> dict[str, Any]:
    """Return what the index says of every shard."""
    return {
        "column_encodings": [f"ndarray:{dtype.newbyteorder('=')}"],
        "column_names": ["tokens"],
        "column_sizes": [None],
        "compression": None,
        "format": "mds",
        "hashes": [],
        "size_limit": chunk_bytes,
        "version": 2,
    }


def _config(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, sort_keys=True).encode()


def _prefix_bytes(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bytes before the values of each array: size, number of dimensions, and length in 1, 2 or 4 bytes."""
    return 6 + (lengths >= 1 << 8) + 2 * (lengths >= 1 << 16).astype(np.int64)


def _prefixes(lengths: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.uint8]:
    """Return the bytes before the values of each array, uint8 [n, 9]; the first `_prefix_bytes` of each are used."""
    used = _prefix_bytes(lengths)
    rows = np.zeros((len(lengths), 9), np.uint8)
    rows[:, :4] = (lengths * size + used - 4).astype("<u4").view(np.uint8).reshape(-1, 4)
    rows[:, 4] = _ARRAY_1D + (used > 6) + (used > 7)
    rows[:, 5:] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    return rows


def create(path: AnyPath, dtype: np.dtype[Any], policy: Any) -> MdsWriter:
    """Create a folder of shards."""
    return MdsWriter(path, dtype, if_exists=policy)


def predicted_size(n_tokens: int, token_size: int, documents: Iterable[Rows]) -> int:
    """Return the size of the shards in bytes."""
    del n_tokens  # the rows have it
    config = _config(_entry(np.dtype(f"u{token_size}"), CHUNK_BYTES))
    sizes = (rows[:, 1] * token_size + _prefix_bytes(rows[:, 1]) + 4 for rows in documents)
    return predicted_chunks(sizes, 8 + len(config))
