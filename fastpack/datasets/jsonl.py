"""`MemMapDataset`: the documents of a JSON lines file, tokenized on access."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol, SupportsIndex, runtime_checkable

import numpy as np
import numpy.typing as npt

from fastpack.datasets.base import Dataset
from fastpack.display import facts
from fastpack.documents.json_fields import FaultyDocument, Line, compile_pattern
from fastpack.documents.lines_reader import LargeFileLinesReader
from fastpack.errors import FormatError
from fastpack.io import PathLike
from fastpack.item_numbers import position_of


@runtime_checkable
class TextTokenizer(Protocol):
    """A tokenizer as Modalities defines it."""

    def tokenize(self, text: str, /) -> list[int]:
        """Return the token ids of a text."""
        ...


class MemMapDataset(Dataset):
    r"""Read the documents of a JSON lines file by its index and tokenize them on access (as Modalities).

    A sample is a list of token ids. Indices are integers, negative ones included. The dataset pickles as paths and the
    tokenizer.

    Parameters
    ----------
    raw_data_path
        The JSON lines file.
    tokenizer
        An object with `tokenize(text)`, or a function of a text. Its result is returned unchanged: no end-of-document
        token is added.
    sample_key
        Kept as an attribute only: samples are not dicts.
    index_path
        The index; by default `<stem>.idx` next to the file.
    jq_pattern
        The jq pattern whose first result is the text.

    Raises
    ------
    FileNotFoundError
        If the file or its index does not exist.
    ValueError
        If the file is empty, or jq rejects the pattern.
    FormatError
        If the index is damaged; on access, if a document has no text (invalid JSON, a missing key, not a string): the
        message names the file, the byte and the line, counted from 0.
    StaleIndex
        If the file has changed since it was indexed (a FormatError).
    TypeError
        If the tokenizer has no `tokenize` and is not callable.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> path = tempfile.mkdtemp() + "/docs.jsonl"
    >>> with open(path, "w") as file:
    ...     _ = file.write('{"text": "a b c"}\n{"text": "d"}\n')
    >>> _ = fastpack.create_raw_index(path)
    >>> dataset = fastpack.MemMapDataset(path, lambda text: [ord(word) for word in text.split()], "input_ids")
    >>> dataset[0], dataset[-1]
    ([97, 98, 99], [100])
    """

    _subject = "raw_data_path"
    _shown = facts(samples="_total", closed="_closed")
    _not_pickled = ("_text_of", "_tokenize")  # compiled jq programs cannot be pickled

    def __init__(
        self,
        raw_data_path: PathLike,
        tokenizer: TextTokenizer | Callable[[str], list[int]],
        sample_key: str,
        index_path: PathLike | None = None,
        jq_pattern: str = ".text",
    ) -> None:
        self.raw_data_path, self.sample_key, self.jq_pattern = raw_data_path, sample_key, jq_pattern
        self.tokenizer = tokenizer
        self.reader = LargeFileLinesReader(raw_data_path, index_path, encoding=None)
        self._total = len(self.reader)
        self._attach()

    def _attach(self) -> None:
        self._text_of: Callable[[Line], str] = compile_pattern(self.jq_pattern)
        tokenizer = self.tokenizer
        self._tokenize = tokenizer.tokenize if isinstance(tokenizer, TextTokenizer) else tokenizer
        if not callable(self._tokenize):
            raise TypeError(f"a {type(self.tokenizer).__name__} is not a tokenizer: it has no tokenize(text)")

    def __getitem__(self, index: SupportsIndex) -> list[int]:
        self._check_open()
        tokens: list[int] = self._tokenize(self.text(index))
        return tokens

    def text(self, index: SupportsIndex) -> str:
        """Return the text of a document, not tokenized.

        Parameters
        ----------
        index
            The document, counted from 0; negative numbers count from the end.

        Returns
        -------
        str
            The text.

        Raises
        ------
        IndexError
            If the number is out of range.
        FormatError
            If the line has no text at `jq_pattern`.
        """
        position = position_of(index, self._total)
        line = self.reader[position]
        assert isinstance(line, bytes)
        try:
            return self._text_of(line)
        except FaultyDocument as error:
            expected = f"a document whose {self.jq_pattern} is a string"
            found = f"line {position} without one ({error})"
            raise FormatError(self.raw_data_path, self.reader.offset(position), found, expected) from None

    def _sample_names(self, index: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        lines = self.reader.line_numbers(np.where(index < 0, index + self._total, index)).tolist()
        return [{"corpus": os.fspath(self.raw_data_path), "line": line} for line in lines]

    def _identity(self) -> bytes:
        last = self.reader.offset(self._total - 1) if self._total else 0
        return repr((self.jq_pattern, last)).encode()

    def close(self) -> None:
        """Release the file; closing twice is allowed."""
        super().close()
        self.reader.close()
