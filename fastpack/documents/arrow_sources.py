"""Text columns of Parquet files, Arrow IPC files and streams, and CSV files (extra `arrow`).

Only the column of the text is read. Rows come in groups as the file groups them (row groups, record batches); a CSV
file is one group.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.documents.compressed import is_compressed
from fastpack.documents.source_formats import ARROW_MAGIC, SourceFormat
from fastpack.documents.text_columns import (
    MAX_ROWS,
    NULL,
    WRONG_COLUMNS,
    TextBatch,
    column_of,
    json_rows,
    missing_column,
    text_batches,
    values_at,
)
from fastpack.errors import FormatError, MissingExtra
from fastpack.io import drop_pages, is_remote, map_bytes, open_bytes, open_stream, plain_path, size_of

_BUFFER = 1 << 20  # bytes of a column that are read at once
_BATCHES_READ = 4  # batches per array of a Parquet file, which are not copied; fewer cost more calls
STREAM_END = b"\xff\xff\xff\xff\0\0\0\0"
_CSV_BLOCK = 16 << 20  # bytes; a row must fit into it


def open_table(path: str, kind: SourceFormat, names: Sequence[str] | None, *, as_rows: bool = False) -> TextTable:
    """Open a Parquet, Arrow, CSV or TSV file for its column `names`, a path into nested fields; None: no column.

    as_rows: a text is a row as a JSON object with those of the columns `names` that the file has (Parquet and Arrow).
    Raises ValueError for a column that does not exist or does not contain strings, FormatError for a damaged file,
    MissingExtra without pyarrow.
    """
    try:
        import pyarrow as pa  # noqa: F401
    except ImportError:
        raise MissingExtra("pyarrow", "arrow", f"{path}, a {kind} file") from None
    if kind == "parquet":
        return ParquetTable(path, names, as_rows)
    if kind == "arrow":
        return ArrowTable(path, names, as_rows)
    return CsvTable(path, names, "\t" if kind == "tsv" else ",")


class TextTable:
    """A file with a column of texts; subclasses read its rows as Arrow arrays."""

    kind: str
    missing = NULL  # length of a text that is missing
    schema: Any  # pyarrow.Schema of all columns
    _names: Sequence[str] = ()

    def __init__(self, path: str, as_rows: bool = False) -> None:
        self.path, self._as_rows = path, as_rows
        self._size = size_of(path)

    def _column_names(self, names: Sequence[str] | None) -> Sequence[str]:
        """Return the path of the column, or the columns, that are read."""
        if names is None:
            return ()
        if not self._as_rows:
            return column_of(self.schema, names, self.path)
        found = [name for name in names if name in self.schema.names]
        if not found:
            raise missing_column(self.path, names[0], self.schema.names)
        return found

    def _values(self, batch: Any) -> Any:
        """Return the texts of a record batch as an array."""
        return json_rows(batch, self._names) if self._as_rows else values_at(batch, self._names)

    def group_rows(self) -> npt.NDArray[np.int64] | None:
        """Return the number of rows of each group; None if only reading the whole file would tell."""
        return None

    def read(self, first_row: int, stop_row: int | None, n_bytes: int) -> Iterator[TextBatch]:
        """Yield the rows [first_row, stop_row) in batches of about `n_bytes`; None: to the end."""
        with _format_errors(self.path, self.kind):
            for row, array, done in self._arrays(first_row, n_bytes):
                start, end = max(row, first_row), row + len(array)
                end = end if stop_row is None else min(end, stop_row)
                if start < end:
                    yield from text_batches(array.slice(start - row, end - start), start, n_bytes, done, self.missing)
                if stop_row is not None and row + len(array) >= stop_row:
                    return

    def _arrays(self, first_row: int, n_bytes: int) -> Iterator[tuple[int, Any, int]]:
        """Yield (number of the first row, values, bytes read); rows before `first_row` may come, too."""
        raise NotImplementedError


@contextlib.contextmanager
def _format_errors(path: str, kind: str) -> Iterator[None]:
    """Turn pyarrow's errors about the contents of a file into FormatError."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, (pa.ArrowMemoryError, pa.ArrowCancelled)) or getattr(error, "errno", None) is not None:
            raise
        found = " ".join(str(error).split())[:300]
        raise FormatError(path, 0, found, f"a {kind} file that can be read") from None


class ParquetTable(TextTable):
    """A Parquet file. A group is a row group, which is read page by page."""

    kind = "parquet"

    def __init__(self, path: str, names: Sequence[str] | None, as_rows: bool = False) -> None:
        super().__init__(path, as_rows)
        self._metadata: Any = None
        with _format_errors(path, self.kind), self._open() as file:
            self._metadata, self.schema = file.metadata, file.schema_arrow
        self._names = self._column_names(names)
        self._columns = list(self._names) if as_rows else [".".join(self._names)]

    @property
    def codecs(self) -> list[str]:
        """The compression codecs of all columns, sorted."""
        groups = map(self._metadata.row_group, range(self._metadata.num_row_groups))
        return sorted({group.column(i).compression.lower() for group in groups for i in range(group.num_columns)})

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        # Arrow reads a local file itself, which takes about 10 % less time than a Python file.
        with open_stream(self.path) if is_remote(self.path) else pa.OSFile(plain_path(self.path)) as file:
            yield pq.ParquetFile(
                file,
                metadata=self._metadata,
                buffer_size=_BUFFER,
                pre_buffer=False,
                page_checksum_verification=True,
            )

    def group_rows(self) -> npt.NDArray[np.int64]:
        """Return the number of rows of each row group."""
        metadata = self._metadata
        return np.array([metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)], np.int64)

    def _arrays(self, first_row: int, n_bytes: int) -> Iterator[tuple[int, Any, int]]:
        group_rows = self.group_rows()
        ends = np.cumsum(group_rows)
        with self._open() as file:
            for group in range(int(np.searchsorted(ends, first_row, side="right")), len(ends)):
                row = int(ends[group] - group_rows[group])
                n_rows = self._rows_per_batch(group, n_bytes)
                for batch in file.iter_batches(n_rows, [group], self._columns, use_threads=False):
                    row += len(batch)
                    yield row - len(batch), self._values(batch), self._size * row // int(ends[-1])

    def _rows_per_batch(self, group: int, n_bytes: int) -> int:
        metadata = self._metadata.row_group(group)
        columns = (metadata.column(i) for i in range(metadata.num_columns))
        size = sum(column.total_uncompressed_size for column in columns if self._is_read(column.path_in_schema))
        return int(min(MAX_ROWS, max(1, _BATCHES_READ * n_bytes * metadata.num_rows // max(1, size))))

    def _is_read(self, column: str) -> bool:
        return column in self._columns or (self._as_rows and column.split(".")[0] in self._columns)


class ArrowTable(TextTable):
    """An Arrow IPC file or stream. A group is a record batch."""

    kind = "arrow"

    def __init__(self, path: str, names: Sequence[str] | None, as_rows: bool = False) -> None:
        import pyarrow as pa

        super().__init__(path, as_rows)
        self._options = pa.ipc.IpcReadOptions(use_threads=False)
        with _format_errors(path, self.kind), self._open() as (reader, _):
            self.schema = reader.schema
            if not isinstance(reader, pa.ipc.RecordBatchFileReader):
                self._check_end()
        self._names = self._column_names(names)
        read = self._names if as_rows else self._names[:1]
        self._options.included_fields = [self.schema.get_field_index(name) for name in read]

    def _check_end(self) -> None:
        """Raise FormatError for a stream without its end marker: pyarrow takes any end after a message as the end."""
        tail = open_bytes(self.path)[max(0, self._size - len(STREAM_END)) :].tobytes()
        if tail != STREAM_END:
            raise FormatError(
                self.path, self._size - len(tail), tail.hex(" "), f"{STREAM_END.hex(' ')}, the end marker of a stream"
            )

    def group_rows(self) -> npt.NDArray[np.int64]:
        """Return the number of rows of each record batch."""
        with _format_errors(self.path, self.kind):
            return np.array([batch.num_rows for batch, _ in self._batches()], np.int64)

    @contextlib.contextmanager
    def _open(self) -> Iterator[tuple[Any, Any]]:
        """Open a reader and its source; a local file gives views of the mapped bytes, unless they are compressed."""
        import pyarrow as pa

        with contextlib.ExitStack() as stack:
            if is_remote(self.path):
                source = stack.enter_context(open_stream(self.path))
                is_file = source.peek(len(ARROW_MAGIC)).startswith(ARROW_MAGIC)
            else:
                data = map_bytes(self.path)
                source, is_file = pa.BufferReader(pa.py_buffer(data)), data[:6].tobytes() == ARROW_MAGIC
                stack.callback(drop_pages, data, 0, len(data))
            opened = pa.ipc.open_file if is_file else pa.ipc.open_stream
            yield stack.enter_context(opened(source, options=self._options)), source

    def _batches(self) -> Iterator[tuple[Any, int]]:
        """Yield the record batches, and about how many bytes of the file are read after each."""
        import pyarrow as pa

        with self._open() as (reader, source):
            if isinstance(reader, pa.ipc.RecordBatchFileReader):
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number), self._size * (number + 1) // reader.num_record_batches
            else:
                yield from ((batch, source.tell()) for batch in reader)

    def _arrays(self, first_row: int, n_bytes: int) -> Iterator[tuple[int, Any, int]]:  # noqa: ARG002
        row = 0
        for batch, done in self._batches():
            if row + len(batch) > first_row:
                yield row, self._values(batch), done
            row += len(batch)


class CsvTable(TextTable):
    """A CSV file with a header, also compressed. A row with too many or too few columns has no text."""

    kind = "csv"
    missing = WRONG_COLUMNS

    def __init__(self, path: str, names: Sequence[str] | None, delimiter: str) -> None:
        super().__init__(path)
        self._delimiter = delimiter
        with _format_errors(path, self.kind), self._open(None, []) as (reader, _):
            self.schema = reader.schema
        self._name = ".".join(names or ())
        if names is not None and self._name not in self.schema.names:
            raise missing_column(path, self._name, self.schema.names)

    @contextlib.contextmanager
    def _open(self, column: str | None, faulty: list[int]) -> Iterator[tuple[Any, Any]]:
        """Open a reader of one column, or of all, and its source; numbers of faulty rows, from 0, go to `faulty`."""
        import pyarrow as pa
        from pyarrow import csv

        def note(row: Any) -> str:
            faulty.append(row.number - 2)  # the header is row 1
            return "skip"

        convert = csv.ConvertOptions(strings_can_be_null=False)
        if column is not None:
            convert.include_columns, convert.column_types = [column], {column: pa.binary()}
        parse = csv.ParseOptions(
            delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=False, invalid_row_handler=note
        )
        with contextlib.ExitStack() as stack:
            file = source = stack.enter_context(open_stream(self.path))
            if is_compressed(self.path):
                codec = "gzip" if self.path.endswith(".gz") else "zstd"
                source = stack.enter_context(pa.CompressedInputStream(pa.PythonFile(file, "r"), codec))
            read = csv.ReadOptions(use_threads=False, block_size=_CSV_BLOCK)
            yield stack.enter_context(csv.open_csv(source, read, parse, convert)), file

    def _arrays(self, first_row: int, n_bytes: int) -> Iterator[tuple[int, Any, int]]:  # noqa: ARG002
        faulty: list[int] = []
        row = 0
        with self._open(self._name, faulty) as (reader, file):
            for batch in reader:
                array = _with_nulls(batch.column(0), row, faulty)
                yield row, array, file.tell()
                row += len(array)
            if faulty and faulty[-1] >= row:
                import pyarrow as pa

                yield row, pa.nulls(faulty[-1] + 1 - row, pa.binary()), file.tell()


def _with_nulls(array: Any, row: int, faulty: list[int]) -> Any:
    """Insert a null for each faulty row among the values, of which the first has the number `row` or a later one."""
    import pyarrow as pa

    indices: list[int | None] = []
    left = faulty[bisect_left(faulty, row) :]
    if not left:
        return array
    skipped = set(left)
    for value in range(len(array)):
        while row in skipped:
            indices.append(None)
            row += 1
        indices.append(value)
        row += 1
    return array.take(pa.array(indices, pa.int64()))
