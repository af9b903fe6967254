r"""The loss mask of a token file: which tokens count in the loss, in the side file `<file>.mask`.

The file has a header of 80 bytes, little-endian: b"FPMASK1\n", the number of tokens, the number of tokens that count
and the size of the token file (u64 each), the SHA-256 of the first and last bytes of the token file, the CRC-32 of the
bits, and that of the preceding 68 bytes (u32 each), and 8 zero bytes. One bit per token follows, the first token in the
lowest bit of the first byte. Of a folder with an `index.json`, it describes that file.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from fastpack.io import MASK, AtomicFile

MAGIC = b"FPMASK1\n"
HEADER = struct.Struct("<8sQQQ32sI")
CHECKSUM = struct.Struct("<I8x")
HEADER_BYTES = HEADER.size + CHECKSUM.size
BLOCK_TOKENS = 1 << 22  # which are copied at once


class MaskBits:
    """The bits of a loss mask in memory, to which masks of any length are appended; it begins with `mask`.

    Attributes
    ----------
    n_tokens, n_counted
        Number of tokens so far, and of those that count in the loss.
    """

    def __init__(self, mask: npt.ArrayLike = ()) -> None:
        self.n_tokens = self.n_counted = 0
        self._bits = bytearray()
        self.append(np.asarray(mask, np.bool_))

    def append(self, mask: npt.NDArray[Any]) -> None:
        """Append a mask, bool or 0 and 1, [n]."""
        used = self.n_tokens % 8
        if used:  # the last byte has room
            last = np.unpackbits(np.frombuffer(self._bits[-1:], np.uint8), bitorder="little")[:used]
            mask = np.concatenate([last.astype(np.bool_), mask.astype(np.bool_)])
            del self._bits[-1:]
        self._bits += np.packbits(mask.astype(np.bool_, copy=False), bitorder="little").tobytes()
        self.n_tokens += len(mask) - used
        self.n_counted = self.n_counted + int(np.count_nonzero(mask[used:]))

    def part(self, start: int, end: int) -> MaskBits:
        """Return the mask of the tokens [start, end)."""
        found = MaskBits()
        for first in range(start, end, BLOCK_TOKENS):
            found.append(self.read(first, min(first + BLOCK_TOKENS, end)))
        return found

    def tail(self, first: int) -> bytes:
        """Return the bits from token `first` on, a multiple of 8."""
        return bytes(self._bits[first // 8 :])

    def note(self, n_noted: int) -> list[Any]:
        """Return what a checkpoint has to know after one of `n_noted` tokens, as JSON values; for `restore_notes`."""
        first = n_noted // 8 * 8
        return [first, self.n_tokens, base64.b64encode(zlib.compress(self.tail(first), 1)).decode()]

    def restore_notes(self, notes: Iterable[list[Any]]) -> None:
        """Restore the bits of all checkpoints, in order."""
        for first, n_tokens, tail in notes:
            self.restore(first, zlib.decompress(base64.b64decode(tail)), n_tokens)

    def restore(self, first: int, tail: bytes, n_tokens: int) -> None:
        """Replace the bits from token `first` on by the result of `tail`, so that there are `n_tokens`."""
        self._bits[first // 8 :] = tail
        self.n_tokens = n_tokens
        self.n_counted = int(np.bitwise_count(np.frombuffer(self._bits, np.uint8)).sum(dtype=np.int64))

    def read(self, start: int, end: int) -> npt.NDArray[np.bool_]:
        """Return the mask of the tokens [start, end), bool, a new array."""
        return read_bits(np.frombuffer(self._bits, np.uint8), start, end)

    def write(self, path: str, edges: bytes, size: int) -> None:
        """Write the mask of the token file `path`, which has these edges and size."""
        header = HEADER.pack(MAGIC, self.n_tokens, self.n_counted, size, edges, zlib.crc32(self._bits))
        with AtomicFile(path + MASK, follow=False) as file:
            file.write(header + CHECKSUM.pack(zlib.crc32(header)))
            file.write(self._bits)


def read_bits(bits: npt.NDArray[np.uint8], start: int, end: int) -> npt.NDArray[np.bool_]:
    """Return the bits [start, end) as bool."""
    first = start // 8
    unpacked = np.unpackbits(bits[first : -(-end // 8)], bitorder="little")
    return unpacked[start - 8 * first : end - 8 * first].view(np.bool_)
