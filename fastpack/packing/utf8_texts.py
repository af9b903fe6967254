"""Texts as one array of UTF-8 bytes, which some tokenizers encode without a Python string per text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from fastpack.documents.json_fields import FaultyDocument, decode
from fastpack.documents.text_columns import REASONS
from fastpack.tokenizers.interface import Lengths, Tokens, Utf8Tokenizer

Faulty = list[tuple[int, str]]


class Utf8Texts(Sequence[str]):
    """Texts whose valid UTF-8 bytes are concatenated in `data`, uint8; lengths: int64[n], in bytes."""

    def __init__(self, data: npt.NDArray[np.uint8], lengths: Lengths) -> None:
        self.data, self._lengths = data, lengths
        self._ends = np.cumsum(lengths)

    def __len__(self) -> int:
        return len(self._lengths)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        end = int(self._ends[index])
        return self.data[end - int(self._lengths[index]) : end].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        data, start = self.data.tobytes(), 0
        for end in self._ends.tolist():
            yield data[start:end].decode()
            start = end

    def encode(self, tokenizer: Utf8Tokenizer, eod: int) -> tuple[Tokens, Lengths] | None:
        """Encode all texts as `encode_many`; None where the tokenizer needs strings."""
        return tokenizer.encode_utf8(self.data, self._lengths, eod)


def read_texts(data: memoryview, rows: npt.NDArray[np.int64]) -> tuple[Utf8Texts | list[str], list[int], Faulty]:
    """Return the texts of a `TextBatch`, their positions, and (position, reason) of rows without a text."""
    lengths = rows[:, 1]
    present = lengths >= 0
    faulty = [(int(position), REASONS[int(lengths[position])]) for position in np.flatnonzero(~present)]
    positions = np.flatnonzero(present)
    starts, lengths = rows[positions, 0], lengths[positions]
    if _is_valid(data, starts, lengths):
        return Utf8Texts(np.frombuffer(data, np.uint8), lengths), positions.tolist(), faulty
    texts: list[str] = []
    good: list[int] = []
    for position, start, length in zip(positions.tolist(), starts.tolist(), lengths.tolist(), strict=True):
        try:
            texts.append(decode(data[start : start + length], "the text"))
            good.append(position)
        except FaultyDocument as error:
            faulty.append((position, str(error)))
    return texts, good, faulty


def _is_valid(data: memoryview, starts: Lengths, lengths: Lengths) -> bool:
    """Return whether the texts are adjacent and all of them are valid UTF-8."""
    if int(lengths.sum()) != len(data) or not np.array_equal(starts, np.cumsum(lengths) - lengths):
        return False
    codes = np.frombuffer(data, np.uint8)
    if not len(codes) or codes.max() < 0x80:
        return True
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    first = codes[starts[lengths > 0]]
    return not bool(((first & 0xC0) == 0x80).any())  # no character continues in the next text
