"""The pickled index reader: our decoders compared with the standard library's.

`differential` is the property of the fuzz target `idx` and of tests/kernels/codecs/test_pickled_index_decoder.py.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, ClassVar, NoReturn

import numpy as np

from fastpack.kernels.codecs import pickled_index_decoder_cy, pickled_index_decoder_np
from fastpack.kernels.codecs.pickled_index_errors import STRICTER_THAN_PICKLE, Fault, IndexSyntaxError

DECODERS = (
    pickled_index_decoder_cy.decode_index,
    pickled_index_decoder_cy.decode_index_strictly,
    pickled_index_decoder_np.decode_index,
)
INT64 = range(-(2**63), 2**63)


def _stop(oracle: Oracle) -> NoReturn:
    """STOP, which requires that the stack contains only the result."""
    if oracle.metastack or len(oracle.stack) != 1:
        raise pickle.UnpicklingError("more than the result on the stack")
    raise pickle._Stop(oracle.stack.pop())  # type: ignore[attr-defined]


class Oracle(pickle._Unpickler):  # type: ignore[misc,name-defined]
    """The standard library's reader for the opcodes of indices, in Python: that in C can need gigabytes."""

    dispatch: ClassVar[dict[int, Any]] = {
        code: pickle._Unpickler.dispatch[code] for code in pickled_index_decoder_np.ACTIONS
    }  # type: ignore[attr-defined]
    dispatch[pickle.STOP[0]] = _stop

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"{module}.{name}")


def expected(data: bytes) -> tuple[list[tuple[int, int]], int] | None:
    """Return the rows and their size in bytes by the standard library, or None if the result is not a list of pairs."""
    file = io.BytesIO(data)
    oracle = Oracle(file)
    try:
        rows = oracle.load()
    except Exception:
        return None
    frame = oracle._unframer.current_frame
    unread = len(frame.read()) if frame else 0
    if type(rows) is not list or not all(type(row) is tuple and len(row) == 2 for row in rows):
        return None
    if not all(type(number) is int and number in INT64 for row in rows for number in row):
        return None
    return rows, file.tell() - unread


def outcome(decode: Any, data: bytes) -> tuple[Any, ...]:
    """Return the result of a decoder: rows and consumed bytes, or the fault, its offset and the message texts."""
    try:
        rows, n_bytes, bits = decode(np.frombuffer(data, np.uint8))
    except IndexSyntaxError as error:
        return error.fault, error.offset, error.found, error.expected
    assert rows.dtype == np.int64
    assert rows.shape == (len(rows), 2)
    assert bits == np.bitwise_or.reduce(rows, axis=None)
    return [tuple(row) for row in rows.tolist()], n_bytes


def differential(data: bytes) -> tuple[Any, ...]:
    """Assert that all decoders agree, also with the standard library, except for documented rejections."""
    outcomes = [outcome(decode, data) for decode in DECODERS]
    assert outcomes[0] == outcomes[1] == outcomes[2], (data.hex(), outcomes)
    ours, theirs = outcomes[0], expected(data)
    if not isinstance(ours[0], Fault):
        assert ours == theirs, (data.hex(), ours, theirs)
    elif theirs is not None:
        assert ours[0] in STRICTER_THAN_PICKLE, (data.hex(), ours, theirs)
    return ours


def seeds() -> list[bytes]:
    """Return small pickles of every protocol and integer width, with one and several rows."""
    lists: list[list[tuple[int, int]]] = [[], [(0, 5)], [(2**40, 300)], [(300, 2**33), (2**31, 255), (-1, 65535)]]
    lists.append([(7 * i, 7) for i in range(30)])
    return [pickle.dumps(rows, protocol) for rows in lists for protocol in range(6)]
