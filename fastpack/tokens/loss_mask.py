"""Reading the loss mask of a token file; see `mask_bits` for the format."""

from __future__ import annotations

import contextlib
import os
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fastpack.errors import DataWarning, FormatError, JobError
from fastpack.io import (
    LOSS,
    MASK,
    ByteArray,
    PathLike,
    exists,
    is_listed,
    is_remote,
    map_bytes,
    names_in,
    open_bytes,
    plain_path,
    size_of,
    stat_of,
)
from fastpack.tokens.common_fingerprint import described_files
from fastpack.tokens.mask_bits import BLOCK_TOKENS, CHECKSUM, HEADER, HEADER_BYTES, MAGIC, MaskBits, read_bits
from fastpack.tokens.token_file import TokenFile
from fastpack.tokens.token_segment import TokenSegment
from fastpack.tokens.tokenizer_fingerprint import edges_of

Mask: TypeAlias = npt.NDArray[np.bool_]

_BLOCK = 1 << 20  # bytes that are counted at once


class _Piece(NamedTuple):
    """The tokens [start, end) of a token file, and their bits; None: all of them count."""

    start: int
    end: int
    bits: npt.NDArray[np.uint8] | None


class LossMask:
    """Which tokens of a token file count in the loss.

    Attributes
    ----------
    n_tokens, n_counted
        Number of tokens, and of those that count.

    Examples
    --------
    >>> import tempfile, fastpack
    >>> from fastpack.tokens.loss_mask import open_loss_mask
    >>> from fastpack.tokens.mask_bits import MaskBits
    >>> folder = tempfile.TemporaryDirectory()
    >>> with fastpack.PackedWriter(f"{folder.name}/a.pbin", 2) as writer:
    ...     writer.append([5, 6, 7])
    ...     writer.mask = MaskBits([False, True, True])
    >>> with fastpack.open_tokens(writer.path) as tokens:
    ...     mask = open_loss_mask(tokens)
    >>> mask.n_counted, mask.read(0, 2).tolist()
    (2, [False, True])
    >>> folder.cleanup()
    """

    def __init__(self, pieces: list[_Piece], n_counted: int) -> None:
        self._pieces, self.n_counted = pieces, n_counted
        self._ends = [piece.end for piece in pieces]
        self.n_tokens = pieces[-1].end if pieces else 0

    def read(self, start: int, end: int) -> Mask:
        """Return the mask of the tokens [start, end).

        Parameters
        ----------
        start, end
            0 <= start <= end <= n_tokens.

        Returns
        -------
        NDArray
            bool [end - start], a new array.
        """
        out = np.ones(end - start, np.bool_)
        for piece in self._pieces:
            first, last = max(start, piece.start), min(end, piece.end)
            if first < last and piece.bits is not None:
                out[first - start : last - start] = read_bits(piece.bits, first - piece.start, last - piece.start)
        return out


def open_loss_mask(tokens: TokenFile) -> LossMask | None:
    """Return the loss mask of an open token file; None without one.

    Of several files, those without a mask count completely. Raises FormatError for a mask that is damaged, or that was
    written for other contents of its token file.
    """
    return mask_of_files(_files(tokens), tokens.segments(), tokens.n_tokens)


def has_masks(tokens: TokenFile) -> bool:
    """Return whether a file of an open token file has a loss mask."""
    return _any_mask(list(_files(tokens)))


def _any_mask(paths: list[str]) -> bool:
    list_folders(paths)
    return any(find_mask(path) is not None for path in paths)


def _files(tokens: TokenFile) -> Iterator[str]:
    if tokens.format == "manifest":
        return iter(dict.fromkeys(segment.path for segment in tokens.segments()))
    return described_files(tokens)


def mask_of_files(files: Iterable[str], segments: Iterable[TokenSegment], n_tokens: int) -> LossMask | None:
    """Return the loss mask of `n_tokens` tokens in files; segments: of the tokens, if there are several files."""
    paths = list(files)
    if not _any_mask(paths):
        return None
    lengths = dict.fromkeys(paths, 0)
    if len(paths) == 1:
        lengths[paths[0]] = n_tokens
    else:
        for segment in segments:
            lengths[segment.path] += segment.length
    pieces, start, n_counted = [], 0, 0
    for path, length in lengths.items():
        found = load_mask(path, length)
        pieces.append(_Piece(start, start + length, None if found is None else found[0]))
        n_counted += length if found is None else found[1]
        start += length
    return LossMask(pieces, n_counted)


def mask_of_file(path: PathLike) -> LossMask | None:
    """Return the loss mask of one token file, with as many tokens as it was written for; None without one."""
    found = load_mask(path, None)
    if found is None:
        return None
    return LossMask([_Piece(0, found[2], found[0])], found[1])


def find_mask(path: PathLike) -> str | None:
    """Return the path of the loss mask of a token file, or of the file that it links to; None without one.

    This is `<file>.mask`, or datatrove's `x.ds.loss`. In a store, this takes requests, unless a listing of the folder
    tells.
    """
    name = plain_path(path)
    names = [os.path.realpath(name)] if not is_remote(name) and os.path.islink(name) else []
    sides = [
        f"{one}{suffix}" for one in [name, *names] for suffix in ((MASK, LOSS) if one.endswith(".ds") else (MASK,))
    ]
    return next(filter(_exists, sides), None)


def _exists(side: str) -> bool:
    if not is_remote(side):
        return exists(side)
    listed = is_listed(side)
    return _is_object(side) if listed is None else listed


def _is_object(url: str) -> bool:
    try:
        stat_of(url)
    except (FileNotFoundError, PermissionError):  # S3 denies access to a missing object without list permission
        return False
    return True


def list_folders(paths: Iterable[str]) -> None:
    """List the folders with several of these objects in stores, for `find_mask`; a server may have no listings."""
    unlisted = Counter(os.path.dirname(path) for path in paths if is_remote(path) and is_listed(path) is None)
    for folder, n in unlisted.items():
        if n > 1:
            with contextlib.suppress(OSError, JobError):
                names_in(folder)


def load_mask(path: PathLike, n_tokens: int | None) -> tuple[npt.NDArray[np.uint8], int, int] | None:
    """Return the bits of the mask of a token file, how many tokens count, and how many there are; None without a mask.

    n_tokens: the number of tokens in the file, if it is known.

    Raises FormatError for a mask that is damaged, or that was written for other contents of the token file.
    """
    side = find_mask(path)
    if side is None:
        return None
    if side.endswith(LOSS):
        return _read_loss(side, path, n_tokens)
    bits, n_counted, stored, written = _read_mask(side)
    if written != edges_of(path) or n_tokens not in (None, stored):
        found = f"the loss mask of another file, of {stored} tokens and {written[0]} bytes"
        raise FormatError(side, 0, found, f"the mask of {os.fspath(path)}, which has changed since: remove one of them")
    return bits, n_counted, stored


def carried_mask(path: PathLike, n_tokens: int) -> MaskBits | None:
    """Return the mask of the first `n_tokens` tokens of a damaged file, which is not compared; None without a mask.

    Warns if the mask is damaged or shorter: then there is none, and all tokens count.
    """
    side = find_mask(path)
    if side is None:
        return None
    try:
        bits, _, stored, _ = _read_mask(side)
    except FormatError as error:
        warnings.warn(f"{error}. The repaired file has no loss mask: all tokens count", DataWarning, stacklevel=3)
        return None
    if stored < n_tokens:
        text = f"{side} is of {stored} tokens, and the repaired file has {n_tokens}, which all count"
        warnings.warn(text, DataWarning, stacklevel=3)
        return None
    mask = MaskBits()
    for first in range(0, n_tokens, BLOCK_TOKENS):
        mask.append(read_bits(bits, first, min(first + BLOCK_TOKENS, n_tokens)))
    return mask


def _read_mask(side: str) -> tuple[npt.NDArray[np.uint8], int, int, tuple[int, bytes]]:
    """Return the bits of a mask, how many tokens count and are there, and size and edges of the token file."""
    data = _all_bytes(side)
    if len(data) < HEADER_BYTES or data[: len(MAGIC)].tobytes() != MAGIC:
        raise FormatError(side, 0, data[: len(MAGIC)].tobytes(), f"a loss mask, which begins with {MAGIC!r}")
    head = data[: HEADER.size].tobytes()
    _, stored, n_counted, size, edges, checksum = HEADER.unpack(head)
    if CHECKSUM.unpack(data[HEADER.size : HEADER_BYTES].tobytes())[0] != zlib.crc32(head):
        raise FormatError(side, 0, "a header with a wrong checksum", "an undamaged loss mask")
    bits = data[HEADER_BYTES:]
    if len(bits) != -(-stored // 8) or zlib.crc32(bits.data) != checksum:
        raise FormatError(side, HEADER_BYTES, f"{len(bits)} bytes with a wrong checksum", "the bits that were written")
    if _count(bits, stored) != n_counted:
        raise FormatError(side, HEADER_BYTES, f"bits that are not {n_counted} of {stored} tokens", "the counted tokens")
    return bits, n_counted, stored, (size, edges)


def _read_loss(side: str, path: PathLike, n_tokens: int | None) -> tuple[npt.NDArray[np.uint8], int, int]:
    """Return what `load_mask` does, of datatrove's file of a byte per token."""
    data = _all_bytes(side)
    if n_tokens not in (None, len(data)) or size_of(path) not in (2 * len(data), 4 * len(data)):
        raise FormatError(side, 0, f"a loss mask of {len(data)} tokens", f"one byte per token of {os.fspath(path)}")
    if data.max(initial=0) > 1:
        wrong = int((data > 1).argmax())
        raise FormatError(side, wrong, f"byte {data[wrong]}", "0 or 1")
    return np.packbits(data, bitorder="little"), int(np.count_nonzero(data)), len(data)


def _count(bits: npt.NDArray[np.uint8], n_tokens: int) -> int | None:
    """Return the number of bits that are set; None if one after the last token is."""
    if n_tokens % 8 and bits[-1] >> n_tokens % 8:
        return None
    return sum(int(np.bitwise_count(bits[i : i + _BLOCK]).sum()) for i in range(0, len(bits), _BLOCK))


def _all_bytes(path: str) -> npt.NDArray[np.uint8]:
    if not is_remote(path):
        return map_bytes(path)
    found: ByteArray = open_bytes(path)
    return np.frombuffer(found[0 : len(found)].tobytes(), np.uint8)
