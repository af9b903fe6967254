"""Parses many JSON lines with one call of the parser, because calls dominate the time for short lines."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from fastpack.documents.json_fields import parse_plain_path

BlockReader: TypeAlias = Callable[[memoryview, npt.NDArray[np.int64]], list[str] | None]

SHORT_LINE = 512  # bytes on average; for longer lines one call per line is as fast


def compile_block_pattern(pattern: str) -> BlockReader | None:
    """Compile a pattern to a function from (bytes, rows int64 [n, 2] of offset and length) to the texts of the lines.

    Returns None for patterns other than a single key (`.text`). The function returns None if the lines must be parsed
    one by one: long lines, rows that are not consecutive lines, and blocks in which any line needs special treatment.
    Otherwise its result equals that of `json_fields.compile_pattern` for each line.
    """
    steps = parse_plain_path(pattern)
    if steps is None or len(steps) != 1 or not isinstance(steps[0], str):
        return None
    key: str = steps[0]
    # Lines are separated by a random number, which no file can predict. Two broken lines that are JSON only when
    # concatenated, such as `{"a": [1` and `2]}`, absorb it, which is detected.
    separator = secrets.randbelow(1 << 62) + (1 << 62)
    between = b",%d," % separator

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
            if len(values) != 2 * n - 1 or values[1::2].count(separator) != n - 1:
                return None
            texts = [value[key] for value in values[::2]]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return None
        return texts if set(map(type, texts)) == {str} else None

    return texts_of
