"""`MemMapDataset`: the documents of a JSON lines file, tokenised when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsIndex

from fastpack.datasets.base import Dataset
from fastpack.display import facts
from fastpack.documents.json_fields import FaultyDocument, Line, compile_pattern
from fastpack.documents.lines_reader import LargeFileLinesReader
from fastpack.errors import FormatError
from fastpack.io import PathLike
from fastpack.item_numbers import item_number


class MemMapDataset(Dataset):
    """The documents of a raw file by its index, tokenised on the fly: `[i]` is a list of token ids, i may be negative.

    tokenizer: what has `tokenize(text)`, as Modalities' tokenizers have, or else a function of a text; what it gives
    comes back as it is, no end-of-document token is added. sample_key: only kept, samples are no dicts (as with
    Modalities). index_path: default `<stem>.idx` beside the raw file. jq_pattern: its first result is the text.
    Pickles as paths and the tokenizer.

    A document without a text (no JSON, no such key, no string) raises FormatError, a ValueError, when it is asked for,
    and names the file, the byte and the line, counted from 0. Raises FileNotFoundError, ValueError for an empty raw
    file or a pattern that jq refuses, FormatError for a damaged index, StaleIndex (a FormatError) for one that does
    not belong to the raw file as it is now, IndexError.
    """

    _subject = "raw_data_path"
    _shown = facts(samples="_total", closed="_closed")

    def __init__(
        self,
        raw_data_path: PathLike,
        tokenizer: Any,
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
        self._tokenize = getattr(self.tokenizer, "tokenize", self.tokenizer)
        if not callable(self._tokenize):
            raise TypeError(f"a {type(self.tokenizer).__name__} is no tokenizer: it has no tokenize(text)")

    def __getitem__(self, index: SupportsIndex) -> list[int]:
        self._check_open()
        tokens: list[int] = self._tokenize(self.text(item_number(index)))
        return tokens

    def text(self, index: int) -> str:
        """What is tokenised for sample `index`; errors as of `[i]`."""
        position = index + self._total if index < 0 else index
        if not 0 <= position < self._total:
            raise IndexError(f"Index {index} out of range for {self._total} samples")
        line = self.reader[position]
        assert isinstance(line, bytes)
        try:
            return self._text_of(line)
        except FaultyDocument as error:
            expected = f"a document whose {self.jq_pattern} is a text"
            found = f"line {position} without one ({error})"
            raise FormatError(self.raw_data_path, self.reader.offset(position), found, expected) from None

    def close(self) -> None:
        super().close()
        self.reader.close()

    def __getstate__(self) -> dict[str, Any]:
        # jq's programs do not pickle.
        return {name: value for name, value in vars(self).items() if name not in ("_text_of", "_tokenize")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._attach()
