"""Random access to the lines of a JSON lines file by its raw index."""

from __future__ import annotations

from types import TracebackType
from typing import SupportsIndex

from fastpack.display import Described, facts
from fastpack.documents.raw_index import JsonlFile
from fastpack.documents.raw_index_check import default_index_path
from fastpack.io import AnyPath, PathLike, as_path
from fastpack.item_numbers import item_number


class LargeFileLinesReader(Described):
    """The lines of a raw file: `len()`, `[i]`, negative i too. Modalities' class, picklable (as paths) and fork-safe.

    index_path: default `<stem>.idx` beside the raw file. encoding: how lines are decoded, strictly (UnicodeDecodeError
    where one is not in it); None gives bytes. use_sample_length_from_index=False: a line reaches to where the next one
    of the index begins, its newline and faulty lines between them included, the last to the end of the file.

    Raises FileNotFoundError when either file is missing, ValueError for an empty raw file, FormatError for a file that
    is not an index, StaleIndex (a FormatError) for an index that does not belong to the raw file as it is now,
    IndexError for an item beyond the last.
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
        # A length in characters does no harm when it is not used.
        self._file = JsonlFile(self.raw_data_path, self.index_path, warn_of_characters=use_sample_length_from_index)
        self._n_lines = len(self._file)

    @staticmethod
    def default_index_path(raw_data_path: PathLike, index_path: PathLike | None = None) -> AnyPath:
        """`index_path`, or where the index is expected without one."""
        return default_index_path(raw_data_path) if index_path is None else as_path(index_path)

    def __len__(self) -> int:
        return self._n_lines

    def __getitem__(self, key: SupportsIndex) -> str | bytes:
        i = item_number(key)
        if not -self._n_lines <= i < self._n_lines:
            raise IndexError(f"line {i} of {self._n_lines} in {self.raw_data_path}")
        i %= self._n_lines
        line = self._file.line(i) if self.use_sample_length_from_index else self._file.span(i)
        return line if self.encoding is None else line.decode(self.encoding)

    def offset(self, i: int) -> int:
        """Where line i, 0 <= i < len(self), begins, in bytes from the start of the raw file."""
        return int(self._file.index[i, 0])

    def close(self) -> None:
        """Let the mapping go; the next item opens it again."""
        self._file.close()

    def __enter__(self) -> LargeFileLinesReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
