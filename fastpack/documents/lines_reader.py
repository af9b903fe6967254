"""Random access to the lines of a JSON Lines file by its raw index."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from fastpack.display import Described, facts
from fastpack.documents.json_lines import Rows
from fastpack.documents.raw_index_check import counts_characters, default_index_path, read_raw_index_of
from fastpack.io import AnyPath, ByteArray, PathLike, as_path, open_bytes
from fastpack.item_numbers import item_number


class LargeFileLinesReader(Described):
    r"""Read the lines of a JSON Lines file by number, with its index (as Modalities).

    `len(reader)` is the number of lines, `reader[i]` is line i; i may be negative. A reader pickles as its paths and
    can be used after a fork.

    Parameters
    ----------
    raw_data_path
        The JSON Lines file.
    index_path
        Its index; by default `<stem>.idx` next to it.
    encoding
        The encoding of lines, which are decoded strictly. None returns bytes.
    use_sample_length_from_index
        If False, a line extends to the start of the next line in the index (the last one to the end of the file): with
        its newline, and with faulty lines in between.

    Raises
    ------
    FileNotFoundError
        If one of the files does not exist.
    ValueError
        If the raw file is empty.
    FormatError
        If the index is not an index.
    StaleIndex
        If the index does not belong to the current raw file (a FormatError).

    Examples
    --------
    >>> import pathlib, tempfile, fastpack
    >>> from fastpack.modalities import LargeFileLinesReader
    >>> folder = tempfile.TemporaryDirectory()
    >>> source = pathlib.Path(folder.name, "a.jsonl")
    >>> _ = source.write_text('{"text": "a"}\n{"text": "bcd"}\n')
    >>> _ = fastpack.create_raw_index(source)
    >>> with LargeFileLinesReader(source) as reader:
    ...     len(reader), reader[-1]
    (2, '{"text": "bcd"}')
    >>> folder.cleanup()
    """

    _subject = "raw_data_path"
    _shown = facts(lines="_n_lines", encoding="encoding")

    def __init__(
        self,
        raw_data_path: PathLike,
        index_path: PathLike | None = None,
        encoding: str | None = "utf-8",
        use_sample_length_from_index: bool = True,
    ) -> None:
        self.raw_data_path = as_path(raw_data_path)
        self.index_path = self.default_index_path(self.raw_data_path, index_path)
        self.encoding = encoding
        self.use_sample_length_from_index = use_sample_length_from_index
        if not self.raw_data_path.is_file():
            raise FileNotFoundError(f"Raw data file does not exist: {self.raw_data_path}")
        if not self.index_path.is_file():
            raise FileNotFoundError(
                "Index file does not exist. Use `modalities data create_raw_index` to create one. "
                f"({self.index_path}; `fastpack index` writes the same)"
            )
        if self.raw_data_path.stat().st_size == 0:
            raise ValueError(f"cannot mmap an empty file: {self.raw_data_path}")
        self._opened: tuple[ByteArray, Rows] | None = None  # the raw file and its index
        self._n_lines = len(self._open()[1])

    @staticmethod
    def default_index_path(raw_data_path: PathLike, index_path: PathLike | None = None) -> AnyPath:
        """Return `index_path`, or the default index path.

        Parameters
        ----------
        raw_data_path
            The JSON Lines file.
        index_path
            Its index, if it is given.

        Returns
        -------
        Path
            The path of the index.
        """
        return default_index_path(raw_data_path) if index_path is None else as_path(index_path)

    def __len__(self) -> int:
        return self._n_lines

    def __getitem__(self, key: SupportsIndex) -> str | bytes:
        i = item_number(key)
        if not -self._n_lines <= i < self._n_lines:
            raise IndexError(f"line {i} of {self._n_lines} in {self.raw_data_path}")
        i %= self._n_lines
        data, index = self._opened or self._open()
        start, length = index[i].tolist()
        if self.use_sample_length_from_index:
            end = start + length
        else:
            end = int(index[i + 1, 0]) if i + 1 < len(index) else len(data)
        line: bytes = data[start:end].tobytes()
        return line if self.encoding is None else line.decode(self.encoding)

    def _open(self) -> tuple[ByteArray, Rows]:
        data = open_bytes(self.raw_data_path)
        index = read_raw_index_of(self.raw_data_path, self.index_path, data)
        # Lengths in characters are harmless if they are not used.
        if self.use_sample_length_from_index and counts_characters(data, index):
            warnings.warn(
                f"{self.index_path} measures lines in characters, as Modalities did before v0.4.0, so lines will be "
                "truncated; `fastpack index --repair-legacy` restores the lengths in bytes",
                stacklevel=3,
            )
        self._opened = data, index
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def offset(self, i: int) -> int:
        """Return the start of a line in the raw file.

        Parameters
        ----------
        i
            Number of the line, 0 <= i < len(self).

        Returns
        -------
        int
            Bytes from the start of the file.
        """
        _, index = self._opened or self._open()
        return int(index[i, 0])

    def line_numbers(self, entries: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the numbers of lines in the raw file, which may have lines that the index leaves out.

        Only the bytes between the lines are read.

        Parameters
        ----------
        entries
            Numbers of lines in the index, int64 [n], each >= 0 and < len(self).

        Returns
        -------
        numpy.ndarray
            Numbers of lines in the file, from 1, int64 [n].
        """
        data, index = self._opened or self._open()
        order = np.argsort(index[:, 0], kind="stable")
        starts, lengths = index[order].T
        ends = np.concatenate([[0], starts[:-1] + lengths[:-1]])
        newlines = np.ones(len(index), np.int64)  # between a line and the one before
        unusual = (starts - ends != 1) | (np.arange(len(index)) == 0)
        for number in np.flatnonzero(unusual).tolist():
            between = data[int(ends[number]) : int(starts[number])]
            newlines[number] = np.count_nonzero(np.asarray(between) == ord("\n"))
        numbers = np.empty(len(index), np.int64)
        numbers[order] = 1 + np.cumsum(newlines)
        found: npt.NDArray[np.int64] = numbers[entries]
        return found

    def close(self) -> None:
        """Release the mapping; the next access opens it again."""
        self._opened = None

    def __enter__(self) -> LargeFileLinesReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
