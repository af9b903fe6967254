"""The texts of many JSON lines by one call of the parser: for short lines, most of the time goes into the calls."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from fastpack.documents.json_fields import parse_plain_path

BlockReader: TypeAlias = Callable[[memoryview, npt.NDArray[np.int64]], list[str] | None]

SHORT_LINE = 512  # bytes on average: from there on a call a line is as fast


def compile_block_pattern(pattern: str) -> BlockReader | None:
    """A function from (bytes, rows int64[n, 2] of offset and length) to the lines' texts; None: no such pattern.

    The function answers None for lines that are to be read one by one: long ones, rows that are not lines one after
    another, and any line whose text is not found at the first attempt. It never answers otherwise than
    `json_fields.compile_pattern` does line by line. Only patterns that are one key (`.text`) have one.
    """
    steps = parse_plain_path(pattern)
    if steps is None or len(steps) != 1 or not isinstance(steps[0], str):
        return None
    key: str = steps[0]
    # Between two lines stands a number that no file can know: two broken lines that only together are JSON, such as
    # `{"a": [1` and `2]}`, swallow it, and that is seen.
    mark = secrets.randbelow(1 << 62) + (1 << 62)
    between = b",%d," % mark

    def texts_of(data: memoryview, rows: npt.NDArray[np.int64]) -> list[str] | None:
        n = len(rows)
        if not n or int(rows[:, 1].sum()) > n * SHORT_LINE:
            return None
        ends = rows[:, 0] + rows[:, 1]
        if not np.array_equal(rows[1:, 0], ends[:-1] + 1):
            return None
        block = bytes(data[int(rows[0, 0]) : int(ends[-1])])
        try:
            values = orjson.loads(b"[%b]" % block.replace(b"\n", between))
            if len(values) != 2 * n - 1 or values[1::2].count(mark) != n - 1:
                return None
            texts = [value[key] for value in values[::2]]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None
        return texts if set(map(type, texts)) == {str} else None

    return texts_of
