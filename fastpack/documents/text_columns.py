"""Texts of Parquet, Arrow and CSV files in batches of UTF-8 bytes, without a Python string per document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

MAX_ROWS = 16_384  # rows per batch
NULL, WRONG_COLUMNS = -1, -2  # lengths of texts that are missing, by reason
REASONS = {
    NULL: "the value is null, expected a string",
    WRONG_COLUMNS: "the row has more or fewer columns than the header",
}


class TextBatch(NamedTuple):
    """Consecutive rows of a column of texts.

    first_row: number of the first row in the file, from 0. data: uint8, the UTF-8 bytes of all texts. rows: int64[n,
    2], byte offset in `data` and byte length of each text; a negative length is a key of REASONS: there is no text.
    done: bytes of the file that were read so far.
    """

    first_row: int
    data: npt.NDArray[np.uint8]
    rows: npt.NDArray[np.int64]
    done: int


def text_batches(array: Any, first_row: int, n_bytes: int, done: int, missing: int = NULL) -> Iterator[TextBatch]:
    """Split an Arrow array of strings or binary values into batches of about `n_bytes`, at least one row each.

    Raises pyarrow's ArrowInvalid for offsets outside the data.
    """
    n_rows = len(array)
    offsets, data = _offsets_and_data(array)
    valid = np.ones(n_rows, bool) if not array.null_count else array.is_valid().to_numpy(zero_copy_only=False)
    start, total = 0, int(offsets[-1] - offsets[0])
    n_bytes = max(n_bytes, -(-total // max(1, round(total / n_bytes))))  # equal batches, without a short last one
    while start < n_rows:
        end = int(np.searchsorted(offsets, offsets[start] + n_bytes, side="right")) - 1
        end = min(max(end, start + 1), start + MAX_ROWS, n_rows)
        first, last = int(offsets[start]), int(offsets[end])
        lengths = np.where(valid[start:end], np.diff(offsets[start : end + 1]), missing)
        rows = np.stack([offsets[start:end] - first, lengths], axis=1)
        yield TextBatch(first_row + start, data[first:last], rows, done)
        start = end


def _offsets_and_data(array: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Return the offsets of an array's values, int64[n + 1], and the bytes that they refer to."""
    import pyarrow as pa

    if array.type not in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        array = array.cast(pa.large_binary())
    _, offset_bytes, content = array.buffers()
    data = np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
    if not len(array):
        return np.zeros(1, np.int64), data
    dtype = np.dtype(np.int32 if array.type in (pa.string(), pa.binary()) else np.int64)
    offsets = np.frombuffer(offset_bytes, dtype, len(array) + 1, array.offset * dtype.itemsize).astype(np.int64)
    if offsets[0] < 0 or offsets[-1] > len(data) or bool((offsets[1:] < offsets[:-1]).any()):
        raise pa.ArrowInvalid("offsets of values are not ascending, or lie outside the data")
    return offsets, data


def column_of(schema: Any, names: Sequence[str], path: str) -> tuple[str, ...]:
    """Return the path of a column in an Arrow schema: `names`, or one name with dots.

    Raises ValueError with the columns of the file if there is none, or if its values are not strings.
    """
    import pyarrow as pa

    for way in (tuple(names), (".".join(names),)):
        kind = _type_at(schema, way)
        if kind is not None:
            break
    else:
        raise missing_column(path, ".".join(names), list(_column_names(schema)))
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    views = [check for name in ("is_string_view", "is_binary_view") if (check := getattr(pa.types, name, None))]
    if not any(check(value) for check in (*is_text, *views, pa.types.is_null)):
        raise ValueError(f"{path}: the column {'.'.join(way)!r} has values of type {kind}, expected strings")
    return way


def missing_column(path: str, name: str, columns: Sequence[str]) -> ValueError:
    """Return the error for a column that a file does not have."""
    return ValueError(f"{path} has no column {name!r}; it has: {', '.join(columns) or 'no columns'}")


def _type_at(schema: Any, names: Sequence[str]) -> Any:
    import pyarrow as pa

    fields = {field.name: field.type for field in schema}
    kind = None
    for name in names:
        if name not in fields:
            return None
        kind = fields[name]
        fields = (
            {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)} if pa.types.is_struct(kind) else {}
        )
    return kind


def _column_names(schema: Any) -> Iterator[str]:
    """Yield the columns of a schema, those of structs as `a.b`."""
    import pyarrow as pa

    for field in schema:
        if pa.types.is_struct(field.type):
            yield from (f"{field.name}.{name}" for name in _column_names(field.type))
        else:
            yield field.name


def values_at(batch: Any, names: Sequence[str]) -> Any:
    """Return a column of a record batch as an array of strings or binary values; fields of structs by their path."""
    import pyarrow as pa
    import pyarrow.compute as pc

    array = batch.column(batch.schema.get_field_index(names[0]))
    if len(names) > 1:
        array = pc.call_function("struct_field", [array], pc.StructFieldOptions(list(names[1:])))
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return array  # `text_batches` validates it, and finds invalid UTF-8 per document
    array.validate(full=True)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def json_rows(batch: Any, names: Sequence[str]) -> Any:
    """Return the rows of a record batch as an array of JSON objects of the columns `names`.

    Missing fields of structs are left out, as in JSON Lines: Arrow stores them as null. A null named "content" stays.
    """
    import pyarrow as pa

    rows = batch.select(list(names)).to_pylist()
    return pa.array([orjson.dumps(_without_nulls(row), default=repr) for row in rows], pa.large_binary())


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_nulls(one) for k, one in value.items() if one is not None or k == "content"}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
