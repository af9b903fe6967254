"""The raw index of a JSON Lines file: (byte offset, byte length) of each line, without the newline."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fastpack.documents.raw_index_check import check_bounds, default_index_path, known_lengths, line_at
from fastpack.io import AtomicFile, ExistencePolicy, PathLike, as_path, map_bytes, open_bytes, pickled_index

_BLOCK_ROWS = 16_384  # 256 KiB of rows stay in the second-level cache between kernels


def read_raw_index(path: PathLike) -> npt.NDArray[np.int64]:
    """Read the byte-offset index of a JSON Lines file.

    Indexes of every pickle protocol are parsed; nothing is unpickled.

    Parameters
    ----------
    path
        The `.idx` file.

    Returns
    -------
    NDArray
        int64 [n, 2], (byte offset, byte length) of each line, without its newline.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FormatError
        If the file is not a list of pairs of integers.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> fastpack.write_raw_index(f"{folder.name}/a.idx", [(0, 13), (14, 15)])
    >>> fastpack.read_raw_index(f"{folder.name}/a.idx").tolist()
    [[0, 13], [14, 15]]
    >>> folder.cleanup()
    """
    return pickled_index.decode(open_bytes(path)[:], path)


def write_raw_index(path: PathLike, index: npt.ArrayLike) -> None:
    """Write the byte-offset index of a JSON Lines file, byte for byte as Modalities.

    Parameters
    ----------
    path
        The `.idx` file; an existing one is replaced.
    index
        Integers [n, 2], (byte offset, byte length) of each line, without its newline.

    Raises
    ------
    ValueError
        If `index` does not have this shape or is not integer.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "a.idx")
    >>> fastpack.write_raw_index(path, [(0, 13), (14, 15)])
    >>> import pickle
    >>> pickle.loads(path.read_bytes())
    [(0, 13), (14, 15)]
    >>> folder.cleanup()
    """
    rows = np.asarray(index)
    if rows.size == 0:
        rows = np.empty((0, 2), np.int64)  # np.asarray([]) has neither the shape nor the dtype
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
        raise ValueError(f"an index of shape {rows.shape} and dtype {rows.dtype}, expected integers of shape (n, 2)")
    with open_raw_index_writer(path) as writer:
        for first in range(0, len(rows), _BLOCK_ROWS):
            writer.append(rows[first : first + _BLOCK_ROWS].astype(np.int64))


@contextlib.contextmanager
def open_raw_index_writer(
    path: PathLike, policy: ExistencePolicy = "overwrite"
) -> Iterator[pickled_index.IndexEncoder]:
    """Write an `.idx` file in bounded memory; append rows int64 [k, 2] of (offset, length) to the value.

    The file gets its name when the with block succeeds. Raises as `AtomicFile`, and TargetExists by `policy`.
    """
    with AtomicFile(path, policy=policy) as file:
        encoder = pickled_index.IndexEncoder(file.write)
        yield encoder
        encoder.close()


def repair_raw_index(
    raw_data_path: PathLike, index_path: PathLike | None = None, *, out_path: PathLike | None = None
) -> int:
    r"""Correct an index whose lengths count characters (Modalities before v0.4.0) to lengths in bytes.

    Such indexes also leave out the carriage return before a newline, and may count the newline of the last line.

    Parameters
    ----------
    raw_data_path
        The JSON Lines file.
    index_path
        Its index; by default `<stem>.idx` next to it.
    out_path
        The corrected index; by default the index is replaced.

    Returns
    -------
    int
        Number of entries that changed.

    Raises
    ------
    FileNotFoundError
        If one of the files does not exist.
    FormatError
        If an entry is not a line of the raw file by either rule: the index belongs to another file.

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = pathlib.Path(folder.name, "a.jsonl")
    >>> _ = source.write_text('"ä"\n"b"\n', encoding="utf-8")
    >>> fastpack.write_raw_index(source.with_suffix(".idx"), [(0, 3), (5, 3)])
    >>> fastpack.repair_raw_index(source)
    1
    >>> fastpack.read_raw_index(source.with_suffix(".idx")).tolist()
    [[0, 4], [5, 3]]
    >>> folder.cleanup()
    """
    index_path = default_index_path(raw_data_path) if index_path is None else as_path(index_path)
    data, old = map_bytes(raw_data_path), read_raw_index(index_path)
    check_bounds(old, len(data), index_path)
    new = old.copy()
    for entry, (offset, length) in enumerate(old.tolist()):
        line = line_at(data, offset)
        if line is None or length not in known_lengths(line, offset + len(line) + 1 >= len(data)):
            expected = f"the start of a line of {os.fspath(raw_data_path)} and its length in characters or bytes"
            raise pickled_index.entry_error(index_path, 0, entry, old[entry], expected)
        new[entry, 1] = len(line)
    changed = int((new != old).any(axis=1).sum())
    if changed or out_path is not None:
        write_raw_index(index_path if out_path is None else out_path, new)
    return changed
