"""The changes of a mixture as text that needs no escapes in JSON: 100 changes of 8 sources take 3,400 bytes."""

from __future__ import annotations

import base64
import zlib
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Number = TypeVar("Number", bound=np.generic)

VERSION = "2:"  # before the text; version 1 has none


class Changes(NamedTuple):
    """The changes of a mixture.

    positions: in samples of the run, int64 [n]. drawn: the samples of each source before the first change, int64
    [sources]. shares: from each change on, float32 [n, sources].
    """

    positions: npt.NDArray[np.int64]
    drawn: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float32]


def encode_changes(changes: Changes) -> str:
    """Return the changes as base85 of zlib data.

    Arbitrary shares hardly compress. The largest one of each change is stored as its difference to what the others
    leave of 1, which is nearly always 0, and positions are divided by their greatest common divisor, which is the
    global batch or a multiple of it.
    """
    shares = changes.shares
    n, width = shares.shape
    steps = np.diff(changes.positions, prepend=0)
    divisor = max(1, int(np.gcd.reduce(steps)))
    rows, largest = np.arange(n), shares.argmax(axis=1)
    others = np.ones(shares.shape, np.bool_)
    others[rows, largest] = False
    differences = shares.view(np.uint32)[rows, largest] - _rest(np.where(others, shares, 0))
    stream = zlib.compressobj(9)
    text = stream.compress(np.array([n, width, divisor], "<i8").tobytes())
    for column in (steps // divisor, changes.drawn, largest.astype(np.uint8), differences):
        text += stream.compress(_byte_planes(column).tobytes())
    for plane in _byte_planes(shares[others]):
        # As a block of its own: the codes of other bytes would make bytes longer that do not compress.
        text += stream.flush(zlib.Z_SYNC_FLUSH) + stream.compress(plane.tobytes())
    return VERSION + base64.b85encode(text + stream.flush()).decode()


def decode_changes(text: str) -> Changes:
    """Return the changes that a state of any version contains; ValueError if the text is damaged."""
    try:
        data = zlib.decompress(base64.b85decode(text.removeprefix(VERSION)))
        return _changes(data) if text.startswith(VERSION) else _changes_of_version_1(data)
    except (ValueError, IndexError, zlib.error) as error:
        raise ValueError(f"the mixture's history in the state is damaged: {error}") from error


def _changes(data: bytes) -> Changes:
    n, width, divisor = np.frombuffer(data, "<i8", 3).tolist()
    reader = _PlaneReader(data, 24)
    steps, drawn = reader.take(n, np.int64), reader.take(width, np.int64)
    largest, differences = reader.take(n, np.uint8), reader.take(n, np.uint32)
    others = np.ones((n, width), np.bool_)
    others[np.arange(n), largest] = False
    shares = np.zeros((n, width), np.float32)
    shares[others] = reader.take(n * (width - 1), np.float32)
    shares[~others] = (differences + _rest(shares)).view(np.float32)
    return Changes(np.cumsum(steps * divisor), drawn, shares)


def _changes_of_version_1(data: bytes) -> Changes:
    n, width = np.frombuffer(data, "<u4", 2).tolist()
    reader = _PlaneReader(data, 8)
    steps, drawn, shares = reader.take(n, np.int64), reader.take(width, np.int64), reader.take(n * width, np.float32)
    return Changes(np.cumsum(steps), drawn, shares.reshape(n, width))


def _rest(others: npt.NDArray[np.float32]) -> npt.NDArray[np.uint32]:
    """Return what the shares of each row leave of 1, as the bits of a float32; columns are added from left to right."""
    rest = np.ones(len(others))
    for column in others.T:
        rest -= column
    return rest.astype(np.float32).view(np.uint32)


def _byte_planes(numbers: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return byte k of all numbers as row k, little-endian: most bytes of a row are alike."""
    little = np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder("<"))).reshape(-1, 1)
    return little.view(np.uint8).T


class _PlaneReader:
    """Reads the arrays that `_byte_planes` made, one after the other."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data, self._start = data, start

    def take(self, count: int, dtype: type[Number]) -> npt.NDArray[Number]:
        """Return the next `count` numbers."""
        little = np.dtype(dtype).newbyteorder("<")
        planes = np.frombuffer(self._data, np.uint8, count * little.itemsize, self._start)
        self._start += planes.size
        return np.ascontiguousarray(planes.reshape(little.itemsize, count).T).view(little).ravel().astype(dtype)
