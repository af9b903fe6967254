"""Pieces of documents in as few bytes as their numbers need: the number of a document, and a length."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fastpack.plans.count_column import Integers


def length_bits(seq_length: int) -> int:
    """Return the bits of the length of a piece, which is below `seq_length`."""
    return max(1, (seq_length - 1).bit_length())


def piece_bytes(n_documents: int, seq_length: int) -> int:
    """Return the bytes of a piece. ValueError for more than 63 bits."""
    bits = max(1, (n_documents - 1).bit_length()) + length_bits(seq_length)
    if bits > 63:
        raise ValueError(f"{n_documents} documents are too many for rows of {seq_length} tokens")
    return -(-bits // 8)


def encode_pieces(documents: Integers, lengths: Integers, n_documents: int, seq_length: int) -> npt.NDArray[np.uint8]:
    """Return pieces as bytes, uint8 [n * piece_bytes]."""
    values = documents << np.int64(length_bits(seq_length)) | lengths
    width = piece_bytes(n_documents, seq_length)
    return np.ascontiguousarray(values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]).reshape(-1)


def read_pieces(
    data: npt.NDArray[np.uint8], places: Integers, n_documents: int, seq_length: int
) -> tuple[Integers, Integers]:
    """Return documents and lengths of pieces at `places`, int64 [k]. Raises IndexError for places beyond the data."""
    width = piece_bytes(n_documents, seq_length)
    values = np.zeros((len(places), 8), np.uint8)
    values[:, :width] = data[: len(data) // width * width].reshape(-1, width)[places]
    numbers = values.reshape(-1).view("<i8").astype(np.int64, copy=False)
    bits = np.int64(length_bits(seq_length))
    return numbers >> bits, numbers & ((np.int64(1) << bits) - 1)
