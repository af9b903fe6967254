"""The texts of JSON Lines, Parquet, Arrow, CSV, TSV and plain text sources as documents, with fields of their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from fastpack.documents.compressed import is_compressed
from fastpack.documents.json_blocks import compile_block_pattern
from fastpack.documents.json_fields import FaultyDocument, compile_pattern, parse_plain_path, walk
from fastpack.inspection.curation.documents import NO_TEXT, Block
from fastpack.io import Progress, is_remote, map_bytes, size_of
from fastpack.packing.settings import Source, field_pattern, find_pack_sources
from fastpack.packing.source_batches import SourceBatch, read_batches
from fastpack.packing.utf8_texts import read_texts

DEFAULT_FIELD = "text"
_BATCH = 4 << 20  # bytes
_TABLES = ("parquet", "arrow")  # whose rows can be read with several columns
_MAX_NAME = 200  # characters of the value of a field

Path: TypeAlias = tuple[str | int, ...]


class TextDocuments:
    """The texts of the files that a path or several name. A document is a row; faulty rows have no text.

    group, key: names of fields whose values are returned with each document; `a.b` is the field b of a. Raises
    ValueError where the format of the files has no such fields.
    """

    unit = "bytes"

    def __init__(
        self,
        paths: Sequence[str],
        *,
        text_field: str | None = None,
        split_on: str | None = None,
        group: str | None = None,
        key: str | None = None,
    ) -> None:
        self._pattern = field_pattern(text_field or DEFAULT_FIELD)
        found = find_pack_sources(paths, None, "optional", text_pattern=self._pattern, split_on=split_on)
        self._group, self._key = (None if name is None else _path(name) for name in (group, key))
        self._totals: dict[str, list[int]] = {}
        self._sources = [self._with_fields(replace(source, index_path=None), group, key) for source in found]

    def _with_fields(self, source: Source, group: str | None, key: str | None) -> Source:
        asked = [name for name in (group, key) if name is not None]
        if source.format == "jsonl" or not asked:
            return source
        if source.format not in _TABLES:
            raise ValueError(f"{source.path}: fields are read from JSON Lines, Parquet and Arrow, not {source.format}")
        from fastpack.documents.arrow_sources import open_table
        from fastpack.documents.text_columns import missing_column

        columns = open_table(source.path, source.format, None).schema.names
        missing = next((name for name in asked if name.split(".")[0] not in columns), None)
        if missing is not None:
            raise missing_column(source.path, missing, columns)
        names = dict.fromkeys([source.columns[0], *(name.split(".")[0] for name in asked)])
        return replace(source, columns=tuple(names), as_rows=True)

    def blocks(self, progress: Progress | None = None) -> Iterator[Block]:
        """Yield all documents, in order."""
        self._totals = {source.path: [0, 0] for source in self._sources}
        for path, block in self._read_blocks(progress):
            yield block
            self._totals[path][0] += int(np.count_nonzero(block.rows[:, 1] != NO_TEXT))
            self._totals[path][1] += len(block.values)

    def _read_blocks(self, progress: Progress | None = None) -> Iterator[tuple[str, Block]]:
        total, before, first = sum(size_of(source.path) for source in self._sources), 0, 0
        for source in self._sources:
            read = self._reader(source)
            size = size_of(source.path)
            for batch in read_batches(source, 0, _BATCH):
                block = read(batch, first)
                yield source.path, block
                first += len(block.rows)
                if progress is not None:
                    progress(before + min(batch.done, size), total)
            before += size

    def files(self) -> list[tuple[str, int, int]]:
        """Return (path, documents, bytes) of each file, after the last block was read."""
        return [(path, documents, n_bytes) for path, (documents, n_bytes) in self._totals.items()]

    def read(self, numbers: Iterable[int], limit: int) -> dict[int, npt.NDArray[Any]]:
        """Return the first `limit` bytes of some documents, without those that have no text."""
        wanted = np.unique(np.fromiter(numbers, np.int64))
        found: dict[int, npt.NDArray[Any]] = {}
        for _, block in self._read_blocks() if len(wanted) else ():
            first, end = np.searchsorted(wanted, [block.first, block.first + len(block.rows)])
            for number in wanted[first:end].tolist():
                start, length = block.rows[number - block.first].tolist()
                if length != NO_TEXT:
                    found[number] = block.values[start : start + min(length, limit)].copy()
            if end == len(wanted):
                break
        return found

    def _reader(self, source: Source) -> Callable[[SourceBatch, int], Block]:
        is_mapped = source.format == "jsonl" and not (is_compressed(source.path) or is_remote(source.path))
        whole = memoryview(map_bytes(source.path)) if is_mapped else None  # type: ignore[arg-type]
        if source.as_rows or self._group is not None or self._key is not None:
            return self._fields_reader(whole)
        return _read_table if source.format != "jsonl" else _lines_reader(whole, self._pattern)

    def _fields_reader(self, whole: memoryview | None) -> Callable[[SourceBatch, int], Block]:
        text_of, text_path = compile_pattern(self._pattern), parse_plain_path(self._pattern) or ()
        group, key = self._group, self._key

        def read(batch: SourceBatch, first: int) -> Block:
            texts: list[bytes | None] = []
            groups: list[str | None] = []
            keys: list[str | None] = []
            for line in _lines(_bytes_of(batch, whole), batch):
                row, text = _parsed(line, text_path, text_of)
                texts.append(text)
                groups.append(None if group is None else _value(row, group))
                keys.append(None if key is None else _value(row, key))
            block = _block(texts, first)
            return block._replace(groups=None if group is None else groups, keys=None if key is None else keys)

        return read


def _path(name: str) -> Path:
    return tuple(name.split(".")) if all(name.split(".")) else (name,)


def _parsed(line: memoryview, path: Path, text_of: Callable[[memoryview], str]) -> tuple[Any, bytes | None]:
    """Return a row, None if it is not JSON for orjson, and its text, None if it has none."""
    row = None
    try:
        row = orjson.loads(line)
        text = walk(row, path)
    except orjson.JSONDecodeError:
        try:
            text = text_of(line)
        except FaultyDocument:
            text = None
    except FaultyDocument:
        text = None
    return row, text.encode() if isinstance(text, str) else None


def _value(row: Any, path: Path) -> str | None:
    """Return the value of a field as text; None if there is none."""
    try:
        value = walk(row, path)
    except (FaultyDocument, KeyError):
        return None
    if value is None or isinstance(value, str):
        return value if value is None else value[:_MAX_NAME]
    return orjson.dumps(value).decode()[:_MAX_NAME]


def _bytes_of(batch: SourceBatch, whole: memoryview | None) -> memoryview:
    """Return the bytes that the rows of a batch are in; whole: of a mapped file."""
    if batch.batch.data is not None:
        return memoryview(batch.batch.data)  # type: ignore[arg-type]
    assert whole is not None
    return whole


def _lines(data: memoryview, batch: SourceBatch) -> Iterator[memoryview]:
    for start, length in batch.batch.rows.tolist():
        yield data[start : start + max(length, 0)]


def _lines_reader(whole: memoryview | None, pattern: str) -> Callable[[SourceBatch, int], Block]:
    text_of, texts_of = compile_pattern(pattern), compile_block_pattern(pattern)

    def read(batch: SourceBatch, first: int) -> Block:
        data = _bytes_of(batch, whole)
        many = None if texts_of is None else texts_of(data, batch.batch.rows)
        if many is not None:
            return _block([text.encode() for text in many], first)
        texts: list[bytes | None] = []
        for line in _lines(data, batch):
            try:
                texts.append(text_of(line).encode())
            except FaultyDocument:
                texts.append(None)
        return _block(texts, first)

    return read


def _read_table(batch: SourceBatch, first: int) -> Block:
    texts, positions, _ = read_texts(_bytes_of(batch, None), batch.batch.rows)
    encoded: list[bytes | None] = [None] * len(batch.batch.rows)
    for position, text in zip(positions, texts, strict=True):
        encoded[position] = text.encode()
    return _block(encoded, first)


def _block(texts: Sequence[bytes | None], first: int) -> Block:
    """Return a block of whole texts."""
    lengths = np.array([NO_TEXT if text is None else len(text) for text in texts], np.int64)
    filled = lengths.clip(0)
    rows = np.stack([np.cumsum(filled) - filled, lengths], axis=1)
    return Block(first, np.frombuffer(b"".join(filter(None, texts)), np.uint8), rows, len(rows))
